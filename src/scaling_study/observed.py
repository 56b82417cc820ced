"""What the ranks of a sweep observed of their synchronisations, from the run store into one table that figures read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from scaling_study.errors import UserError
from scaling_study.records import write_parquet
from scaling_study.spec import Config, RunResult, TrainingRun, expand, run_id
from scaling_study.spec.synchronisation import Cause, Synchronisation
from scaling_study.submit import RunStore

#: `kind` is `axis`, a row a run and axis, or `sample`, a row a rank and synchronisation of one iteration of a run.
SCHEMA: dict[str, type[pl.DataType]] = {
    "kind": pl.String,
    "run_id": pl.String,
    "provenance": pl.String,
    "nodes": pl.Int64,
    "gpus": pl.Int64,
    "pacing": pl.String,
    "repeat": pl.Int64,
    "axis": pl.String,
    "synchronisations": pl.Int64,
    "skew_s": pl.Float64,
    "skew_s_p95": pl.Float64,
    "waited_s": pl.Float64,
    **{f"lost_{cause}_s": pl.Float64 for cause in Cause},
    "overhead": pl.Float64,
    "clock_error_s": pl.Float64,
    "held_s": pl.Float64,
    "held_s_largest": pl.Float64,
    "trials": pl.Int64,
    "trials_kept": pl.Int64,
    "rank": pl.Int64,
    "place": pl.Int64,
    "arrived_s": pl.Float64,
    "entered_s": pl.Float64,
    "done_s": pl.Float64,
    "device": pl.String,
    "host_cores": pl.Int64,
}


def write_observed(
    config: Config, study_name: str, sweep_name: str, platform_name: str, output: Path, results: Path
) -> None:
    """Write the table of a sweep that is measured.

    Args:
        results: the folder of the run store.

    Raises:
        UserError: a run of the sweep has no result, none was under observation, or the output cannot be written.
    """
    store = RunStore(results / "store" / platform_name)
    runs = expand(config.study(study_name), sweep_name, config.catalogue)
    rows = [row for run in runs for row in _rows(_result(store, run))]
    if not rows:
        raise UserError(
            "no run of the sweep was under observation",
            where=f"study {study_name}, sweep {sweep_name}",
            remedy="Set observe_synchronisation in its protocol, or pacing.",
        )
    write_parquet(output, pl.DataFrame(rows, schema=SCHEMA).sort("kind", "run_id", "axis", "rank", "place"))


def _result(store: RunStore, run: Any) -> RunResult:
    found = store.result(run)
    if found is None:
        raise UserError("the run has no result", where=run_id(run), remedy="Measure the sweep first.")
    return found


def _rows(result: RunResult) -> Iterable[dict[str, Any]]:
    run, seen = result.run, result.synchronisation
    if seen is None or not isinstance(run, TrainingRun):
        return
    environment = result.environment
    common = {
        "run_id": run_id(run),
        "provenance": "measured",
        "nodes": run.nodes,
        "gpus": run.ranks,
        "pacing": run.pacing.value,
        "repeat": run.repeat,
        "device": result.ranks[0].device,
        "host_cores": environment.host_cores if environment else None,
    }
    whole = {
        "overhead": seen.overhead,
        "clock_error_s": seen.clock_error_s,
        "held_s": seen.held_s,
        "held_s_largest": seen.held_s_largest,
        "trials": len(seen.verdicts),
        "trials_kept": sum(one.kept for one in seen.verdicts),
    }
    for axis in seen.axes:
        yield {
            **common, **whole, "kind": "axis", "axis": axis.axis, "synchronisations": axis.synchronisations,
            "skew_s": axis.skew_s, "skew_s_p95": axis.skew_s_p95, "waited_s": axis.waited_s,
            **{f"lost_{cause}_s": axis.lost_s.get(cause, 0.0) for cause in Cause},
        }  # fmt: skip
    if run.repeat == 0:
        yield from _sample(seen, common)


def _sample(seen: Synchronisation, common: dict[str, Any]) -> Iterable[dict[str, Any]]:
    sample = seen.sample
    if sample is None:
        return
    for index, rank in enumerate(sample.ranks):
        times = zip(sample.arrived_s[index], sample.entered_s[index], sample.done_s[index], strict=True)
        for place, (arrived_s, entered_s, done_s) in enumerate(times):
            yield {
                **common, "kind": "sample", "axis": sample.axis, "rank": rank, "place": place,
                "arrived_s": arrived_s, "entered_s": entered_s, "done_s": done_s,
            }  # fmt: skip
