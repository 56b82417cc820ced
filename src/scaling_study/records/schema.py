"""Columns of a record. Units stand in the names; a null metric has its reason in `null_reasons`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import polars as pl

_RUN: dict[str, type[pl.DataType]] = {
    "run_id": pl.String,
    "provenance": pl.String,
    "kind": pl.String,
    "model": pl.String,
    "hardware": pl.String,
    "nodes": pl.Int64,
    "gpus": pl.Int64,
    "dp": pl.Int64,
    "tp": pl.Int64,
    "pp": pl.Int64,
    "virtual_stages": pl.Int64,
    "micro_batch": pl.Int64,
    "global_batch": pl.Int64,
    "sequence_length": pl.Int64,
    "precision": pl.String,
    "reduction_dtype": pl.String,
    "attention": pl.String,
    "reshard_after_forward": pl.Boolean,
    "activation_checkpointing": pl.String,
    "schedule": pl.String,
    "pacing": pl.String,
    "repeat": pl.Int64,
    "iterations": pl.Int64,
    "discard": pl.Int64,
    "profiled_iterations": pl.Int64,
    "data": pl.String,
    "revision": pl.Int64,
    "op": pl.String,
    "message_bytes": pl.Int64,
    "dtype": pl.String,
    "warmup": pl.Int64,
    "repeats": pl.Int64,
}

#: Columns that say which run a record is of.
RUN_COLUMNS = tuple(_RUN)

#: What tells one layout from another: every column of a run but its identity and the micro-batch.
LAYOUT = tuple(name for name in _RUN if name not in ("run_id", "provenance", "micro_batch"))

#: Metrics of a training run. Times are of one iteration; `_p05`, `_p50`, `_p95`, `_cv` are over the iterations kept.
#: Compute and communication are means over ranks of unions of spans in the profiled window; `exposed_fraction` is
#: `exposed_communication_s / iteration_s`; `profiler_overhead` is the profiled iteration time over the timed one,
#: less one. `unknown`: communication whose axis the trace does not tell. Memory is the peak of the fullest rank.
#: A prediction is of one iteration: it has no percentiles but an interval, `_low` to `_high`, that holds four of five
#: measurements of sources that the model was not fitted on.
TRAINING_METRICS: dict[str, type[pl.DataType]] = {
    "iteration_s": pl.Float64,
    "iteration_s_p05": pl.Float64,
    "iteration_s_p50": pl.Float64,
    "iteration_s_p95": pl.Float64,
    "iteration_s_cv": pl.Float64,
    "iteration_s_low": pl.Float64,
    "iteration_s_high": pl.Float64,
    "words_per_second": pl.Float64,
    "words_per_second_per_gpu": pl.Float64,
    "tflops_per_gpu": pl.Float64,
    "mfu": pl.Float64,
    "compute_s": pl.Float64,
    "communication_s": pl.Float64,
    "exposed_communication_s": pl.Float64,
    "exposed_fraction": pl.Float64,
    "communication_dp_s": pl.Float64,
    "communication_tp_s": pl.Float64,
    "communication_pp_s": pl.Float64,
    "exposed_dp_s": pl.Float64,
    "exposed_tp_s": pl.Float64,
    "exposed_pp_s": pl.Float64,
    "communication_unknown_s": pl.Float64,
    "exposed_unknown_s": pl.Float64,
    "power_w_per_gpu": pl.Float64,
    "tokens_per_joule": pl.Float64,
    "peak_memory_gib": pl.Float64,
    "profiled_iteration_s": pl.Float64,
    "profiler_overhead": pl.Float64,
    "final_loss": pl.Float64,
}

#: Metrics of a collective run. A call's time is its mean over ranks, as nccl-tests reports it by default; `_p05` to
#: `_cv` are over the timed calls. Algorithm bandwidth is message bytes over the mean time, 1e9 bytes/s; bus bandwidth
#: is that times `roofline.bus_factor`. `_low` to `_high`: the interval of a prediction.
COLLECTIVE_METRICS: dict[str, type[pl.DataType]] = {
    "call_s": pl.Float64,
    "call_s_p05": pl.Float64,
    "call_s_p50": pl.Float64,
    "call_s_p95": pl.Float64,
    "call_s_cv": pl.Float64,
    "call_s_low": pl.Float64,
    "call_s_high": pl.Float64,
    "algorithm_bandwidth_gb_per_s": pl.Float64,
    "bus_bandwidth_gb_per_s": pl.Float64,
}

_PROVENANCE: dict[str, type[pl.DataType]] = {
    "platform": pl.String,
    "attempt": pl.Int64,
    "started_at": pl.String,
    "finished_at": pl.String,
    "hosts": pl.String,
    "device": pl.String,
    "host_cores": pl.Int64,
    "affinity_cores": pl.Int64,
    "threads_per_rank": pl.Int64,
    "oversubscribed": pl.Boolean,
    "backend": pl.String,
    "attention_operator": pl.String,
    "data_source": pl.String,
    "data_sha256": pl.String,
    "torch_version": pl.String,
    "python_version": pl.String,
    "code_version": pl.String,
    "extrapolated": pl.Boolean,
}

#: One row a run; columns of the other kind of run are null. `outcome` is an `Outcome`, `reason` says why it is not
#: `ok`; `null_reasons` is a JSON object from the name of a null metric to the reason why it is null. `extrapolated`:
#: a prediction for a part of which no public source has measured training.
SCHEMA: dict[str, type[pl.DataType]] = {
    **_RUN,
    "outcome": pl.String,
    "reason": pl.String,
    **TRAINING_METRICS,
    **COLLECTIVE_METRICS,
    "null_reasons": pl.String,
    **_PROVENANCE,
}


def reason_for(record: Mapping[str, Any], metric: str) -> str | None:
    """Why a metric of a record is null; None where it is not."""
    if record[metric] is not None:
        return None
    reasons = msgspec.json.decode(record["null_reasons"] or "{}", type=dict[str, str])
    return reasons.get(metric) or record["reason"] or "not recorded"
