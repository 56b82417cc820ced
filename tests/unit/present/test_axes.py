"""Ranges map values to places and back; scale axes are labelled with the scales themselves."""

from __future__ import annotations

import polars as pl
import pytest

from scaling_study.present.axes import Range, around, doubling_axis, from_zero, log_axis, logarithmic, row_axis


@pytest.mark.parametrize("span", [Range(0, 40), Range(1, 64, 2), Range(14.5, -0.5)])
@pytest.mark.parametrize("value", [2.0, 8.0])
def test_fraction_and_value_are_inverse(span: Range, value: float) -> None:
    assert span.value(span.fraction(value)) == pytest.approx(value)


def test_doublings_take_the_same_room() -> None:
    span = Range(1, 64, 2)
    steps = [span.fraction(2.0 ** (n + 1)) - span.fraction(2.0**n) for n in range(6)]
    assert steps == pytest.approx([1 / 6] * 6)


def test_a_scale_axis_is_logarithmic_with_integer_labels() -> None:
    x = doubling_axis("gpus", pl.Series([2048, 8, 8, 128]), "GPUs").x().to_dict()
    assert (x["scale"]["type"], x["scale"]["base"]) == ("log", 2)
    assert (x["axis"]["values"], x["axis"]["format"], x["axis"]["title"]) == ([8, 128, 2048], ",d", "GPUs")
    assert x["scale"]["domain"][0] < 8
    assert x["scale"]["domain"][1] > 2048


def test_ranges_leave_room() -> None:
    values = pl.Series([2.0, None, 4.0])
    assert from_zero(values) == Range(0, 4.48)
    assert around(values) == Range(1.8, 4.2)
    assert logarithmic(values, margin=2) == Range(1, 8, 10)


def test_ranges_of_nothing_are_still_ranges() -> None:
    empty = pl.Series([None, None], dtype=pl.Float64)
    for span in (from_zero(empty), around(empty), logarithmic(empty), from_zero(pl.Series([0.0]))):
        assert span.high > span.low


def test_decimal_ticks_thin_out() -> None:
    assert log_axis("w", "W", Range(80, 700, 10)).options["values"] == [100, 200, 500]
    assert log_axis("w", "W", Range(80, 200_000, 10)).options["values"] == [100, 1000, 10_000, 100_000]


def test_rows_run_downwards_under_their_names() -> None:
    axis = row_axis("row", ["a", "b"], None)
    assert axis.span.scale().to_dict()["domain"] == [1.5, -0.5]
    assert axis.options["labelExpr"] == "['a','b'][datum.value]"
