"""What limits a run: where an iteration goes, part by part, what the numbers behind each are, and what would help.

Parts are shares of one iteration: computing, communication that nothing covers, by axis, the bubble of a pipeline, and
what is left, in which nothing runs. Each is held against its roof, which tells a slow fabric from many bytes, and slow
kernels from much work. What iterations lose to skew and noise lies within these parts and is told beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from scaling_study.roofline import bounds_of_iteration
from scaling_study.spec import Axis, Hardware, Limit, Model, Outcome, Regime, TrainingRun

#: Communication that takes so many times what its bytes need waits for its fabric, or for other ranks.
SLOW_FABRIC = 3.0
#: Iterations that vary by more (coefficient of variation) are skewed; kernels that reach less of a roof are slow.
NOISY, NEAR_ROOF = 0.05, 0.6
#: Memory fuller than this has no room for a larger micro-batch.
FULL = 0.9
_AXES = (*(axis.value for axis in Axis), "unknown")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an iteration.

    Attributes:
        limit: what it counts as.
        axis: of communication.
        share: of the iteration.
        evidence: the numbers behind it.
        help: what would make it shorter.
    """

    limit: Limit
    axis: str | None = None
    seconds: float
    share: float
    evidence: str
    help: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What limits a run.

    Attributes:
        limit: the longest part; None where nothing is known.
        iteration_s: that parts are shares of.
        parts: the longest first.
        notes: what else a reader must know.
    """

    what: str
    provenance: str | None
    limit: Limit | None
    iteration_s: float | None
    parts: tuple[Part, ...]
    notes: tuple[str, ...]


def diagnosis_of(
    what: str, provenance: str | None, seconds: float, parts: Sequence[Part], notes: Sequence[str]
) -> Diagnosis:
    """The parts in order, and the first as the limit."""
    ordered = tuple(sorted((one for one in parts if one.share > 0), key=lambda one: -one.share))
    limit = ordered[0].limit if ordered else None
    return Diagnosis(
        what=what, provenance=provenance, limit=limit, iteration_s=seconds, parts=ordered, notes=tuple(notes)
    )


def diagnose(record: Mapping[str, Any], run: TrainingRun, model: Model, hardware: Hardware) -> Diagnosis:
    """What limits the run of a record.

    Args:
        record: every column of `SCHEMA`; one that is not `ok`, or has no times, is said to be so.
        run: that it is of.
        model: that the run trains.
        hardware: that the run names.
    """
    name, provenance = record["run_id"], record["provenance"]
    window = record["profiled_iteration_s"] or record["iteration_s"]
    if record["outcome"] != Outcome.OK or not window or record["compute_s"] is None:
        why = record["reason"] or "the record has no times of computation and communication"
        kind = Limit.MEMORY if record["outcome"] in (Outcome.OUT_OF_MEMORY, Outcome.INFEASIBLE) else None
        help_ = _FITTING if kind else None
        notes = tuple(one for one in (why, help_) if one)
        return Diagnosis(what=name, provenance=provenance, limit=kind, iteration_s=None, parts=(), notes=notes)
    bounds = {one.regime: one for one in bounds_of_iteration(run, model, hardware).bounds}
    least = {regime: one.seconds for regime, one in bounds.items()}
    parts = [_computing(record, run, window, least), *_exposed(record, run, hardware, window, least)]
    parts += _idle(run, window, window - sum(part.seconds for part in parts), hardware)
    parts += _varying(record)
    return diagnosis_of(name, provenance, window, parts, list(_notes(record, hardware)))


def _computing(
    record: Mapping[str, Any], run: TrainingRun, window: float, least: Mapping[Regime, float | None]
) -> Part:
    seconds = record["compute_s"]
    flops, traffic = least[Regime.COMPUTE], least[Regime.MEMORY]
    by_memory = flops is not None and traffic is not None and traffic > flops
    roof = traffic if by_memory else flops
    evidence = f"{seconds:.4g} s of computation"
    reached = roof / seconds if roof and seconds else None
    if reached is not None:
        evidence += f", {reached:.0%} of it needed by the {'memory' if by_memory else 'compute'} roof ({roof:.4g} s)"
    if by_memory:
        help_ = "a larger micro-batch, so that each weight that is read serves more tokens"
    elif reached is None or reached < NEAR_ROOF:
        help_ = "larger or fused kernels: a larger micro-batch, less tensor parallelism, compilation"
    else:
        help_ = "little is left but fewer FLOPs or a faster part: kernels are near their roof"
    if run.activation_checkpointing != "none":
        help_ += "; less recomputation, if memory allows"
    limit = Limit.MEMORY if by_memory else Limit.COMPUTE
    return Part(limit=limit, seconds=seconds, share=seconds / window, evidence=evidence, help=help_)


def _exposed(
    record: Mapping[str, Any], run: TrainingRun, hardware: Hardware, window: float, least: Mapping[Regime, float | None]
) -> Iterator[Part]:
    """Exposed communication by axis. Axes overlap in time, so that each has its part of the total."""
    total, communication = record["exposed_communication_s"] or 0.0, record["communication_s"] or 0.0
    by_axis = {axis: record[f"exposed_{axis}_s"] or 0.0 for axis in _AXES}
    summed, needed = sum(by_axis.values()), least[Regime.COMMUNICATION]
    slower = communication / needed if needed else None
    slow = slower is not None and slower > SLOW_FABRIC
    for axis, alone in by_axis.items():
        if not alone or not summed:
            continue
        seconds = total * alone / summed
        evidence = f"{seconds:.4g} s exposed of {record[f'communication_{axis}_s']:.4g} s over {axis}"
        if slower is not None:
            evidence += f"; all communication takes {slower:.3g} times what its bytes need at full rate"
        help_ = f"{_help_of(axis, run, hardware)}{_FABRIC_HELP if slow else ''}"
        limit = Limit.FABRIC if slow else Limit.EXPOSED_COMMUNICATION
        yield Part(limit=limit, axis=axis, seconds=seconds, share=seconds / window, evidence=evidence, help=help_)


def _idle(run: TrainingRun, window: float, idle: float, hardware: Hardware) -> Iterator[Part]:
    """What is left, in which nothing runs: first what a pipeline must wait, then the host."""
    rounds = run.microbatches * run.virtual_stages
    bubble = min(max(idle, 0.0), window * (run.pp - 1) / (rounds + run.pp - 1))
    yield Part(
        limit=Limit.PIPELINE_BUBBLE,
        seconds=bubble,
        share=bubble / window,
        evidence=f"{run.pp} stages and {run.microbatches} micro-batches wait for each other",
        help="more micro-batches, interleaved chunks, or fewer stages",
    )
    rest = max(0.0, idle - bubble)
    device = "GPU" if hardware.part else "rank"
    yield Part(
        limit=Limit.HOST_LAUNCH,
        seconds=rest,
        share=rest / window,
        evidence=f"for {rest:.4g} s nothing runs on a {device}",
        help=HOST_HELP,
    )


def _varying(record: Mapping[str, Any]) -> Iterator[Part]:
    """What iterations lose to skew and noise: by how much their mean is longer than the fast ones."""
    spread, mean, fast = (record[name] for name in ("iteration_s_cv", "iteration_s", "iteration_s_p05"))
    if spread is None or fast is None or spread <= NOISY:
        return
    seconds = max(0.0, mean - fast)
    yield Part(
        limit=Limit.SKEW,
        seconds=seconds,
        share=seconds / mean,
        evidence=f"iterations vary by {spread:.1%}; the mean is {seconds:.4g} s above the fastest twentieth",
        help=SKEW_HELP,
    )


def _notes(record: Mapping[str, Any], hardware: Hardware) -> Iterator[str]:
    peak, room = record["peak_memory_gib"], hardware.memory_gib
    if peak is not None and room is not None and peak > FULL * room.value:
        yield f"memory is full ({peak:.3g} of {room.value:g} GiB): a larger micro-batch needs checkpointing or sharding"
    if record["oversubscribed"]:
        yield "ranks share cores: waiting for one that does not run counts as communication"
    if record["provenance"] == "predicted":
        yield "predicted: skew and noise have no part in it"


_FITTING = "more data-parallel ranks or pipeline stages, activation checkpointing, or a smaller micro-batch"
_FABRIC_HELP = "; and the fabric: `scaling-study qualify` finds slow nodes and links, latency asks for larger messages"
HOST_HELP = "larger micro-batches, compilation or CUDA graphs, fewer hooks between kernels, a faster loader"
SKEW_HELP = "the node of the slowest rank: `scaling-study qualify` names nodes to exclude; pacing"


def _help_of(axis: str, run: TrainingRun, hardware: Hardware) -> str:
    """What would shorten the communication of an axis."""
    node = hardware.gpus_per_node
    if axis == Axis.DATA:
        found = "more to compute between two collectives: a larger local batch, or model parallelism inside a node"
        if run.reshard_after_forward:
            found += "; no resharding after the forward pass, which gathers every weight twice"
        return f"{found}; bf16 gradients" if run.reduction_dtype == "fp32" else found
    if axis == Axis.TENSOR:
        if 1 < node < run.tp:
            return f"tensor parallelism inside a node: at most {node} instead of {run.tp}"
        return f"less tensor parallelism than {run.tp}, or a larger micro-batch"
    if axis == Axis.PIPELINE:
        return f"fewer stages than {run.pp}, or more micro-batches than {run.microbatches}"
    return "the trace does not say of which axis this is"
