from __future__ import annotations

import functools
import itertools

import altair as alt
import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.present.figures.hst_03 import draw
from scaling_study.present.theme import ramp
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, drawn, points, texts

BANDWIDTH = "bus_bandwidth_gb_per_s"


def of(frame: pl.DataFrame, op: str) -> pl.DataFrame:
    return frame.filter(pl.col("op") == op)


@functools.cache
def mini(op: str) -> alt.TopLevelMixin:
    return draw(of(made.mini_collectives(), op), made.MINI)


def test_a_line_a_number_of_ranks_with_its_values() -> None:
    two, four = points(mini("all_reduce"), BANDWIDTH)
    assert (two.mark["stroke"], four.mark["stroke"]) == tuple(ramp(2))
    seconds = {size: 4e-4 + size / 1.5e9 for size in (2**16, 2**24)}
    assert two.values() == pytest.approx({size: size / s / 1e9 for size, s in seconds.items()}, rel=1e-5)


def test_bars_span_the_percentiles_as_bandwidth() -> None:
    bars = drawn(mini("all_gather"), "rule", "bus_bandwidth_low")
    four = bars[1].rows[-1]
    mean = 0.75 * 2**24 / (8e-4 + 0.75 * 2**24 / 0.75e9) / 1e9
    assert four["bus_bandwidth_low"] == pytest.approx(mean / 1.25, rel=1e-5)
    assert four["bus_bandwidth_high"] == pytest.approx(mean / 0.9, rel=1e-5)


def test_sizes_are_labelled_in_binary_units_on_a_doubling_axis() -> None:
    x = points(mini("all_reduce"), BANDWIDTH)[0].encoding["x"]
    assert (x["scale"]["type"], x["scale"]["base"], x["axis"]["values"]) == ("log", 2, [2**16, 2**24])
    assert x["axis"]["labelExpr"] == "['64 KiB','16 MiB'][indexof([65536, 16777216],datum.value)]"


def test_the_full_study_has_a_line_a_number_of_nodes_each_named() -> None:
    chart = draw(of(made.paper_collectives(), "all_gather"), made.PAPER)
    lines = points(chart, BANDWIDTH)
    assert [len(line.rows) for line in lines] == [8] * 8
    assert [line.mark["stroke"] for line in lines] == ramp(8)
    names = [layer for layer in drawn(chart, "text") if layer.rows[0].get("text") in {f"{2**n}" for n in range(2, 10)}]
    places = [layer.encoding["y"]["value"] for layer in names]
    assert len(names) == 8
    assert all(after - before >= 7.99 for before, after in itertools.pairwise(places))
    assert "nodes" in texts(chart)
    assert "ranks" in texts(mini("all_gather"))


@pytest.mark.parametrize(("op", "title"), [("all_reduce", "All-reduce"), ("reduce_scatter", "Reduce-scatter")])
def test_the_title_says_the_op(op: str, title: str) -> None:
    frame = made.paper_collectives().filter(pl.col("nodes") == 4)
    assert texts(draw(of(frame, op), made.PAPER)).startswith(f"{title} bandwidth")


def test_ops_are_not_joined() -> None:
    with pytest.raises(UserError, match=r"several values of op \(all_gather, all_reduce\)"):
        draw(made.mini_collectives(), made.MINI)


def test_provenances_are_told_apart() -> None:
    frame = of(made.paper_collectives("measured", "predicted"), "all_reduce").filter(pl.col("nodes") < 16)
    found = points(draw(frame, made.PAPER), BANDWIDTH)
    few, many = ramp(2)
    assert [(layer.mark["fill"], layer.mark["stroke"]) for layer in found] == [
        ("white", few),
        (few, few),
        ("white", many),
        (many, many),
    ]


def test_runs_that_did_not_end_well_share_a_cross_that_names_them() -> None:
    frame = of(made.paper_collectives("measured"), "all_reduce").filter(pl.col("nodes") > 64)
    chart = draw(frame, made.PAPER)
    (cross,) = crosses(chart)
    assert cross.rows == [{"message_bytes": 2**34, "words": "256, 512 nodes: timeout"}]
    assert "of 24 runs 2 timeout" in texts(chart)


def test_several_ends_at_one_size_are_one_cross() -> None:
    ends = [("timeout", 8, "measured"), ("timeout", 8, "predicted"), ("failed", 16, "measured")]
    rows = [
        made.call_row(op="all_reduce", nodes=nodes, message_bytes=1024, outcome=end, provenance=one, reason="x")
        for end, nodes, one in ends
    ]
    rows.append(made.call_row(op="all_reduce", nodes=4, message_bytes=1024))
    (cross,) = crosses(draw(made.frame(*rows), made.PAPER))
    assert cross.rows[0]["words"] == "8 nodes: timeout; 16 nodes: failed"


def test_without_bandwidth_the_panel_says_why() -> None:
    ended = made.call_row(op="all_reduce", nodes=2, message_bytes=1024, outcome="failed", reason="no route")
    assert "No run ended well" in texts(draw(made.frame(ended), made.MINI))
    lacking = made.call_row(op="all_reduce", nodes=2, message_bytes=1024)
    lacking |= {BANDWIDTH: None, "null_reasons": f'{{"{BANDWIDTH}": "clocks disagree"}}'}
    assert "Clocks disagree" in texts(draw(made.frame(lacking), made.MINI))
