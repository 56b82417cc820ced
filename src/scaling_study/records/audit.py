"""Whether a record can be true: against the roofs of its run, and against itself.

An objection is a sentence with its numbers. A record with one is `invalid`: it keeps what it is of, loses its metrics,
and is drawn nowhere. What was measured stays in the run store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from scaling_study.records.schema import COLLECTIVE_METRICS, TRAINING_METRICS
from scaling_study.roofline import bounds_of_iteration, bus_factor, group_of_nodes, load_of, model_flops_per_token
from scaling_study.spec import Axis, CollectiveRun, Hardware, Model, Outcome, Regime, Run, TrainingRun, ranks_of

#: Relative difference that rounding explains.
ROUNDING = 1e-6
#: A meter of power is right to within 5% (NVML's own word on nvmlDeviceGetPowerUsage).
METER = 0.05
#: By how much the profiled window may be shorter than the times in it: clocks of ranks, and spans cut at its edges.
WINDOW = 0.01
_AXES = (*(axis.value for axis in Axis), "unknown")


def audited(record: Mapping[str, Any], run: Run, model: Model | None, hardware: Hardware) -> dict[str, Any]:
    """The record, or where something in it cannot be true, an invalid one that says what.

    Args:
        record: every column of `SCHEMA`.
        run: that it is of.
        model: of a training run.
        hardware: that the run names.
    """
    found = list(objections(record, run, model, hardware))
    if not found:
        return dict(record)
    metrics = dict.fromkeys((*TRAINING_METRICS, *COLLECTIVE_METRICS))
    ended = {"outcome": Outcome.INVALID.value, "reason": "; ".join(found), "null_reasons": None}
    return {**record, **metrics, **ended}


def invalid_records(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for every record that the audit has made invalid."""
    return [
        f"{record['run_id']}: {record['provenance']}, but it cannot be true: {record['reason']}"
        for record in records
        if record["outcome"] == Outcome.INVALID
    ]


def objections(record: Mapping[str, Any], run: Run, model: Model | None, hardware: Hardware) -> Iterator[str]:
    """Every reason why an `ok` record cannot be true; none for another."""
    if record["outcome"] != Outcome.OK:
        return
    yield from _out_of_range(record)
    if isinstance(run, CollectiveRun):
        yield from _of_call(record, run, hardware)
        return
    assert model is not None
    yield from _of_rates(record, run, model, hardware)
    yield from _of_step(record, run, model, hardware)
    yield from _of_times(record)
    yield from _of_power(record, hardware)


def _out_of_range(record: Mapping[str, Any]) -> Iterator[str]:
    for name in (*TRAINING_METRICS, *COLLECTIVE_METRICS):
        value = record[name]
        least = -1.0 if name == "profiler_overhead" else 0.0
        if value is not None and not least <= value < float("inf"):
            yield f"{name} is {value:g}"
    for metric in ("iteration_s", "call_s"):
        for names in (("p05", "p50", "p95"), ("low", "", "high")):
            columns = [f"{metric}_{name}" if name else metric for name in names]
            values = [record[name] for name in columns if record[name] is not None]
            if values != sorted(values):
                yield f"{' <= '.join(columns)} does not hold: {', '.join(f'{value:.6g}' for value in values)}"


def _of_rates(record: Mapping[str, Any], run: TrainingRun, model: Model, hardware: Hardware) -> Iterator[str]:
    """Rates follow from the time of an iteration, and none is above the peak."""
    seconds, flops = record["iteration_s"], model_flops_per_token(model, run.sequence_length)
    if not seconds:
        yield "an ok record has no iteration_s"
        return
    rate = run.tokens_per_iteration / seconds
    expected = {
        "words_per_second": rate,
        "words_per_second_per_gpu": rate / run.ranks,
        "tflops_per_gpu": rate / run.ranks * flops / 1e12,
        "exposed_fraction": _ratio(record["exposed_communication_s"], seconds),
        "tokens_per_joule": _ratio(rate / run.ranks, record["power_w_per_gpu"]),
    }
    yield from _differing(record, expected, f"an iteration of {seconds:.6g} s")
    peak = hardware.peak_tflops.get(run.precision)
    tflops, mfu = record["tflops_per_gpu"], record["mfu"]
    if peak and tflops and tflops > peak.value:
        yield f"{tflops:.4g} TFLOP/s a GPU are above the peak, {peak.value:g} dense {run.precision}"
    if mfu is not None and mfu > 1:
        yield f"an MFU of {mfu:.0%}"
    elif peak and tflops and mfu is not None:
        yield from _differing(record, {"mfu": tflops / peak.value}, f"{tflops:.4g} of {peak.value:g} TFLOP/s")


def _of_step(record: Mapping[str, Any], run: TrainingRun, model: Model, hardware: Hardware) -> Iterator[str]:
    """Nothing takes less time than the least work, or the bytes of memory and links, allow; and memory has an end."""
    times = {
        Regime.COMPUTE: ("iteration_s", "compute_s"),
        Regime.MEMORY: ("iteration_s",),
        Regime.COMMUNICATION: ("iteration_s", "communication_s"),
    }
    for bound in bounds_of_iteration(run, model, hardware).bounds:
        for name in times.get(bound.regime, ()):
            seconds = record[name]
            if seconds is not None and bound.seconds is not None and seconds < bound.seconds:
                yield (
                    f"{name} of {seconds:.4g} s is shorter than {bound.regime} allows, {bound.seconds:.4g} s: "
                    f"{bound.arithmetic}"
                )
    peak_gib, room = record["peak_memory_gib"], hardware.memory_gib
    if peak_gib is not None and room is not None and peak_gib > room.value:
        yield f"a peak of {peak_gib:.4g} GiB is above the {room.value:g} GiB of {hardware.part}"


def _of_times(record: Mapping[str, Any]) -> Iterator[str]:
    """Parts are no longer than wholes."""
    compute, communication, exposed = (
        record[name] for name in ("compute_s", "communication_s", "exposed_communication_s")
    )
    pairs = [("exposed_communication_s", "communication_s")]
    pairs += [(f"exposed_{axis}_s", f"communication_{axis}_s") for axis in _AXES]
    pairs += [(f"communication_{axis}_s", "communication_s") for axis in _AXES]
    pairs += [(f"exposed_{axis}_s", "exposed_communication_s") for axis in _AXES]
    for part, whole in pairs:
        if _above(record[part], record[whole]):
            yield f"{part} ({record[part]:.4g}) is above {whole} ({record[whole]:.4g})"
    window = record["profiled_iteration_s"] or record["iteration_s"]
    if compute is None or exposed is None or not window:
        return
    if compute + exposed > window * (1 + WINDOW):
        yield f"compute and exposed communication ({compute + exposed:.4g} s) are above the iteration ({window:.4g} s)"
    if communication is not None and communication > window * (1 + WINDOW):
        yield f"communication_s ({communication:.4g}) is above the iteration ({window:.4g} s)"


def _of_power(record: Mapping[str, Any], hardware: Hardware) -> Iterator[str]:
    """A GPU that works draws no less than one that does nothing, and in the mean no more than its limit."""
    watts, tokens, rate = (record[name] for name in ("power_w_per_gpu", "tokens_per_joule", "words_per_second_per_gpu"))
    said = {"power_w_per_gpu": watts, "tokens_per_joule": rate / tokens if rate and tokens else None}
    for name, value in said.items():
        if value is None:
            continue
        if hardware.idle_w and value < hardware.idle_w.value * (1 - METER):
            yield f"{name} says {value:.3g} W a GPU, an idle {hardware.part} draws {hardware.idle_w.value:g} W"
        if hardware.power_limit_w and value > hardware.power_limit_w.value * (1 + METER):
            yield f"{name} says {value:.4g} W a GPU, the limit of {hardware.part} is {hardware.power_limit_w.value:g} W"


def _of_call(record: Mapping[str, Any], run: CollectiveRun, hardware: Hardware) -> Iterator[str]:
    seconds, ranks = record["call_s"], ranks_of(run, hardware)
    if not seconds:
        yield "an ok record has no call_s"
        return
    bandwidth = run.message_bytes / seconds / 1e9
    expected = {
        "algorithm_bandwidth_gb_per_s": bandwidth,
        "bus_bandwidth_gb_per_s": bandwidth * bus_factor(run.op, ranks),
    }
    yield from _differing(record, expected, f"a call of {seconds:.6g} s")
    load = load_of(run.op, group_of_nodes(ranks, run.nodes), run.message_bytes)
    least_s = load.seconds(hardware)
    if least_s is not None and seconds < least_s:
        rank, node = max(load.rank_in, load.rank_out), max(load.node_in, load.node_out)
        yield (
            f"a call of {seconds:.4g} s is shorter than its bytes allow, {least_s:.4g} s: {rank / 1e9:.4g} GB a rank, "
            f"{node / 1e9:.4g} GB a node"
        )


def _differing(record: Mapping[str, Any], expected: Mapping[str, float | None], why: str) -> Iterator[str]:
    for name, value in expected.items():
        said = record[name]
        if said is not None and value is not None and abs(said - value) > ROUNDING * max(abs(said), abs(value)):
            yield f"{name} is {said:.6g}, {value:.6g} follows from {why}"


def _above(part: float | None, whole: float | None) -> bool:
    return part is not None and whole is not None and part > whole * (1 + ROUNDING)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
