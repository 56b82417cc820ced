"""Unions and exposed time of a timeline equal a count of every single nanosecond."""

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scaling_study.spec import SpanKind
from scaling_study.timeline import SCHEMA, Exposure, exposure, segments, unions
from tests.unit.samples import bounded

COMPUTE, COMMUNICATION, MEMORY = SpanKind.COMPUTE, SpanKind.COMMUNICATION, SpanKind.MEMORY


def timeline(*spans):
    """A span table of (rank, kind, axis, start, end)."""
    rows = [
        {"rank": rank, "stream": "0", "kind": kind.value, "op": "op", "axis": axis, "start_ns": start, "end_ns": end}
        for rank, kind, axis, start, end in spans
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


def by_hand(spans):
    """The same by counting nanoseconds."""

    def covered(chosen):
        return {now for _, _, _, start, end in chosen for now in range(start, end)}

    axes = sorted({axis or "unknown" for _, kind, axis, _, _ in spans if kind is COMMUNICATION})
    found = {}
    for rank in {span[0] for span in spans}:
        mine = [span for span in spans if span[0] == rank]
        compute = covered(span for span in mine if span[1] is COMPUTE)
        communication = [span for span in mine if span[1] is COMMUNICATION]
        per_axis = {name: covered(s for s in communication if (s[2] or "unknown") == name) for name in axes}
        everything = covered(communication)
        found[rank] = Exposure(
            compute_ns=len(compute),
            communication_ns=len(everything),
            exposed_communication_ns=len(everything - compute),
            communication_by_axis_ns={name: len(when) for name, when in per_axis.items()},
            exposed_by_axis_ns={name: len(when - compute) for name, when in per_axis.items()},
        )
    return found


interval = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair)))
span = st.tuples(
    st.integers(0, 2),
    st.sampled_from([COMPUTE, COMMUNICATION, MEMORY]),
    st.sampled_from(["dp", "tp", "pp", None]),
    interval,
).map(lambda parts: (*parts[:3], *parts[3]))


@bounded
@given(st.lists(span, max_size=12))
@example([(0, COMMUNICATION, "dp", 5, 5)])
@example([(0, COMPUTE, None, 0, 4), (1, COMMUNICATION, "dp", 2, 2)])
def test_equals_a_count_of_every_nanosecond(spans):
    assert exposure(timeline(*spans)) == by_hand(spans)


@bounded
@given(st.lists(span, max_size=12))
def test_unions_are_a_count_of_every_nanosecond(spans):
    mine = [(0, *rest) for _, *rest in spans]
    layers = {"any": pl.lit(value=True), "memory": pl.col("kind") == MEMORY}
    covered = [
        {now for _, kind, _, start, end in mine if kind in kinds for now in range(start, end)}
        for kinds in (set(SpanKind), {MEMORY})
    ]
    assert unions(timeline(*mine), layers) == {"any": len(covered[0]), "memory": len(covered[1])}


@bounded
@given(st.lists(span, min_size=1, max_size=10), st.integers(-(10**18), 10**18))
def test_does_not_depend_on_where_time_begins(spans, shift):
    moved = [(rank, kind, axis, start + shift, end + shift) for rank, kind, axis, start, end in spans]
    assert exposure(timeline(*moved)) == exposure(timeline(*spans))


@bounded
@given(st.lists(span, min_size=1, max_size=10), st.randoms())
def test_does_not_depend_on_the_order_of_rows(spans, random):
    shuffled = random.sample(spans, len(spans))
    assert exposure(timeline(*shuffled)) == exposure(timeline(*spans))


@bounded
@given(st.lists(span, max_size=8), st.lists(span, max_size=8))
def test_more_compute_never_exposes_more(spans, more):
    added = [(rank, COMPUTE, None, start, end) for rank, _, _, start, end in more]
    before, after = exposure(timeline(*spans)), exposure(timeline(*spans, *added))
    for rank, seen in before.items():
        assert after[rank].communication_ns == seen.communication_ns
        assert after[rank].exposed_communication_ns <= seen.exposed_communication_ns
        assert after[rank].compute_ns >= seen.compute_ns


def test_no_spans_no_ranks():
    assert exposure(pl.DataFrame(schema=SCHEMA)) == {}


def test_by_hand():
    spans = [
        (0, COMPUTE, None, 0, 100),
        (0, COMPUTE, None, 50, 120),  # overlaps: the union is 120
        (0, COMMUNICATION, "dp", 110, 200),  # 80 exposed
        (0, COMMUNICATION, "tp", 150, 160),  # inside dp's
        (1, COMMUNICATION, "dp", 0, 30),  # another rank's compute hides nothing
        (1, MEMORY, None, 0, 30),  # nor does memory
    ]
    assert exposure(timeline(*spans)) == {
        0: Exposure(
            compute_ns=120,
            communication_ns=90,
            exposed_communication_ns=80,
            communication_by_axis_ns={"dp": 90, "tp": 10},
            exposed_by_axis_ns={"dp": 80, "tp": 10},
        ),
        1: Exposure(
            compute_ns=0,
            communication_ns=30,
            exposed_communication_ns=30,
            communication_by_axis_ns={"dp": 30, "tp": 0},
            exposed_by_axis_ns={"dp": 30, "tp": 0},
        ),
    }


def test_touching_spans_join_without_a_gap_or_an_overlap():
    seen = exposure(
        timeline(
            (0, COMPUTE, None, 0, 10),
            (0, COMPUTE, None, 10, 20),
            (0, COMMUNICATION, "dp", 20, 30),
            (0, COMMUNICATION, "dp", 30, 35),
        )
    )[0]
    assert (seen.compute_ns, seen.communication_ns, seen.exposed_communication_ns) == (20, 15, 15)


def test_a_span_without_axis_is_unknown():
    seen = exposure(timeline((0, COMMUNICATION, None, 0, 5)))[0]
    assert seen.communication_by_axis_ns == {"unknown": 5}


def test_absolute_nanoseconds_are_exact():
    epoch = 1_767_225_600_000_000_000  # far above 2**53
    seen = exposure(timeline((0, COMPUTE, None, epoch, epoch + 1), (0, COMMUNICATION, "dp", epoch, epoch + 3)))[0]
    assert (seen.compute_ns, seen.communication_ns, seen.exposed_communication_ns) == (1, 3, 2)


def test_segments_cut_at_every_boundary_and_count_what_is_active():
    spans = timeline((0, COMPUTE, None, 0, 10), (0, COMPUTE, None, 5, 10), (0, COMMUNICATION, "dp", 7, 12))
    layers = {"compute": pl.col("kind") == COMPUTE, "communication": pl.col("kind") == COMMUNICATION}
    assert segments(spans, layers).rows() == [(0, 0, 5, 1, 0), (0, 5, 7, 2, 0), (0, 7, 10, 2, 1), (0, 10, 12, 0, 1)]


@pytest.mark.parametrize("by", ["rank", "stream"])
def test_segments_are_apart_for_each_value(by):
    spans = timeline((0, COMPUTE, None, 0, 4), (1, COMPUTE, None, 2, 6)).with_columns(
        pl.Series("stream", ["a", "b"], dtype=pl.String)
    )
    found = segments(spans, {"compute": pl.lit(True)}, by=by).select("start_ns", "end_ns", "compute")
    assert found.rows() == [(0, 4, 1), (2, 6, 1)]
