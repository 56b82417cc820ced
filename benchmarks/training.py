"""Tokens a second of training against the peers: what one process and two ranks have in common."""

from __future__ import annotations

import functools
from pathlib import Path

from benchmarks import contestants
from benchmarks.arena import Case, UnavailableError, durations
from benchmarks.lines import Line
from benchmarks.ratios import paired_ratio, spread
from scaling_study.spec import AttentionBackend, Config, Model, Precision, TrainingRun

PEERS = ("transformers", "torchtitan")
REQUIRED = 1.0
TORCHTITAN = (
    "0.2 is the last that trains a Llama on a CPU: from 0.3 on it attends by FlexAttention, which has no backward pass "
    "there, or by a CUDA kernel. Its model alone is compared: its trainer asks for CUDA, its apply_fsdp for a "
    "reduction that gloo does not have"
)
_ROOT = Path(__file__).parents[1]

#: That of the mini study, where the logits outweigh the blocks, and one whose blocks weigh as much.
SMALL = Config(_ROOT / "config").catalogue.models["mini-9m"]
LARGER = Model(
    name="45m", layers=4, hidden=512, heads=8, kv_heads=8, ffn=1376, vocabulary=32000, source="for benchmarks alone"
)


def training_run(model: Model, *, dp: int, micro_batch: int, sequence_length: int) -> TrainingRun:
    """One micro-batch a rank, in fp32."""
    return TrainingRun(
        model=model.name,
        hardware="cpu",
        nodes=dp,
        dp=dp,
        micro_batch=micro_batch,
        global_batch=dp * micro_batch,
        sequence_length=sequence_length,
        precision=Precision.FP32,
        attention=AttentionBackend.SDPA,
    )


def compare(benchmark: str, case: Case, rounds: int) -> list[Line]:
    """A line for each peer."""
    available = [peer for peer in PEERS if _unavailable(peer) is None]
    measured = durations([contestants.OURS, *available], case, rounds)
    run = case.run
    what = f"{case.model.name}, {run.ranks} x {run.local_batch} x {run.sequence_length} tokens"
    lines = []
    for peer in PEERS:
        common = {"benchmark": benchmark, "what": what, "unit": "tokens/s", "required": REQUIRED}
        rate = spread([run.tokens_per_iteration / step[contestants.OURS] for steps in measured for step in steps])
        if peer not in available:
            lines.append(Line(**common, ours=rate, peer=peer, reason=_unavailable(peer) or ""))
            continue
        theirs = spread([run.tokens_per_iteration / step[peer] for steps in measured for step in steps])
        pairs = [[(step[peer], step[contestants.OURS]) for step in steps] for steps in measured]
        said = f"{peer} {contestants.version(peer)}"
        reason = TORCHTITAN if peer == "torchtitan" else ""
        lines.append(Line(**common, ours=rate, peer=said, theirs=theirs, ratio=paired_ratio(pairs), reason=reason))
    return lines


@functools.cache
def _unavailable(peer: str) -> str | None:
    """Why a peer cannot be had here; None where it can."""
    run = training_run(SMALL, dp=1, micro_batch=1, sequence_length=8)
    try:
        durations([peer], Case(model=SMALL, run=run, threads=1, warmup=0, steps=1), rounds=1)
    except UnavailableError as error:
        return f"cannot be had here ({error})"
    return None
