from __future__ import annotations

from functools import cache

import altair as alt
import msgspec
import polars as pl
import pytest

from scaling_study.present.figures.hst_08 import baseline_and_fastest, draw
from scaling_study.present.rows import chosen
from scaling_study.present.theme import BLUE, ORANGE, TIMES_SIGN
from tests.unit.present import synthetic as made
from tests.unit.present.charts import Layer, crosses, drawn, points, texts

EXPOSED = "exposed_communication_s"
MINI = msgspec.structs.replace(made.MINI, parameters=made.PARAMETERS)
PAPER = msgspec.structs.replace(made.PAPER, parameters=made.PARAMETERS)


@cache
def mini() -> alt.TopLevelMixin:
    """The largest of three models ran in no layout; the fastest layout of the others hides all its communication."""
    frame = made.mini_model_size().filter(pl.col("model") != "mini-20m")
    ended = made.mini_row(model="mini-20m", dp=4, global_batch=8, outcome="out_of_memory", reason="killed")
    hidden = pl.col(EXPOSED) * (pl.col("pp") == 1)
    return draw(pl.concat([frame.with_columns(hidden), made.frame(ended)]), MINI)


@cache
def paper() -> alt.TopLevelMixin:
    return draw(made.paper_model_size(), PAPER)


def lines(layers: list[Layer]) -> dict[str, Layer]:
    return {{ORANGE: "baseline", BLUE: "fastest"}[layer.mark["stroke"]]: layer for layer in layers}


def test_baseline_and_fastest_of_each_size() -> None:
    frame = made.paper_model_size().filter(outcome="ok")
    found = lines(points(paper(), "mfu"))
    best = frame.group_by("model").agg(pl.col("mfu").max())
    assert found["fastest"].values() == pytest.approx({made.PARAMETERS[m]: v for m, v in best.iter_rows()}, rel=1e-5)
    alone = frame.filter(tp=1, pp=1, model="llama2-7b")["mfu"].max()
    assert found["baseline"].values()[made.PARAMETERS["llama2-7b"]] == pytest.approx(alone, rel=1e-5)
    assert len(found["baseline"].rows) == 4


def test_times_share_one_axis_and_sizes_are_named() -> None:
    layers = [points(paper(), metric)[0] for metric in ("compute_s", "communication_s", EXPOSED)]
    assert len({str(layer.encoding["y"]["scale"]["domain"]) for layer in layers}) == 1
    assert layers[0].encoding["x"]["axis"]["labelExpr"].startswith("['1B', '7B', '13B', '70B'][indexof(")


def test_where_the_least_does_not_fit_the_next_is_the_baseline() -> None:
    largest = made.paper_model_size().filter(model="llama2-70b")
    assert set(largest.filter(pl.col("tp") * pl.col("pp") < 4)["outcome"]) == {"out_of_memory"}
    baseline = baseline_and_fastest(chosen(largest)).filter(line="baseline")
    assert (baseline["tp"] * baseline["pp"]).to_list() == [4]


def test_of_several_least_parallel_layouts_the_fastest_is_the_baseline() -> None:
    rows = [
        made.mini_row(dp=2, tp=tp, pp=pp, global_batch=8, iteration_s=seconds)
        for tp, pp, seconds in ((2, 1, 3.0), (1, 2, 2.0))
    ]
    found = baseline_and_fastest(chosen(made.frame(*rows)))
    assert found.select("line", "tp", "pp").rows() == [("baseline", 1, 2), ("fastest", 1, 2)]


def test_of_equals_the_first_stands() -> None:
    rows = [made.mini_row(dp=2, tp=3 - n, pp=n, global_batch=8, iteration_s=1.0, run_id=f"run-{n}") for n in (1, 2)]
    assert set(baseline_and_fastest(chosen(made.frame(*rows)))["run_id"]) == {"run-1"}


def test_layouts_are_named_beside_the_utilisation() -> None:
    names = [layer.rows[0]["layout"] for layer in drawn(mini(), "text", "reach")]
    assert names == [f"1{TIMES_SIGN}1"] * 2 + [f"1{TIMES_SIGN}2"] * 2


def test_a_model_that_never_ran_is_a_cross() -> None:
    assert [layer.rows[0]["parameters"] for layer in crosses(mini())] == [made.PARAMETERS["mini-20m"]] * 4
    assert "of 5 runs 1 out of memory" in texts(mini())


def test_zero_stands_on_the_edge_and_is_named() -> None:
    layer = lines(points(mini(), EXPOSED))["fastest"]
    low = layer.encoding["y"]["scale"]["domain"][0]
    assert [y for _, y in layer.pairs()] == [low, low]
    assert "lower edge is zero" in texts(mini())
    assert "lower edge" not in texts(paper())


def test_without_utilisation_the_rate_and_the_reason() -> None:
    assert "(d) Floating-point rate" in texts(mini())
    assert f"No MFU: {made.CPU_REASONS['mfu']}." in texts(mini())
