"""Validation: predict every row of a table of foreign runs, and say how well per source."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from scaling_study.predict.library import Library
from scaling_study.predict.predictions import Prediction, predict
from scaling_study.predict.rows import read_rows, setup_of
from scaling_study.predict.scores import Score, balanced_accuracy, score
from scaling_study.predict.setup import Setup
from scaling_study.spec import Outcome


def validate(path: Path, library: Library) -> pl.DataFrame:
    """Every row of the table, with what is predicted or the reason why nothing is."""
    table = read_rows(path)
    setups = [setup_of(row, library) for row in table.iter_rows(named=True)]
    known = [setup for setup in setups if isinstance(setup, Setup)]
    predictions = iter(predict(known, library))
    rows = [_columns(next(predictions)) if isinstance(setup, Setup) else {"reason": setup} for setup in setups]
    return table.with_columns(_measured(table)).hstack(pl.DataFrame(rows, schema=_SCHEMA))


_SCHEMA: dict[str, type[pl.DataType]] = {
    "predicted_step_time_s": pl.Float64,
    "predicted_step_time_low_s": pl.Float64,
    "predicted_step_time_high_s": pl.Float64,
    "predicted_mfu": pl.Float64,
    "predicted_memory_gib": pl.Float64,
    "predicted_outcome": pl.String,
    "extrapolated": pl.Boolean,
    "reason": pl.String,
}


def _columns(prediction: Prediction) -> dict[str, object]:
    return {
        "predicted_step_time_s": prediction.step_time_s,
        "predicted_step_time_low_s": prediction.low_s,
        "predicted_step_time_high_s": prediction.high_s,
        "predicted_mfu": prediction.mfu,
        "predicted_memory_gib": prediction.memory_gib,
        "predicted_outcome": prediction.outcome.value,
        "extrapolated": prediction.extrapolated,
        "reason": None,
    }


def _measured(table: pl.DataFrame) -> pl.Expr:
    """The measured time as a number; null where the table has none."""
    known = pl.col("step_time_s") if "step_time_s" in table.columns else pl.lit(None, pl.String)
    return known.cast(pl.Float64, strict=False).alias("measured_step_time_s")


class SourceReport(Score, frozen=True, kw_only=True):
    """Errors of one source; `reasons`: its rows without a prediction; `memory`: balanced accuracy of the outcome."""

    source: str
    reasons: int
    memory: float | None


def reports(validated: pl.DataFrame) -> list[SourceReport]:
    """Errors per source, in order of name."""
    named = validated.with_columns(
        (pl.col("source_id") if "source_id" in validated.columns else pl.lit(None, pl.String))
        .fill_null("(no source)")
        .alias("source_id")
    )
    return [
        _report(str(key[0]), part) for key, part in sorted(named.group_by("source_id"), key=lambda item: str(item[0]))
    ]


def _report(source: str, part: pl.DataFrame) -> SourceReport:
    both = part.filter(pl.col("predicted_step_time_s") > 0, pl.col("measured_step_time_s") > 0)
    errors = (
        score(both["predicted_step_time_s"].to_numpy(), both["measured_step_time_s"].to_numpy())
        if both.height
        else None
    )
    return SourceReport(
        source=source,
        reasons=part["reason"].count(),
        memory=_memory(part),
        rows=errors.rows if errors else 0,
        mape=errors.mape if errors else float("nan"),
        median=errors.median if errors else float("nan"),
        bias=errors.bias if errors else float("nan"),
        rank=errors.rank if errors else None,
    )


def _memory(part: pl.DataFrame) -> float | None:
    if "outcome" not in part.columns:
        return None
    known = part.filter(pl.col("predicted_outcome").is_not_null(), pl.col("outcome").is_not_null())
    if known.is_empty():
        return None
    return balanced_accuracy(
        (known["predicted_outcome"] == Outcome.OUT_OF_MEMORY.value).to_numpy(),
        (known["outcome"] == Outcome.OUT_OF_MEMORY.value).to_numpy(),
    )
