"""A run's result, or its prediction, into its record.

A result is aggregated over iterations or calls, and over ranks; what follows from an iteration's or a call's time
(throughput, utilisation, bandwidth) is computed in one place for both. Every record is audited before it leaves.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import polars as pl

from scaling_study.records.audit import audited
from scaling_study.records.schema import COLLECTIVE_METRICS, SCHEMA, TRAINING_METRICS
from scaling_study.roofline import bus_factor, model_flops_per_token, utilisation
from scaling_study.spec import (
    Axis,
    CollectiveReport,
    CollectiveRun,
    Hardware,
    Model,
    Outcome,
    Provenance,
    RankReport,
    Run,
    RunResult,
    TrainingRun,
    ranks_of,
    run_id,
)
from scaling_study.timeline import UNKNOWN_AXIS

#: Why a kind of provenance lacks metrics that the other has.
_NO_INTERVAL = "measured: how iterations vary is in the percentiles"
_NOT_RUN = "predicted: one iteration, which is not run"


def record_of(
    result: RunResult, model: Model | None, hardware: Hardware, *, platform: str, provenance: Provenance
) -> dict[str, Any]:
    """The record of a run: every column of `SCHEMA`; `invalid` where the audit finds that it cannot be true.

    Args:
        result: how the run ended.
        model: of a training run.
        hardware: that the run names.
        platform: that measured or predicted it.
        provenance: which of the two.
    """
    record: dict[str, Any] = dict.fromkeys(SCHEMA)
    record |= _run_columns(result.run, hardware)
    record |= {"outcome": result.outcome.value, "reason": result.reason, "platform": platform}
    record |= {"provenance": provenance.value, "attempt": result.attempt}
    record |= {"started_at": result.started_at, "finished_at": result.finished_at}
    if result.outcome is not Outcome.OK:
        return record
    if isinstance(result.run, TrainingRun):
        assert model is not None
        record |= _training_metrics(result, result.run, model, hardware)
    else:
        record |= _collective_metrics(result.calls, result.run, hardware)
    return audited(record | _provenance(result), result.run, model, hardware)


def predicted_record(
    run: Run,
    outcome: Outcome,
    reason: str | None,
    metrics: Mapping[str, float],
    model: Model | None,
    hardware: Hardware,
    *,
    extrapolated: bool,
    platform: str,
) -> dict[str, Any]:
    """The record of a prediction: every column of `SCHEMA`; `invalid` where the audit finds that it cannot be true.

    Args:
        metrics: columns that the model gives, `iteration_s` or `call_s` among them where the outcome is ok; what
            follows from these is added.
        model: of a training run.
        extrapolated: the part has no measured ground.
    """
    record: dict[str, Any] = dict.fromkeys(SCHEMA)
    record |= _run_columns(run, hardware)
    record |= {"outcome": outcome.value, "reason": reason, "platform": platform, "extrapolated": extrapolated}
    record |= {"provenance": Provenance.PREDICTED.value, "device": hardware.part}
    if outcome is not Outcome.OK:
        return record | {name: metrics[name] for name in ("peak_memory_gib",) if name in metrics}
    if isinstance(run, CollectiveRun):
        found = {**metrics, **_bandwidth(metrics["call_s"], run, hardware)}
        return audited(record | _completed(found, COLLECTIVE_METRICS, {}), run, model, hardware)
    assert model is not None
    derived, reasons = _throughput(metrics["iteration_s"], run, model, hardware)
    share = metrics["exposed_communication_s"] / metrics["iteration_s"]
    rate = run.tokens_per_iteration / metrics["iteration_s"] / run.ranks
    energy = {"exposed_fraction": share, "tokens_per_joule": rate / metrics["power_w_per_gpu"]}
    completed = _completed({**metrics, **derived, **energy}, TRAINING_METRICS, reasons)
    return audited(record | completed, run, model, hardware)


def _completed(
    metrics: Mapping[str, float | None], columns: Iterable[str], reasons: Mapping[str, str], otherwise: str = _NOT_RUN
) -> dict[str, Any]:
    """The metrics, and for each that is missing the reason."""
    missing = [name for name in columns if metrics.get(name) is None]
    kept = {name: reasons.get(name, otherwise) for name in missing}
    return {**metrics, "null_reasons": msgspec.json.encode(kept, order="sorted").decode()}


def _throughput(
    iteration_s: float, run: TrainingRun, model: Model, hardware: Hardware
) -> tuple[dict[str, float | None], dict[str, str]]:
    """What follows from the time of an iteration, and why it does not where it does not."""
    rate = run.tokens_per_iteration / iteration_s
    tflops = rate / run.ranks * model_flops_per_token(model, run.sequence_length) / 1e12
    mfu, reason = utilisation(tflops, run, hardware)
    metrics = {
        "words_per_second": rate,
        "words_per_second_per_gpu": rate / run.ranks,
        "tflops_per_gpu": tflops,
        "mfu": mfu,
    }
    return metrics, {"mfu": reason} if reason else {}


def _bandwidth(call_s: float, run: CollectiveRun, hardware: Hardware) -> dict[str, float]:
    """What follows from the time of a call."""
    bandwidth = run.message_bytes / call_s / 1e9
    return {
        "algorithm_bandwidth_gb_per_s": bandwidth,
        "bus_bandwidth_gb_per_s": bandwidth * bus_factor(run.op, ranks_of(run, hardware)),
    }


def _run_columns(run: Run, hardware: Hardware) -> dict[str, Any]:
    fields = msgspec.to_builtins(run)
    protocol = fields.pop("protocol")
    known = {name: value for name, value in {**fields, **protocol}.items() if name in SCHEMA}
    return {**known, "run_id": run_id(run), "gpus": ranks_of(run, hardware)}


def _training_metrics(result: RunResult, run: TrainingRun, model: Model, hardware: Hardware) -> dict[str, Any]:
    metrics: dict[str, Any] = _iterations(result.ranks, run) | _window(result.ranks, run)
    metrics["exposed_fraction"] = metrics["exposed_communication_s"] / metrics["iteration_s"]
    metrics["profiler_overhead"] = metrics["profiled_iteration_s"] / metrics["iteration_s"] - 1
    derived, reasons = _throughput(metrics["iteration_s"], run, model, hardware)
    metrics |= derived
    unavailable = result.environment.unavailable if result.environment else {}
    metrics |= _power(result.ranks, run, metrics["words_per_second_per_gpu"]) | dict.fromkeys(unavailable)
    reasons |= unavailable
    reasons |= dict.fromkeys(("iteration_s_low", "iteration_s_high"), _NO_INTERVAL)
    peaks = [rank.peak_memory_gib for rank in result.ranks if rank.peak_memory_gib is not None]
    metrics["peak_memory_gib"] = max(peaks) if peaks else None
    losses = [rank.losses[-1] for rank in result.ranks if rank.losses]
    metrics["final_loss"] = statistics.fmean(losses) if losses else None
    return _completed(metrics, TRAINING_METRICS, reasons, "not recorded")


def _power(ranks: list[RankReport], run: TrainingRun, rate_per_gpu: float) -> dict[str, float]:
    """Mean power of a GPU and tokens per joule, where every rank's GPU told its power."""
    reports = [rank.gpu.power for rank in ranks if rank.gpu is not None and rank.gpu.power is not None]
    watts = [report.power_w for report in reports if report.power_w is not None]
    if len(watts) < run.ranks:
        return {}
    mean_w = statistics.fmean(watts)
    return {"power_w_per_gpu": mean_w, "tokens_per_joule": rate_per_gpu / mean_w}


def _collective_metrics(calls: list[CollectiveReport], run: CollectiveRun, hardware: Hardware) -> dict[str, Any]:
    times_s = [statistics.fmean(times) / 1e9 for times in zip(*(rank.call_ns for rank in calls), strict=True)]
    metrics = _spread("call_s", times_s)
    metrics |= _bandwidth(metrics["call_s"], run, hardware)
    return _completed(metrics, COLLECTIVE_METRICS, {}, _NO_INTERVAL)


def _iterations(ranks: list[RankReport], run: TrainingRun) -> dict[str, float]:
    """Iteration times: an iteration lasts as long as on its slowest rank; the first ones are discarded."""
    return _spread("iteration_s", _slowest_s(rank.iteration_ns for rank in ranks)[run.protocol.discard :])


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Mean, percentiles and coefficient of variation of a sample, named after its metric."""
    kept = pl.Series(values)
    mean = kept.mean()
    deviation = kept.std() if len(kept) > 1 else 0.0
    assert isinstance(mean, float)
    assert isinstance(deviation, float)
    quantiles = {f"{name}_p{q:02d}": float(kept.quantile(q / 100, "linear") or 0) for q in (5, 50, 95)}
    return {name: mean, f"{name}_cv": deviation / mean, **quantiles}


def _slowest_s(iterations_ns: Iterable[list[int]]) -> list[float]:
    """The duration of each iteration on the rank where it lasts longest."""
    return [max(times) / 1e9 for times in zip(*iterations_ns, strict=True)]


def _window(ranks: list[RankReport], run: TrainingRun) -> dict[str, float]:
    """Times of the profiled window, per iteration, as means over ranks."""
    count = run.protocol.profiled_iterations

    def mean_s(value: Callable[[RankReport], int]) -> float:
        return statistics.fmean(value(rank) for rank in ranks) / count / 1e9

    times = {
        "compute_s": mean_s(lambda rank: rank.compute_ns),
        "communication_s": mean_s(lambda rank: rank.communication_ns),
        "exposed_communication_s": mean_s(lambda rank: rank.exposed_communication_ns),
        "profiled_iteration_s": statistics.fmean(_slowest_s(rank.profiled_ns for rank in ranks)),
    }
    for axis in (*Axis, UNKNOWN_AXIS):
        times[f"communication_{axis}_s"] = mean_s(lambda rank, a=axis: rank.communication_by_axis_ns.get(a, 0))  # type: ignore[misc]
        times[f"exposed_{axis}_s"] = mean_s(lambda rank, a=axis: rank.exposed_by_axis_ns.get(a, 0))  # type: ignore[misc]
    return times


def _provenance(result: RunResult) -> dict[str, Any]:
    environment = result.environment
    ranks: Sequence[RankReport | CollectiveReport] = result.ranks or result.calls
    assert environment is not None
    return {
        "hosts": ",".join(sorted({rank.host for rank in ranks})),
        "device": ",".join(sorted({rank.device for rank in ranks})),
        "host_cores": environment.host_cores,
        "affinity_cores": min(rank.cores for rank in ranks),
        "threads_per_rank": max(rank.threads for rank in ranks),
        "oversubscribed": _oversubscribed([rank.host for rank in ranks], environment.host_cores),
        "backend": environment.backend,
        "attention_operator": environment.attention_operator,
        "data_source": environment.data_source,
        "data_sha256": environment.data_sha256,
        "torch_version": environment.torch,
        "python_version": environment.python,
        "code_version": environment.code_version,
    }


def _oversubscribed(hosts: list[str], host_cores: int) -> bool:
    """Whether some host has more ranks than cores."""
    return max(hosts.count(host) for host in hosts) > host_cores
