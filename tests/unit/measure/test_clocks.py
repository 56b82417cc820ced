"""One clock for ranks of several machines, whose clocks are made to differ here."""

import time

import torch.distributed as dist

from scaling_study.measure.clocks import machine, offset_to_rank_0
from tests.ranks import run_on_ranks

AHEAD_NS = (0, 0, 5_000_000_000, 5_000_000_000, -3_000_000_000)


def found_offset():
    """What a rank finds whose machine's clock is ahead by so much; ranks with equal clocks share a machine."""
    ahead = AHEAD_NS[dist.get_rank()]
    return offset_to_rank_0(f"machine {ahead}", lambda: time.perf_counter_ns() + ahead)


def test_offsets_are_found_within_their_own_error():
    for rank, (offset_ns, error_ns) in enumerate(run_on_ranks(found_offset, len(AHEAD_NS))):
        assert abs(offset_ns + AHEAD_NS[rank]) <= error_ns
        assert error_ns < 50_000_000
        assert (error_ns == 0) == (AHEAD_NS[rank] == 0)


def test_ranks_of_one_machine_share_its_clock():
    assert machine() == machine()
    assert run_on_ranks(offset_here, 2) == [(0, 0), (0, 0)]


def offset_here():
    return offset_to_rank_0(machine())
