"""Bus bandwidth by nccl-tests' conventions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.roofline import bus_factor
from scaling_study.spec import CollectiveOp
from tests.unit.samples import bounded


@pytest.mark.parametrize(
    ("op", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 4, 0.75),
        ("send_recv", 64, 1.0),
    ],
)
def test_the_factors_that_nccl_tests_prints(op, ranks, factor):
    assert bus_factor(CollectiveOp(op), ranks) == factor


@bounded
@given(st.integers(2, 4096))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(ranks):
    parts = bus_factor(CollectiveOp.REDUCE_SCATTER, ranks) + bus_factor(CollectiveOp.ALL_GATHER, ranks)
    assert bus_factor(CollectiveOp.ALL_REDUCE, ranks) == pytest.approx(parts)


def test_one_rank_has_no_bus():
    with pytest.raises(ValueError, match="at least two ranks, not 1"):
        bus_factor(CollectiveOp.ALL_REDUCE, 1)
