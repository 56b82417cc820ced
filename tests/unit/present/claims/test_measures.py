"""Measures on rows whose numbers are known, and properties of them."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.errors import UserError
from scaling_study.present.claims import measures
from scaling_study.present.claims.evidence import UntestableError
from scaling_study.spec.claims import Expected
from tests.unit.present.claims import made
from tests.unit.samples import bounded

positive = st.floats(1e-3, 1e6)
lines = st.lists(positive, min_size=3, max_size=8)


def line(values: list[float], name: str = "mfu") -> pl.DataFrame:
    return made.frame(*(made.row(gpus=8 * 2**place, **{name: value}) for place, value in enumerate(values)))


def test_rows_that_meet_conditions() -> None:
    frame = made.frame(*(made.row(gpus=gpus, hardware=part) for gpus in (8, 16, 32) for part in ("h100", "a100")))
    assert measures.where(frame, {"gpus": 8, "hardware": "h100"}).height == 1
    assert measures.where(frame, {"gpus": [8, 32]}).height == 4
    assert measures.where(frame, {"gpus": Expected(above=8)}).height == 4
    with pytest.raises(UntestableError, match="no run has 64 GPUs"):
        measures.where(frame, {"gpus": 64})
    with pytest.raises(UserError, match="names the column 'gpu'"):
        measures.where(frame, {"gpu": 8})


def test_the_fastest_stands_for_a_point() -> None:
    frame = made.frame(*(made.row(tp=tp, words_per_second=rate) for tp, rate in ((1, 3.0), (2, 9.0), (4, 5.0))))
    assert measures.point(frame, {})["tp"] == 2
    calls = made.frame(*(made.row(op="all_gather", words_per_second=None, run_id=name) for name in "ab"))
    with pytest.raises(UserError, match="2 runs are at all-gather"):
        measures.point(calls, {"op": "all_gather"})


def test_a_value_and_its_interval() -> None:
    predicted = made.frame(made.row(mfu=0.4, iteration_s=1.0, iteration_s_low=0.8, iteration_s_high=1.25))
    found = measures.value(predicted, "mfu", {})
    assert found.value == 0.4
    assert found.interval == pytest.approx((0.32, 0.5))
    measured = made.frame(made.row(mfu=0.4, iteration_s=1.0, iteration_s_p05=0.5, iteration_s_p95=2.0))
    assert measures.value(measured, "mfu", {}).interval == pytest.approx((0.2, 0.8))
    assert measures.value(measured, "gpus", {}).interval is None
    with pytest.raises(UntestableError, match="power_w_per_gpu is not defined"):
        measures.value(measured, "power_w_per_gpu", {})


def test_a_change_between_measured_points_has_their_noise() -> None:
    times = {"iteration_s": 1.0, "iteration_s_p05": 0.8, "iteration_s_p95": 1.25, "provenance": "measured"}
    one, other = (made.row(words_per_second=rate, **times) for rate in (100.0, 50.0))
    found = measures.change(one, other, "words_per_second")
    assert found.value == pytest.approx(-0.5)
    assert found.interval == pytest.approx((40 / 125 - 1, 62.5 / 80 - 1))
    predicted = {**times, "provenance": "predicted"}
    assert measures.change(made.row(**predicted), made.row(**predicted), "words_per_second").interval is None


def test_a_difference() -> None:
    assert measures.difference(made.row(mfu=0.5), made.row(mfu=0.3), "mfu").value == pytest.approx(-0.2)


def test_spread_and_steps() -> None:
    assert measures.spread(line([2.0, 3.0, 2.5]), "mfu").value == pytest.approx(0.5)
    assert measures.trend(line([2.0, 3.0, 2.7]), "mfu", "rising").value == pytest.approx(-0.1)
    assert measures.trend(line([4.0, 2.0, 1.9]), "mfu", "falling").value == pytest.approx(-0.05)


@bounded
@given(lines)
def test_a_trend_is_monotone_just_where_its_values_are(values: list[float]) -> None:
    rising = measures.trend(line(values), "mfu", "rising").value > 0
    assert rising == all(b > a for a, b in itertools.pairwise(values))
    falling = measures.trend(line(values), "mfu", "falling").value < 0
    assert falling == all(b < a for a, b in itertools.pairwise(values))


@bounded
@given(positive, positive, st.integers(3, 8))
def test_a_straight_line_fits_itself_and_is_extrapolated_without_error(slope: float, start: float, count: int) -> None:
    rows = line([start + slope * 8 * 2**place for place in range(count)])
    assert measures.fit(rows, "mfu", "gpus").value == pytest.approx(1.0)
    small, large = rows.head(count - 1), rows.row(-1, named=True)
    assert measures.extrapolation(small, large, "mfu", "gpus").value == pytest.approx(0.0, abs=1e-6)


def test_an_extrapolation_misses() -> None:
    rows = line([1.0, 2.0, 2.0])  # 8, 16, 32 GPUs; the line through the first two gives 4
    found = measures.extrapolation(rows.head(2), rows.row(-1, named=True), "mfu", "gpus")
    assert found.value == pytest.approx(1.0)


def test_a_slope_turns() -> None:
    convex = [100.0 / gpus for gpus in (8, 16, 32)]
    assert measures.turning(line(convex), "mfu", "gpus").value > 0
    assert measures.turning(line([1.0, 2.0, 3.0]), "mfu", "gpus").value < 0
    with pytest.raises(UntestableError, match="but 2 values"):
        measures.turning(line([1.0, 2.0]), "mfu", "gpus")


def test_a_gain_grows_with_every_step() -> None:
    off, on = line([100.0, 100.0, 100.0]), line([99.0, 101.0, 104.0])
    assert measures.gain(off, on, "mfu", "rising").value == pytest.approx(0.02)


@bounded
@given(st.lists(st.tuples(positive, positive), min_size=3, max_size=9, unique_by=(lambda x: x[0], lambda x: x[1])))
def test_a_rank_correlation_is_that_of_ranks(pairs: list[tuple[float, float]]) -> None:
    frame = made.frame(*(made.row(gpus=8 * 2**n, mfu=a, compute_s=b) for n, (a, b) in enumerate(pairs)))
    ranks = [np.argsort(np.argsort([pair[side] for pair in pairs])) for side in (0, 1)]
    assert measures.correlation(frame, "mfu", "compute_s").value == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_no_correlation_of_few_or_of_equals() -> None:
    for values in ([1.0, 2.0], [1.0, 1.0, 1.0]):
        with pytest.raises(UntestableError, match="no correlation"):
            measures.correlation(line(values), "mfu", "gpus")


def test_a_margin_and_what_outdoes_a_baseline() -> None:
    frame = line([4.0, 2.0, 1.0])
    assert measures.margin(frame.head(2), frame.tail(1), "mfu").value == 2.0
    base = frame.row(1, named=True)
    assert measures.outdoing(frame, base, ["mfu"], [])["mfu"].to_list() == [4.0]
    assert measures.outdoing(frame, base, [], ["mfu"])["mfu"].to_list() == [1.0]
    assert measures.outdoing(frame, base, ["mfu"], ["gpus"])["mfu"].to_list() == [4.0]


def test_a_line_has_the_fastest_of_each_value_in_the_order_given() -> None:
    frame = made.frame(
        *(made.row(model=model, tp=tp, words_per_second=float(tp)) for model in ("b", "a", "c") for tp in (1, 2))
    )
    found = measures.line(frame, "model", ["c", "a"])
    assert found.select("model", "tp").rows() == [("c", 2), ("a", 2)]
    with pytest.raises(UntestableError, match="but one value"):
        measures.line(frame, "hardware")
    with pytest.raises(UntestableError, match="cannot join runs of a, b, c"):
        measures.line(frame, "tp")
    with pytest.raises(UntestableError, match="no run has d"):
        measures.line(frame, "model", ["c", "d"])
