from __future__ import annotations

from functools import cache

import altair as alt
import polars as pl
import pytest

from scaling_study.present.figures.hst_11 import counts, draw
from scaling_study.present.layouts import ALONE, with_relative
from scaling_study.present.rows import chosen, with_spread
from scaling_study.present.theme import BLUE, FAINT
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, drawn, points, texts


@cache
def paper() -> alt.TopLevelMixin:
    return draw(made.paper_model_parallel("predicted"), made.PAPER)


@cache
def one_layout() -> alt.TopLevelMixin:
    one = made.mini_row(dp=2, tp=2, pp=2, global_batch=16, iteration_s=2.0)
    return draw(made.frame(one), made.MINI)


def relative(frame: pl.DataFrame) -> pl.DataFrame:
    return with_relative(with_spread(chosen(frame)))


def test_throughput_is_relative_to_data_parallelism_alone() -> None:
    found = relative(made.mini_model_parallel().filter(pl.col("tp") * pl.col("pp") <= 2))
    by_layout = {(row["tp"], row["pp"]): row for row in found.iter_rows(named=True)}
    for layout, seconds in {(1, 1): 1.0, (1, 2): 1.05, (2, 1): 1.12}.items():
        assert by_layout[layout]["relative"] == pytest.approx(1 / seconds)
        assert by_layout[layout]["relative_low"] == pytest.approx(1 / seconds / 1.08)
    assert counts(found) == "Faster than data parallelism alone (dotted), in colour: 0 of 2 other layouts (●)."


def test_each_provenance_has_its_own_baseline() -> None:
    found = relative(made.paper_model_parallel())
    assert found.filter(ALONE)["relative"].to_list() == [1.0, 1.0]
    assert counts(found).endswith("8 of 14 other layouts (●), 8 of 14 other layouts (○).")


def test_layouts_that_beat_the_baseline_are_counted_and_in_colour() -> None:
    slower, faster = points(paper(), "row", "relative")
    assert (slower.mark["stroke"], faster.mark["stroke"]) == (FAINT, BLUE)
    assert min(x for x, _ in faster.pairs()) > 1 >= max(x for x, _ in slower.pairs())
    assert (len(faster.rows), len(slower.rows)) == (8, 6)
    assert "in colour: 8 of 14 other layouts (○)." in texts(paper())


def test_a_tie_does_not_beat_the_baseline() -> None:
    rows = [made.mini_row(dp=4 // pp, pp=pp, global_batch=8, iteration_s=1.0) for pp in (1, 2)]
    assert "0 of 1 other layouts (●)" in counts(relative(made.frame(*rows)))


def test_without_a_baseline_throughput_is_absolute() -> None:
    assert points(one_layout(), "row", "relative") == []
    (marks,) = points(one_layout(), "row", "words_per_second")
    assert (marks.pairs(), marks.mark["fill"]) == ([(1024.0, 0)], BLUE)
    assert "No baseline (●): data parallelism alone is not among the runs." in texts(one_layout())
    assert "in colour" not in texts(one_layout())


def test_a_baseline_that_did_not_fit_is_told_from_one_that_was_not_run() -> None:
    lost = ALONE & (pl.col("provenance") == "measured")
    outcome = pl.when(lost).then(pl.lit("out_of_memory")).otherwise("outcome").alias("outcome")
    chart = draw(made.paper_model_parallel().with_columns(outcome), made.PAPER)
    assert "No baseline (●): data parallelism alone ended out of memory." in texts(chart)
    assert {layer.mark["fill"] for layer in points(chart, "row", "relative")} == {"white"}
    measured = [layer for layer in points(chart, "row", "mfu") if layer.mark["fill"] != "white"]
    assert {layer.mark["fill"] for layer in measured} == {FAINT}


def test_what_did_not_run_is_crossed_in_every_panel_and_named_in_the_first() -> None:
    assert [layer.rows[0]["row"] for layer in crosses(paper())] == [10] * 4
    assert len([layer for layer in drawn(paper(), "text", "row") if layer.field("text") == "words"]) == 1


def test_null_metrics_say_why() -> None:
    assert made.CPU_REASONS["tokens_per_joule"][1:] in texts(one_layout())
    assert "(c) Floating-point rate" in texts(one_layout())
