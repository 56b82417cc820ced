from __future__ import annotations

import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.present.figures.hst_14 import draw
from scaling_study.present.theme import TIMES_SIGN
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, drawn, points, texts


def at(precision: str) -> pl.DataFrame:
    return made.mini_generations().filter(pl.col("precision") == precision)


def test_both_panels_have_a_row_a_layout() -> None:
    chart = draw(at("fp16"), made.MINI)
    (rate,) = points(chart, "row", "words_per_second")
    (exposed,) = points(chart, "row", "exposed_communication_s")
    seconds = {0: 1.35, 1: 1.05, 2: 2.25}
    assert {y: x for x, y in rate.pairs()} == pytest.approx({row: 1024 / s for row, s in seconds.items()}, rel=1e-5)
    assert {y: x for x, y in exposed.pairs()} == pytest.approx({row: 0.3 * s for row, s in seconds.items()}, rel=1e-5)
    names = ",".join(f"'{tp} {TIMES_SIGN} {pp}'" for tp, pp in ((1, 1), (1, 2), (2, 1)))
    assert rate.encoding["y"]["axis"]["labelExpr"] == f"[{names}][datum.value]"


def test_the_baseline_is_marked_in_both_panels() -> None:
    chart = draw(at("fp16"), made.MINI)
    for metric, value in (("words_per_second", 1024 / 1.35), ("exposed_communication_s", 0.405)):
        assert drawn(chart, "rule", x=metric)[0].rows == [{metric: pytest.approx(value, rel=1e-5)}]


def test_the_full_grid_keeps_the_layout_that_does_not_fit() -> None:
    chart = draw(made.paper_model_parallel(hardware=("v100",)), made.PAPER)
    assert [len(layer.rows) for layer in points(chart, "row", "words_per_second")] == [14, 14]
    assert [layer.rows[0]["row"] for layer in crosses(chart)] == [10, 10]
    assert "of 45 runs 4 out of memory" in texts(chart)


@pytest.mark.parametrize("column", ["hardware", "precision"])
def test_generations_are_not_joined(column: str) -> None:
    frames = {
        "hardware": made.paper_model_parallel("measured", hardware=("a100", "v100")),
        "precision": made.mini_generations(),
    }
    with pytest.raises(UserError, match=f"several values of {column}"):
        draw(frames[column], made.PAPER)


def test_without_exposed_communication_the_panel_says_why() -> None:
    frame = at("fp16").with_columns(
        exposed_communication_s=pl.lit(None, pl.Float64),
        null_reasons=pl.lit('{"exposed_communication_s": "the trace has no communication"}'),
    )
    assert "The trace has no communication" in texts(draw(frame, made.MINI))
