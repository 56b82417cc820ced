from __future__ import annotations

import polars as pl
import pytest

from scaling_study.present.figures.sensitivity import ROWS, draw
from scaling_study.present.numbers.sensitivity import of_sensitivity
from tests.unit.present import synthetic as made
from tests.unit.present.charts import drawn, points, texts
from tests.unit.samples import ROOT

TABLE = pl.read_parquet(ROOT / "results/cached/paper/model/sensitivity.parquet")
FALL = TABLE.filter(sweep="data_parallel")


def test_bars_span_the_change_of_the_constants_that_move_it_most() -> None:
    (bars,) = drawn(draw(TABLE, made.PAPER), "rule", y="row")
    expected = FALL.select("change_at_low", "change_at_high").rows()[:ROWS]
    assert [(row["change_at_low"], row["change_at_high"]) for row in bars.rows] == [
        pytest.approx(pair, rel=1e-5) for pair in expected
    ]


def test_predicted_and_reported_stand_in_every_row() -> None:
    predicted, reported = points(draw(TABLE, made.PAPER), "row", "change")
    assert {row["change"] for row in reported.rows} == {-0.3722}
    assert [row["change"] for row in predicted.rows] == [pytest.approx(FALL["predicted_change"][0], rel=1e-5)] * ROWS
    assert len(reported.rows) == ROWS


def test_what_would_be_needed_is_said() -> None:
    said = texts(draw(TABLE, made.PAPER))
    assert "128 to 2,048 GPUs" in said
    needed = FALL.row(0, named=True)
    assert f"{needed['needed']:.3g} / {needed['value']:.3g}" in said
    assert "none / " in said


def test_numbers_of_the_text() -> None:
    found = of_sensitivity(TABLE)
    assert found["sensitivity.data_parallel.most"].text == FALL["meaning"][0]
    assert found["sensitivity.data_parallel.interval"].text == "none"
    assert "in place of" in found["sensitivity.data_parallel.needed"].text
    inside = TABLE.with_columns(needed=pl.col("value"))
    assert of_sensitivity(inside)["sensitivity.data_parallel.interval"].text != "none"
