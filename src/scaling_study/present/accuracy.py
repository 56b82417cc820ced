"""How far the performance model is off, from the table of `calibrate --output`."""

from __future__ import annotations

import polars as pl

from scaling_study.spec import Outcome

FITTED, UNSEEN, MEASURED = "fitted_step_time_s", "unseen_step_time_s", "measured_step_time_s"
#: Short names of sources.
LABELS = {
    "calculon_korthikanti_tab5": "Korthikanti et al.",
    "hagemann2023_layouts": "Hagemann et al.",
    "mosaic_llmfoundry": "LLM Foundry",
    "torchtitan_asynctp_202506": "torchtitan, async TP",
    "torchtitan_docs_2024": "torchtitan, docs 2024",
    "torchtitan_h100_202412": "torchtitan, Dec 2024",
    "vtrain_ground_truth_multi": "vTrain, many nodes",
    "vtrain_ground_truth_single": "vTrain, one node",
}


def errors_by_source(table: pl.DataFrame) -> pl.DataFrame:
    """Mean absolute and median relative error of the time of an iteration, percent, a row a source.

    Returns:
        `source`, `rows`, `fitted_mape`, `unseen_mape`, `unseen_bias`.
    """
    timed = table.drop_nulls([MEASURED, FITTED, UNSEEN])
    fitted, unseen = (100 * (pl.col(name) / pl.col(MEASURED) - 1) for name in (FITTED, UNSEEN))
    return (
        timed.group_by("source")
        .agg(
            rows=pl.len(),
            fitted_mape=fitted.abs().mean(),
            unseen_mape=unseen.abs().mean(),
            unseen_bias=unseen.median(),
        )
        .sort("source")
    )


def choice_loss(table: pl.DataFrame, source: str) -> float | None:
    """Throughput lost on average by taking the predicted best layout of a group in place of the measured best."""
    timed = table.filter(source=source).drop_nulls([MEASURED, UNSEEN])
    groups = timed.group_by("group").agg(
        rows=pl.len(),
        best=pl.col(MEASURED).min(),
        chosen=pl.col(MEASURED).sort_by(UNSEEN).first(),
    )
    lost = groups.filter(pl.col("rows") > 1).select((1 - pl.col("best") / pl.col("chosen")).mean()).item()
    return None if lost is None else float(lost)


def memory_accuracy(table: pl.DataFrame, source: str) -> float | None:
    """Balanced accuracy of `ok` against `out_of_memory`; None where a source has one of them only."""
    rows = table.filter(source=source)
    right = rows.with_columns(right=pl.col("outcome") == pl.col("predicted_outcome"))
    shares = (
        right.group_by("outcome")
        .agg(pl.col("right").mean())
        .filter(pl.col("outcome").is_in([Outcome.OK.value, Outcome.OUT_OF_MEMORY.value]))
    )
    return float(shares["right"].mean()) if shares.height == 2 else None  # type: ignore[arg-type]
