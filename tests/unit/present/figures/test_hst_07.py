from __future__ import annotations

from functools import cache

import altair as alt
import polars as pl
import pytest

from scaling_study.present.figures.hst_07 import draw, last_step
from scaling_study.present.theme import TIMES_SIGN
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, drawn, points, texts


@cache
def mini() -> alt.TopLevelMixin:
    """1, 2 and 4 ranks, and 8 on which nothing ran."""
    ended = [
        made.mini_row(dp=8 // pp, pp=pp, global_batch=8, outcome="timeout", reason="too slow", iteration_s=None)
        for pp in (1, 2)
    ]
    return draw(pl.concat([made.mini_fixed_batch(), made.frame(*ended)]), made.MINI)


@cache
def paper() -> alt.TopLevelMixin:
    return draw(made.paper_fixed_batch("measured", "predicted"), made.PAPER)


def names(chart: alt.TopLevelMixin) -> dict[int, str]:
    """From the scale to the layout that is named there."""
    return {row["gpus"]: row["layout"] for layer in drawn(chart, "text", "reach") for row in layer.rows}


def best(frame: pl.DataFrame, metric: str = "words_per_second") -> dict[int, float]:
    return dict(frame.filter(outcome="ok").group_by("gpus").agg(pl.col(metric).max()).iter_rows())


def test_each_scale_stands_for_its_fastest_layout() -> None:
    (marks,) = points(mini(), "words_per_second_per_gpu")
    assert marks.values() == pytest.approx(best(made.mini_fixed_batch(), "words_per_second_per_gpu"), rel=1e-5)
    assert names(mini()) == {1: f"1{TIMES_SIGN}1", 2: f"1{TIMES_SIGN}1", 4: f"1{TIMES_SIGN}2"}


def test_the_ideal_is_that_of_the_smallest_scale() -> None:
    (line,) = drawn(mini(), "line", "ideal_words_per_second")
    assert {gpus: rate for gpus, rate in line.pairs() if gpus < 8} == {1: 2560, 2: 5120, 4: 10240}


def test_a_scale_where_nothing_ran_is_a_cross() -> None:
    found = crosses(mini())
    assert {layer.rows[0]["gpus"] for layer in found} == {8}
    assert len(found) == 4  # power is not known at any scale, so two panels give the reason instead
    assert "2 timeout" in texts(mini())


def test_null_metrics_say_why() -> None:
    shown = texts(mini())
    assert "2 to 4 ranks: throughput \N{MINUS SIGN}9% (●)." in shown
    assert "(d) Floating-point rate" in shown
    assert f"No MFU: {made.CPU_REASONS['mfu']}." in shown
    assert shown.count(made.CPU_REASONS["power_w_per_gpu"][1:]) == 2


def test_provenances_have_each_its_fastest_and_the_preferred_is_named() -> None:
    frame = made.paper_fixed_batch("measured", "predicted")
    predicted, measured = points(paper(), "words_per_second")
    for layer, provenance in ((measured, "measured"), (predicted, "predicted")):
        assert layer.values() == pytest.approx(best(frame.filter(provenance=provenance)), rel=1e-5)
    fastest = frame.filter(provenance="measured").sort("words_per_second", descending=True).unique("gpus", keep="first")
    expected = {gpus: f"{tp}{TIMES_SIGN}{pp}" for gpus, tp, pp in fastest.select("gpus", "tp", "pp").iter_rows()}
    assert names(paper()) == expected
    assert "(● where both stand)" in texts(paper())


def test_what_the_last_step_brings_is_said() -> None:
    steps = {64: (1.2, 650.0), 128: (1.0, 600.0), 256: (1 / 1.1, 420.0)}
    rows = [
        made.paper_row(dp=gpus, global_batch=256, iteration_s=seconds, power_w_per_gpu=power)
        for gpus, (seconds, power) in steps.items()
    ]
    assert last_step(made.frame(*rows), made.PAPER) == "128 to 256 GPUs: throughput +10%, power +40% (●)."


def test_nothing_ran_at_all() -> None:
    ended = made.frame(made.paper_row(dp=16, global_batch=32, outcome="out_of_memory", reason="CUDA out of memory"))
    assert "No run ended well" in texts(draw(ended, made.PAPER))
