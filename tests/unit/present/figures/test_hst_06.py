from __future__ import annotations

import msgspec
import polars as pl
import pytest

from scaling_study.present.figures.hst_06 import by_degree, draw
from scaling_study.present.rows import chosen
from scaling_study.present.theme import BLUE, VERMILLION
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, drawn, points, texts


def test_a_line_grows_one_axis_from_the_shared_baseline() -> None:
    tensor, pipeline = points(draw(made.mini_model_parallel(), made.MINI), "exposed_communication_s")
    assert (tensor.mark["stroke"], pipeline.mark["stroke"]) == (BLUE, VERMILLION)
    assert tensor.values() == pytest.approx({1: 0.2, 2: 0.3, 4: 0.4})
    assert pipeline.values() == pytest.approx({1: 0.2, 2: 0.22, 4: 0.24})


def test_layouts_of_both_axes_are_left_to_another_figure() -> None:
    frame = by_degree(chosen(made.mini_model_parallel()))
    assert frame.filter((frame["tp"] > 1) & (frame["pp"] > 1)).is_empty()
    assert frame["line"].value_counts().sort("line").rows() == [("pp", 3), ("tp", 3)]


def test_groups_beyond_a_node_are_set_apart() -> None:
    chart = draw(made.paper_model_parallel(), made.PAPER)
    edges = [layer.rows[0]["degree"] for layer in drawn(chart, "rule", x="degree")]
    assert edges == pytest.approx([128**0.5] * 2, rel=1e-5)
    assert "one node" in texts(chart)
    assert "one node" not in texts(draw(made.mini_model_parallel(), made.MINI))


@pytest.mark.parametrize(("precision", "factor"), [("fp32", 1.0), ("bf16", 2.0)])
def test_two_degrees_are_enough(precision: str, factor: float) -> None:
    frame = made.mini_generations().filter(pl.col("precision") == precision)
    context = msgspec.structs.replace(made.MINI, shown=(precision,))
    chart = draw(frame, context)
    tensor, pipeline = points(chart, "words_per_second")
    assert tensor.values() == pytest.approx({1: 1024 / 0.45 / factor, 2: 1024 / 0.75 / factor}, rel=1e-5)
    assert pipeline.values() == pytest.approx({1: 1024 / 0.45 / factor, 2: 1024 / 0.35 / factor}, rel=1e-5)
    assert tensor.encoding["x"]["axis"]["values"] == [1, 2]
    assert texts(chart).startswith(f"Degree of model parallelism: {precision} ")


def test_out_of_memory_has_the_colour_of_its_line() -> None:
    found = crosses(draw(made.paper_model_parallel("measured"), made.PAPER))
    assert [(layer.rows[0]["degree"], layer.mark["stroke"]) for layer in found] == [(16, VERMILLION)] * 2
