"""Collectives by kind and size, and who waits for whom: matched by group and sequence, with no common clock."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.timeline import DEVICE_SCHEMA, by_collective, exposure_of_groups, waits
from tests.unit.samples import bounded


def device(*rows):
    """Spans of (rank, kind, op, group, bytes, start, end)."""
    names = ("rank", "kind", "op", "group", "bytes", "start_ns", "end_ns")
    return pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows], schema=DEVICE_SCHEMA)


def call(rank, start, end, group="0", op="all_reduce", size=8):
    return (rank, "communication", op, group, size, start, end)


def compute(rank, start, end):
    return (rank, "compute", "gemm", None, None, start, end)


def test_calls_of_one_kind_and_size_are_one_row_the_longest_first():
    found = by_collective(
        device(call(0, 0, 10), call(0, 20, 24), call(1, 0, 7), call(0, 30, 130, size=99), compute(0, 0, 10**6))
    )
    assert found.select("op", "bytes", "calls", "total_ns", "median_ns", "least_ns").rows() == [
        ("all_reduce", 99, 1, 100, 100, 100),
        ("all_reduce", 8, 3, 21, 7, 4),
    ]


def test_who_enters_early_waits_for_who_enters_late():
    found = waits(device(call(0, 100, 160), call(1, 140, 160), call(0, 200, 210), call(1, 195, 210)))
    assert found.select("rank", "calls", "waited_ns", "last_share").rows() == [(0, 2, 40, 0.5), (1, 2, 5, 0.5)]


def test_calls_of_which_a_rank_shows_fewer_are_matched_from_the_last_back():
    found = waits(device(call(0, 0, 500), call(0, 600, 640), call(1, 610, 640)))
    assert found.select("rank", "calls", "waited_ns").rows() == [(0, 1, 10), (1, 1, 0)]


def test_what_has_no_partner_or_is_a_transfer_is_no_wait():
    assert waits(device(call(0, 0, 5), call(1, 0, 7, group="1"))).is_empty()
    assert waits(device(call(0, 0, 5, op="send_recv"), call(1, 0, 7, op="send_recv"))).is_empty()
    assert waits(device()).is_empty()


@bounded
@given(
    arrivals=st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=6),
    offsets=st.lists(st.integers(0, 10**9), min_size=3, max_size=3),
)
def test_clocks_of_ranks_may_differ(arrivals, offsets):
    rows = [
        call(rank, 100 * n + late + offsets[rank], 100 * n + max(entered) + 10 + offsets[rank])
        for n, entered in enumerate(arrivals)
        for rank, late in enumerate(entered)
    ]
    found = {row["rank"]: row for row in waits(device(*rows)).to_dicts()}
    for rank in range(3):
        assert found[rank]["waited_ns"] == sum(max(entered) - entered[rank] for entered in arrivals)
        assert found[rank]["last_share"] == pytest.approx(
            sum(entered[rank] == max(entered) for entered in arrivals) / len(arrivals)
        )


def test_each_group_has_its_own_exposed_communication():
    spans = device(
        compute(0, 0, 10), call(0, 5, 15, group="1"), call(0, 12, 30, group="2"), call(0, 28, 40, group="2"),
        call(1, 0, 4, group="1"), call(1, 7, 7, group="3"), (0, "communication", "x", None, None, 50, 51),
    )  # fmt: skip
    assert exposure_of_groups(spans).select("rank", "group", "communication_ns", "exposed_communication_ns").rows() == [
        (0, "1", 10, 5), (0, "2", 28, 28), (0, "unknown", 1, 1), (1, "1", 4, 4),
    ]  # fmt: skip
    assert exposure_of_groups(device()).is_empty()
