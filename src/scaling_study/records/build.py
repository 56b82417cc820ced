"""A run's result into its record: aggregation over iterations and ranks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import polars as pl

from scaling_study.records.schema import METRICS, SCHEMA
from scaling_study.roofline import model_flops_per_token, utilisation
from scaling_study.spec import Axis, Hardware, Model, Outcome, Provenance, RankReport, RunResult, TrainingRun, run_id
from scaling_study.timeline import UNKNOWN_AXIS


def record_of(
    result: RunResult, model: Model, hardware: Hardware, *, platform: str, provenance: Provenance
) -> dict[str, Any]:
    """The record of a training run: every column of `SCHEMA`."""
    if not isinstance(result.run, TrainingRun):
        raise TypeError(f"no record is defined for {type(result.run).__name__}")
    record: dict[str, Any] = dict.fromkeys(SCHEMA)
    record |= _run_columns(result.run)
    record |= {"outcome": result.outcome.value, "reason": result.reason, "platform": platform}
    record |= {"provenance": provenance.value, "attempt": result.attempt}
    record |= {"started_at": result.started_at, "finished_at": result.finished_at}
    if result.outcome is Outcome.OK:
        record |= _metrics(result, result.run, model, hardware)
        record |= _provenance(result)
    return record


def _run_columns(run: TrainingRun) -> dict[str, Any]:
    fields = msgspec.to_builtins(run)
    protocol = fields.pop("protocol")
    known = {name: value for name, value in {**fields, **protocol}.items() if name in SCHEMA}
    return {**known, "run_id": run_id(run), "gpus": run.ranks}


def _metrics(result: RunResult, run: TrainingRun, model: Model, hardware: Hardware) -> dict[str, Any]:
    metrics: dict[str, Any] = _times(result.ranks, run) | _window(result.ranks, run)
    metrics["exposed_fraction"] = metrics["exposed_communication_s"] / metrics["iteration_s"]
    metrics["profiler_overhead"] = metrics["profiled_iteration_s"] / metrics["iteration_s"] - 1
    rate = run.tokens_per_iteration / metrics["iteration_s"]
    metrics["words_per_second"] = rate
    metrics["words_per_second_per_gpu"] = rate / run.ranks
    metrics["tflops_per_gpu"] = rate / run.ranks * model_flops_per_token(model, run.sequence_length) / 1e12
    reasons = dict(result.environment.unavailable) if result.environment else {}
    metrics["mfu"], mfu_reason = utilisation(metrics["tflops_per_gpu"], run, hardware)
    if mfu_reason:
        reasons["mfu"] = mfu_reason
    peaks = [rank.peak_memory_gib for rank in result.ranks if rank.peak_memory_gib is not None]
    metrics["peak_memory_gib"] = max(peaks) if peaks else None
    losses = [rank.losses[-1] for rank in result.ranks if rank.losses]
    metrics["final_loss"] = statistics.fmean(losses) if losses else None
    missing = [name for name in METRICS if metrics.get(name) is None]
    kept = {name: reasons.get(name, "not recorded") for name in missing}
    return {**metrics, "null_reasons": msgspec.json.encode(kept, order="sorted").decode()}


def _times(ranks: list[RankReport], run: TrainingRun) -> dict[str, float]:
    """Iteration times: an iteration lasts as long as on its slowest rank; the first ones are discarded."""
    slowest_s = _slowest_s(rank.iteration_ns for rank in ranks)
    kept = pl.Series(slowest_s[run.protocol.discard :])
    mean = kept.mean()
    spread = kept.std() if len(kept) > 1 else 0.0
    assert isinstance(mean, float)
    assert isinstance(spread, float)
    quantiles = {f"iteration_s_p{q:02d}": kept.quantile(q / 100, "linear") for q in (5, 50, 95)}
    return {"iteration_s": mean, "iteration_s_cv": spread / mean, **{k: float(v or 0) for k, v in quantiles.items()}}


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
    environment, ranks = result.environment, result.ranks
    assert environment is not None
    return {
        "hosts": ",".join(sorted({rank.host for rank in ranks})),
        "device": ",".join(sorted({rank.device for rank in ranks})),
        "host_cores": environment.host_cores,
        "affinity_cores": min(rank.cores for rank in ranks),
        "threads_per_rank": max(rank.threads for rank in ranks),
        "oversubscribed": _oversubscribed(ranks, environment.host_cores),
        "backend": environment.backend,
        "attention_operator": environment.attention_operator,
        "data_source": environment.data_source,
        "data_sha256": environment.data_sha256,
        "torch_version": environment.torch,
        "python_version": environment.python,
        "code_version": environment.code_version,
    }


def _oversubscribed(ranks: list[RankReport], host_cores: int) -> bool:
    """Whether some host has more ranks than cores."""
    per_host: dict[str, int] = {}
    for rank in ranks:
        per_host[rank.host] = per_host.get(rank.host, 0) + 1
    return max(per_host.values()) > host_cores
