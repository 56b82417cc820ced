from __future__ import annotations

import polars as pl
import pytest

from scaling_study.present.figures.accuracy import draw
from tests.unit.present import synthetic as made
from tests.unit.present.charts import drawn, texts
from tests.unit.samples import ROOT

TABLE = pl.read_parquet(ROOT / "results/cached/paper/model/validation.parquet")


def test_every_timed_row_is_a_mark() -> None:
    marks = drawn(draw(TABLE, made.PAPER), "point", y="unseen_step_time_s")
    assert sum(len(layer.rows) for layer in marks) == TABLE["measured_step_time_s"].count()
    assert len({(layer.mark["shape"], layer.mark["stroke"]) for layer in marks}) == TABLE["source"].n_unique()


def test_the_mean_error_is_said() -> None:
    timed = TABLE.drop_nulls("measured_step_time_s")
    error = (100 * (pl.col("unseen_step_time_s") / pl.col("measured_step_time_s") - 1)).abs()
    mean = timed.group_by("source").agg(error.mean().alias("error"))["error"].mean()
    assert f"mean {mean:.1f}%" in texts(draw(TABLE, made.PAPER))


def test_predicted_equals_measured_on_the_grey_line() -> None:
    (line,) = drawn(draw(TABLE, made.PAPER), "line")
    assert all(x == pytest.approx(y) for x, y in line.pairs())
