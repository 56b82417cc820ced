"""Marks by provenance, crosses, labels that keep apart, panels without numbers."""

from __future__ import annotations

import altair as alt
import polars as pl
import pytest

from scaling_study.present import panels, theme
from scaling_study.present.axes import Axis, Range, doubling_axis, from_zero, value_axis
from tests.unit.present import synthetic as made
from tests.unit.present.charts import Layer, crosses, layers

BOX = panels.Box(100, 80)
FRAME = made.frame(
    made.paper_row(dp=8, iteration_s=1.0),
    made.paper_row(dp=16, iteration_s=1.5),
    made.paper_row(dp=8, iteration_s=1.1, provenance="predicted"),
    made.paper_row(dp=8, iteration_s=1.2, provenance="reported"),
    made.paper_row(dp=32, outcome="infeasible", reason="does not fit"),
)
X = doubling_axis("gpus", FRAME["gpus"], "GPUs")


def y_axis() -> Axis:
    return value_axis("iteration_s", "s", from_zero(FRAME["iteration_s"]))


def of(*charts: alt.Chart) -> list[Layer]:
    title = alt.TitleParams(["t"], subtitle=["s"])
    return layers(alt.vconcat(alt.layer(*charts)).properties(title=title))


def test_each_provenance_has_its_own_mark_and_line() -> None:
    drawn = of(*panels.marks(FRAME, X, y_axis(), theme.BLUE))
    points = [layer for layer in drawn if layer.type == "point"]
    found = [(layer.mark["shape"], layer.mark["fill"], layer.mark["stroke"]) for layer in points]
    assert found == [
        ("circle", "white", theme.BLUE),
        ("circle", theme.BLUE, theme.BLUE),
        ("diamond", theme.BLUE, theme.BLUE),
    ]
    lines = [layer.mark["strokeDash"] for layer in drawn if layer.type == "line"]
    assert lines == [[3, 2], []]
    assert points[1].pairs() == [(8, 1.0), (16, 1.5)]


def test_a_run_without_numbers_is_a_labelled_cross() -> None:
    title = alt.TitleParams(["t"], subtitle=["s"])
    chart = alt.vconcat(alt.layer(*panels.crosses(FRAME, X, y_axis(), BOX))).properties(title=title)
    (cross,) = crosses(chart)
    assert cross.rows == [{"gpus": 32, "words": "infeasible"}]
    assert [layer.field("text") for layer in layers(chart) if layer.type == "text"] == ["words"]


@pytest.mark.parametrize(("seconds", "place"), [(0.01, 5), (0.99, 75)])
def test_a_cross_keeps_away_from_the_mark_beside_it(seconds: float, place: float) -> None:
    ended = made.paper_row(dp=8, outcome="timeout", reason="too slow")
    other = made.paper_row(dp=8, iteration_s=seconds, provenance="predicted")
    y = value_axis("iteration_s", "s", Range(0, 1))
    cross = of(*panels.crosses(made.frame(ended, other), X, y, BOX))[0]
    assert cross.encoding["y"]["value"] == place


def test_labels_keep_apart_and_stay_inside() -> None:
    assert panels.apart([0.1, 0.5], 0.1) == [0.1, 0.5]
    assert panels.apart([0.52, 0.5, 0.5], 0.1) == pytest.approx([0.7, 0.5, 0.6])
    assert panels.apart([0.99, 0.98], 0.1) == pytest.approx([1.0, 0.9])
    assert panels.apart([], 0.1) == []


def test_names_may_stand_before_the_lines() -> None:
    y = value_axis("iteration_s", "s", Range(0, 1))
    after, before = (of(*panels.end_labels([("a", 0.5, theme.BLUE)], y, BOX, **k))[0] for k in ({}, {"before": 12}))
    assert (after.mark["align"], after.encoding["x"]["value"]) == ("left", 104)
    assert (before.mark["align"], before.encoding["x"]["value"]) == ("right", 12)
    assert before.encoding["y"] == after.encoding["y"] == {"value": 40.0}


def test_a_cross_of_several_lines_names_them() -> None:
    ended = pl.DataFrame({"gpus": [32], "provenance": ["measured"], "outcome": ["timeout"], "why": ["a, b: timeout"]})
    cross = of(*panels.crosses(ended, X, y_axis(), BOX, beside=FRAME, said="why"))[0]
    assert cross.rows[0]["words"] == "a, b: timeout"


def test_a_name_moves_to_the_free_side() -> None:
    def side(*others: tuple[float, float], at: tuple[float, float] = (50, 40)) -> str:
        return of(panels.name_beside("1 x 1", at, [at, *others], BOX))[0].mark["align"]

    assert side() == "left"
    assert side((60, 40)) == "right"
    assert side((60, 40), (40, 40)) == "center"
    assert side(at=(98, 40)) == "right"


def test_a_panel_without_numbers_gives_the_reason() -> None:
    frame = made.mini_data_parallel()
    chart = panels.metric_panel([], frame, "power_w_per_gpu", "(e) Power", BOX)
    shown = [str(row.get("text")) for layer in of(chart) for row in layer.rows]
    assert " ".join(shown[1:-1]) == "This machine has no power counter that a process may read"
    assert shown[-1] == "(e) Power"
    assert not [layer for layer in of(chart) if layer.type == "point"]


def test_lines_fit_their_width() -> None:
    lines = panels.wrapped("word " * 60, 200)
    assert len(lines) > 1
    assert max(map(len, lines)) * theme.NOTE_SIZE * 0.47 <= 200
    text = "no power counter that this process may read on this machine"
    balanced = panels.balanced(text, 150)
    assert len(balanced) == len(panels.wrapped(text, 150))
    assert " ".join(balanced) == text
    assert max(map(len, balanced)) <= max(map(len, panels.wrapped(text, 150)))


def test_the_last_value_is_that_of_the_preferred_provenance() -> None:
    assert panels.last(FRAME, "gpus", "iteration_s") == [1.5]
    assert panels.last(FRAME.filter(FRAME["gpus"] == 8), "gpus", "iteration_s") == [1.0]
    assert panels.last(made.mini_data_parallel(), "gpus", "mfu") == []


@pytest.mark.parametrize(
    ("heights", "below", "places"),
    [
        ((3, 2, 1), False, [("center", -7), ("left", -7), ("left", -7)]),
        ((1, 2, 3), False, [("right", -7), ("right", -7), ("center", -7)]),
        ((2, 1, 2), False, [("center", 8)]),
        ((3, 2, 1), True, [("right", 8), ("right", 8), ("center", 8)]),
        ((1, 2, 1), True, [("center", -7)]),
    ],
)
def test_a_name_stands_where_the_line_does_not_pass(
    heights: tuple[float, ...], below: bool, places: list[tuple[str, int]]
) -> None:
    rows = [made.paper_row(dp=8 * 2**n, iteration_s=float(height)) for n, height in enumerate(heights)]
    frame = made.frame(*rows).with_columns(name=pl.lit("a"))
    drawn = of(*panels.names_along(frame, X, y_axis(), "name", theme.BLUE, below=below))
    found = [(layer.mark["align"], layer.mark["dy"]) for layer in drawn]
    assert (found if len(places) == 3 else found[1:2]) == places


@pytest.mark.parametrize(("heights", "below", "side"), [((2, 1, 2), False, -7), ((1, 2, 1), True, 8)])
def test_a_name_that_stays_leaves_the_other_side_to_the_other_line(
    heights: tuple[float, ...], below: bool, side: int
) -> None:
    rows = [made.paper_row(dp=8 * 2**n, iteration_s=float(height)) for n, height in enumerate(heights)]
    frame = made.frame(*rows).with_columns(name=pl.lit("a"))
    drawn = of(*panels.names_along(frame, X, y_axis(), "name", theme.BLUE, below=below, stay=True))
    assert [layer.mark["dy"] for layer in drawn] == [side] * 3


def test_a_name_stands_beyond_the_marks_of_every_provenance() -> None:
    drawn = of(*panels.names_along(FRAME.with_columns(name="provenance"), X, y_axis(), "name", theme.BLUE))
    assert [(layer.rows[0]["name"], layer.rows[0]["reach"]) for layer in drawn] == [
        ("measured", 1.2),
        ("measured", 1.5),
    ]


def test_crosses_move_aside() -> None:
    cross, label = of(*panels.crosses(FRAME, X, y_axis(), BOX, aside=4))
    assert cross.mark["xOffset"] == label.mark["xOffset"] == 4
