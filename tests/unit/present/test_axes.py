"""Ranges map values to places and back; scale axes are labelled with the scales themselves."""

from __future__ import annotations

import polars as pl
import pytest

from scaling_study.present.axes import (
    Range,
    around,
    binary_size,
    doubling_axis,
    from_zero,
    log_axis,
    logarithmic,
    row_axis,
    size_axis,
)


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


@pytest.mark.parametrize("span", [Range(0, 40), Range(1, 64, 2)])
def test_room_is_before_the_low_end(span: Range) -> None:
    wider = span.with_room(0.2)
    assert wider.fraction(span.low) == pytest.approx(0.2, abs=1e-4)
    assert wider.high == span.high
    assert span.with_room(0) == span


@pytest.mark.parametrize(
    ("size", "words"),
    [(1, "1 B"), (1000, "1000 B"), (1024, "1 KiB"), (65536, "64 KiB"), (3 * 2**19, "1.5 MiB"), (2**34, "16 GiB")],
)
def test_sizes_have_binary_units(size: int, words: str) -> None:
    assert binary_size(size) == words


def test_an_axis_of_sizes_is_labelled_with_them() -> None:
    axis = size_axis("bytes", pl.Series([2**20, 1024, 2**20]), "message size", room=0.1)
    assert axis.options["values"] == [1024, 2**20]
    assert axis.options["labelExpr"] == "['1 KiB','1 MiB'][indexof([1024, 1048576],datum.value)]"
    assert axis.span.fraction(1024 / 1.3) == pytest.approx(0.1, abs=1e-4)


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


def test_decimal_ticks_multiply_where_there_is_hardly_one() -> None:
    assert log_axis("w", "W", Range(1200, 3200, 10)).options["values"] == [1500, 2000, 3000]


def test_rows_run_downwards_under_their_names() -> None:
    axis = row_axis("row", ["a", "b"], None)
    assert axis.span.scale().to_dict()["domain"] == [1.5, -0.5]
    assert axis.options["labelExpr"] == "['a','b'][datum.value]"
