"""Two campaigns: what moved beyond its noise, and what did not."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.errors import UserError
from scaling_study.records import read_records
from scaling_study.records.comparison import compare
from tests.unit.present.synthetic import call_row, frame, mini_data_parallel, record
from tests.unit.samples import ROOT, bounded


def timed(seconds: float, low: float, high: float, **fields) -> dict:
    """A measured run whose iterations have these percentiles."""
    row = record(iteration_s=seconds, **fields)
    return row | {"iteration_s_p05": low, "iteration_s_p95": high}


def numbers(a: pl.DataFrame, b: pl.DataFrame, metric: str = "iteration_s") -> dict:
    return compare(a, b).numbers.filter(metric=metric).row(0, named=True)


def test_records_do_not_move_against_themselves() -> None:
    for path in (ROOT / "results/cached").glob("*/*/data_parallel.parquet"):
        records = read_records(path)
        found = compare(records, records)
        assert found.numbers.height
        assert found.moved.is_empty()
        assert (found.outcomes.height, found.only_a, found.only_b) == (0, (), ())


@pytest.mark.parametrize(("low", "moved"), [(1.04, False), (1.06, True)])
def test_a_time_moved_where_percentile_ranges_are_apart(low: float, moved: bool) -> None:
    found = numbers(frame(timed(1.0, 0.95, 1.05)), frame(timed(1.2, low, 1.3)))
    assert found["moved"] is moved
    assert found["change"] == pytest.approx(0.2)
    assert (found["a_low"], found["a_high"], found["b_low"]) == pytest.approx((0.95, 1.05, low))


@bounded
@given(st.floats(0.9, 1.1), st.floats(0.01, 0.2), st.floats(0.01, 0.2))
def test_what_moved_is_the_same_in_both_directions(factor: float, down: float, up: float) -> None:
    a, b = (frame(timed(one, one * (1 - down), one * (1 + up))) for one in (1.0, factor))
    assert numbers(a, b)["moved"] == numbers(b, a)["moved"]
    assert numbers(a, b)["moved"] == (factor * (1 + up) < 1 - down or 1 + up < factor * (1 - down))


def test_other_metrics_have_the_room_of_the_iterations() -> None:
    a = timed(1.0, 0.9, 1.1) | {"compute_s": 1.0, "peak_memory_gib": 10.0}
    b = timed(1.0, 0.9, 1.1) | {"compute_s": 1.15, "peak_memory_gib": 13.0}
    assert numbers(frame(a), frame(b), "compute_s")["moved"] is False
    found = numbers(frame(a), frame(b), "peak_memory_gib")
    assert found["moved"] is True
    assert (found["a_low"], found["a_high"]) == pytest.approx((9.0, 11.0))


def test_repeats_are_one_number_with_the_range_of_all() -> None:
    a = frame(timed(1.0, 0.95, 1.05, run_id="r0"), timed(1.4, 1.35, 1.45, run_id="r1", repeat=1))
    found = numbers(a, frame(timed(1.3, 1.2, 1.32, run_id="r0")))
    assert found["a"] == pytest.approx(1.2)
    assert (found["a_low"], found["a_high"]) == pytest.approx((0.95, 1.45))
    assert found["moved"] is False
    assert compare(a, a).repeated
    assert not compare(a, a.head(1)).repeated


@pytest.mark.parametrize(("factor", "moved"), [(1 + 1e-9, False), (1 + 1e-4, True)])
def test_predictions_move_beyond_their_last_digits(factor: float, moved: bool) -> None:
    rows = [record(provenance="predicted", iteration_s=seconds) for seconds in (1.0, factor)]
    assert numbers(frame(rows[0]), frame(rows[1]))["moved"] is moved


@pytest.mark.parametrize(("seconds", "moved"), [(1.1, False), (1.4, True)])
def test_a_measurement_beside_its_prediction(seconds: float, moved: bool) -> None:
    predicted = record(provenance="predicted", iteration_s=1.0)
    predicted |= {"iteration_s_p05": None, "iteration_s_p95": None, "iteration_s_low": 0.9, "iteration_s_high": 1.2}
    found = numbers(frame(predicted), frame(timed(seconds, seconds * 0.99, seconds * 1.01)))
    assert (found["provenance_a"], found["provenance_b"], found["moved"]) == ("predicted", "measured", moved)


@pytest.mark.parametrize(
    ("precision", "loss", "moved"), [("fp32", 3.0 + 1e-6, False), ("fp32", 3.001, True), ("bf16", 3.1, None)]
)
def test_losses_in_fp32_are_the_same(precision: str, loss: float, moved: bool | None) -> None:
    rows = [record(precision=precision) | {"final_loss": one} for one in (3.0, loss)]
    found = compare(frame(rows[0]), frame(rows[1])).numbers.filter(metric="final_loss")
    assert found["moved"].to_list() == ([] if moved is None else [moved])


def test_collectives_move_by_their_calls() -> None:
    call = call_row(op="all_gather", nodes=4, message_bytes=2**20)
    assert numbers(frame(call), frame(call), "call_s")["moved"] is False
    slower = {name: 3 * value if name.startswith("call_s") and value else value for name, value in call.items()}
    assert numbers(frame(call), frame(slower), "call_s")["change"] == pytest.approx(2.0)


def test_runs_of_one_only_and_other_ends() -> None:
    records = mini_data_parallel()
    ended = records.head(1).with_columns(outcome=pl.lit("out_of_memory"))
    found = compare(records, pl.concat([ended, records.slice(1, 1)]))
    assert found.outcomes["b"].to_list() == ["out_of_memory"]
    assert found.only_a == tuple(records.slice(2)["run_id"].sort())
    assert not found.only_b


def test_nothing_in_common_is_an_error() -> None:
    with pytest.raises(UserError, match="no run in common"):
        compare(frame(record(model="a")), frame(record(model="b")))


def test_the_largest_change_is_first() -> None:
    a = frame(*(timed(1.0, 0.99, 1.01, dp=dp) for dp in (1, 2, 4)))
    b = frame(*(timed(one, one * 0.99, one * 1.01, dp=dp) for dp, one in ((1, 1.2), (2, 0.5), (4, 1.0))))
    moved = compare(a, b).moved.filter(metric="iteration_s")
    assert moved["change"].to_list() == pytest.approx([-0.5, 0.2])
