from __future__ import annotations

from functools import cache

import altair as alt
import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.present.figures.hst_13 import draw
from scaling_study.present.theme import BLUE, TIMES_SIGN, VERMILLION
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, drawn, points, texts


@cache
def paper() -> alt.TopLevelMixin:
    """Two batches on 512, 1,024 and 2,048 GPUs, and on 4,096, where nothing ran."""
    ended = [
        made.paper_row(dp=4096, global_batch=batch, outcome="infeasible", reason="too many", provenance="predicted")
        for batch in (1024, 2048)
    ]
    return draw(pl.concat([made.paper_pretraining(), made.frame(*ended)]), made.PAPER)


@cache
def mini() -> alt.TopLevelMixin:
    return draw(made.mini_pretraining(), made.MINI)


def best(batch: int, metric: str = "words_per_second") -> dict[int, float]:
    frame = made.paper_pretraining().filter(global_batch=batch)
    return dict(frame.group_by("gpus").agg(pl.col(metric).max()).iter_rows())


def test_a_line_a_global_batch_of_the_fastest_layouts() -> None:
    found = points(paper(), "words_per_second")
    assert [layer.mark["stroke"] for layer in found] == [BLUE, VERMILLION]
    for batch, layer in zip((1024, 2048), found, strict=True):
        assert layer.values() == pytest.approx(best(batch), rel=1e-5)


def test_each_batch_has_its_own_ideal() -> None:
    lines = drawn(paper(), "line", "ideal_words_per_second")
    for batch, line in zip((1024, 2048), lines, strict=True):
        assert line.values()[2048] == pytest.approx(4 * best(batch)[512], rel=1e-5)


def test_batches_are_named_with_what_scale_brings() -> None:
    mfu, rate = best(1024, "mfu"), best(1024)
    changes = [f"{values[2048] / values[512] - 1:+.0%}".replace("-", "\N{MINUS SIGN}") for values in (rate, mfu)]
    shown = texts(paper())
    assert f"512 to 2,048 GPUs: throughput {changes[0]}, MFU {changes[1]} (○, batch 1,024)." in shown
    assert shown.count("batch 1,024") == shown.count("batch 2,048") == 2


def test_names_of_two_lines_stand_on_either_side() -> None:
    names = drawn(paper(), "text", "reach")
    assert [layer.mark["color"] for layer in names] == [BLUE] * 3 + [VERMILLION] * 3
    assert {layer.mark["dy"] for layer in names[:3]} == {8}
    assert {layer.mark["dy"] for layer in names[3:]} == {-7}


def test_crosses_of_two_batches_keep_apart() -> None:
    found = [(layer.mark["stroke"], layer.mark["xOffset"]) for layer in crosses(paper())]
    assert found == [(BLUE, -4.5), (VERMILLION, 4.5)] * 4


def test_one_batch_on_a_laptop() -> None:
    assert points(mini(), "tflops_per_gpu")[0].mark["stroke"] == BLUE
    assert points(mini(), "mfu") == []
    assert [layer.rows[0]["layout"] for layer in drawn(mini(), "text", "reach")] == [f"1{TIMES_SIGN}2"] * 2
    shown = texts(mini())
    assert shown.startswith("Scaling mini-20m at a fixed global batch")
    assert "2 to 4 ranks: throughput +14%, TFLOPS \N{MINUS SIGN}43% (●, batch 8)." in shown
    assert f"No MFU: {made.CPU_REASONS['mfu']}." in shown


def test_models_are_not_joined() -> None:
    frame = pl.concat([made.mini_pretraining(), made.mini_pretraining("mini-9m")])
    with pytest.raises(UserError, match=r"several values of model \(mini-20m, mini-9m\)"):
        draw(frame, made.MINI)
