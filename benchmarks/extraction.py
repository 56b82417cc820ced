"""The closed forms of full-size runs on 2,048 ranks against the training code under fake tensors, and their speed.

    python -m benchmarks.extraction [--only NAME]

Exits with 1 where a step differs or memory is off by more than 5%. The small grid is in the default tests.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import msgspec

from scaling_study.predict.agreement import first_difference
from scaling_study.predict.memory import memory_of
from scaling_study.predict.workload import workload_of
from scaling_study.spec import (
    ActivationCheckpointing,
    AttentionBackend,
    Config,
    Model,
    PipelineSchedule,
    Precision,
    Protocol,
    TrainingRun,
    violations,
)

ROOT = Path(__file__).resolve().parents[1]
MEMORY_TOLERANCE = 0.05
FULL, SELECTIVE = ActivationCheckpointing.FULL, ActivationCheckpointing.SELECTIVE


def run_of(model: str, dp: int, tp: int, pp: int, microbatches: int, micro_batch: int = 1, **fields) -> TrainingRun:
    """A run of the paper's kind on 256 nodes of 8."""
    return TrainingRun(
        model=model,
        hardware="h100",
        nodes=dp * tp * pp // 8,
        dp=dp,
        tp=tp,
        pp=pp,
        micro_batch=micro_batch,
        global_batch=dp * micro_batch * microbatches,
        **fields,
    )


INTERLEAVED = {"schedule": PipelineSchedule.INTERLEAVED, "virtual_stages": 2}
#: Name: run, pipeline rank.
CASES = {
    "7b dp2048": (run_of("llama2-7b", 2048, 1, 1, 1, 2), 0),
    "7b dp2048, resharding, full": (
        run_of("llama2-7b", 2048, 1, 1, 1, 2, reshard_after_forward=True, activation_checkpointing=FULL),
        0,
    ),
    "7b dp256 tp8, fp16": (run_of("llama2-7b", 256, 8, 1, 1, 4, precision=Precision.FP16), 0),
    "7b dp512 tp2 pp2, last": (run_of("llama2-7b", 512, 2, 2, 2), 1),
    "7b dp256 pp8, first": (run_of("llama2-7b", 256, 1, 8, 8), 0),
    "7b dp512 pp4 interleaved": (run_of("llama2-7b", 512, 1, 4, 4, **INTERLEAVED), 2),
    "70b dp256 tp8, clipped": (run_of("llama2-70b", 256, 8, 1, 1, protocol=Protocol(max_gradient_norm=1.0)), 0),
    "70b dp256 tp8, resharding, selective": (
        run_of("llama2-70b", 256, 8, 1, 1, reshard_after_forward=True, activation_checkpointing=SELECTIVE),
        0,
    ),
    "70b dp16 tp8 pp16, middle": (run_of("llama2-70b", 16, 8, 16, 16), 7),
    "70b dp64 tp8 pp4 interleaved, full, last": (
        run_of("llama2-70b", 64, 8, 4, 4, activation_checkpointing=FULL, **INTERLEAVED),
        3,
    ),
}
#: Small enough for gloo on one machine, every axis at once.
REAL_MODEL = Model(
    name="small", layers=4, hidden=64, heads=4, kv_heads=2, ffn=176, vocabulary=256, source="benchmark"
)  # fmt: skip


def check(name: str, run: TrainingRun, stage: int, config: Config) -> bool:
    """Extract one rank of a run, compare, and print a line."""
    from scaling_study.predict.extract import Place, extract

    model = config.catalogue.models[run.model]
    broken = violations(run, model, config.catalogue.hardware[run.hardware])
    assert not broken, broken
    started = time.perf_counter()
    extraction = extract(run, model, Place(stage, run.dp - 1, run.tp - 1))
    took_s = time.perf_counter() - started
    closed_ms, workload, memory = closed_forms(run, model, stage)
    difference = first_difference(workload.steps(), extraction.steps)
    error = memory.peak_bytes / extraction.peak_memory_bytes - 1
    verdict = "equal" if difference is None else "DIFFER"
    print(
        f"{name:42} {len(extraction.steps):6,} steps {verdict}, memory {memory.peak_gib:6.2f} GiB ({error:+.2%}), "
        f"extracted in {took_s:5.1f} s, predicted in {closed_ms:.1f} ms",
        flush=True,
    )
    if difference is not None:
        print(f"    {difference}")
    return difference is None and abs(error) <= MEMORY_TOLERANCE


def closed_forms(run: TrainingRun, model: Model, stage: int):
    """Milliseconds of the closed forms, and what they say."""
    started = time.perf_counter()
    workload, memory = workload_of(run, model, stage), memory_of(run, model, stage, run.dp - 1)
    workload.tally()
    return (time.perf_counter() - started) * 1e3, workload, memory


def check_real_run() -> bool:
    """Eight real processes over gloo, 2 x 2 x 2, against the closed forms."""
    from tests.ranks import run_on_ranks
    from tests.unit.predict.test_extract import record_real_step

    run = run_of("small", 2, 2, 2, 2, sequence_length=32, precision=Precision.BF16)
    run = msgspec.structs.replace(run, attention=AttentionBackend.SDPA, protocol=Protocol(max_gradient_norm=1.0))
    recorded = run_on_ranks(record_real_step, run.ranks, REAL_MODEL, run, timeout_s=300)
    differences = [
        first_difference(workload_of(run, REAL_MODEL, rank // (run.dp * run.tp)).steps(), steps)
        for rank, steps in enumerate(recorded)
    ]
    print(f"gloo 2 x 2 x 2: {differences.count(None)} of {run.ranks} ranks equal")
    return not any(differences)


def main(arguments: list[str] | None = None) -> None:
    """Check every case, or those whose name contains a word."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    wanted = parser.parse_args(arguments).only
    config = Config(ROOT / "config")
    good = [check(name, *case, config) for name, case in CASES.items() if wanted in name]
    if wanted in "gloo":
        good.append(check_real_run())
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
