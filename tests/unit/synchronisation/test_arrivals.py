"""What arrivals say, against cases worked out by hand."""

import numpy as np
import pytest

from scaling_study.spec.synchronisation import Cause
from scaling_study.synchronisation.arrivals import GroupArrivals, last_ranks, sample_of, skew_of_axis


def group(own, processor, away, *, transfer=0.1, hosts=None, held=None, ranks=None, axis="dp"):
    """Ranks that leave each synchronisation together; `own` is (rank, iteration, place)."""
    own = np.asarray(own, dtype=float)
    held = np.zeros_like(own) if held is None else np.asarray(held, dtype=float)
    transfer = np.broadcast_to(np.asarray(transfer, dtype=float), own.shape[1:])
    arrived, done, clock = np.zeros_like(own), np.zeros_like(own), 0.0
    for iteration, place in np.ndindex(own.shape[1:]):
        at = (slice(None), iteration, place)
        arrived[at] = clock + own[at]
        clock = (arrived[at] + held[at]).max() + transfer[iteration, place]
        done[at] = clock
    return GroupArrivals(
        axis=axis,
        ranks=tuple(ranks or range(len(own))),
        hosts=tuple(hosts or ["a"] * len(own)),
        arrived_s=arrived,
        held_s=held,
        done_s=done,
        own_s=own,
        processor_s=np.asarray(processor, dtype=float),
        away_s=np.asarray(away, dtype=float),
    )


def late_rank(compute, host):
    """Three ranks, two iterations of two places; the middle one is late once an iteration by so much of each cause."""
    own = np.ones((3, 2, 2))
    own[1, :, 0] += compute + host
    processor, away = np.full((3, 2), 2.0), np.zeros((3, 2))
    processor[1] += compute
    away[1] += host
    return group(own, processor, away)


@pytest.mark.parametrize(("compute", "host"), [(0.4, 0.0), (0.0, 0.4), (0.3, 0.1)])
def test_a_late_rank_is_named_and_its_lateness_split_by_what_it_did(compute, host):
    arrivals = late_rank(compute, host)
    lost = skew_of_axis([arrivals]).lost_s
    assert lost == pytest.approx(
        {Cause.COMPUTE: compute, Cause.HOST: host, Cause.NETWORK: 0, Cause.TOPOLOGY: 0, Cause.LOCALITY: 0}, abs=1e-12
    )
    ranks = last_ranks([arrivals])
    assert [one.rank for one in ranks] == [0, 1, 2]
    assert ranks[1].lost_s[Cause.COMPUTE] == pytest.approx(compute)
    assert ranks[1].lost_s[Cause.HOST] == pytest.approx(host)
    assert ranks[1].share == 0.5  # at the other place all arrive together, and the first counts
    assert ranks[2].lost_s == pytest.approx(dict.fromkeys(ranks[2].lost_s, 0.0), abs=1e-12)


def test_skew_and_waiting():
    skew = skew_of_axis([late_rank(0.4, 0.0)])
    assert (skew.ranks, skew.synchronisations) == (3, 2)
    assert skew.skew_s == pytest.approx(0.2)  # 0.4 at one place of two
    assert skew.skew_s_p95 == pytest.approx(0.4)
    assert skew.waited_s == pytest.approx(0.4 * 2 / 3)  # two of three ranks wait


def test_a_transfer_that_is_slow_at_times_is_network_and_nobodys():
    own = np.ones((2, 4, 1))
    transfer = np.array([[0.1], [0.1], [0.1], [0.5]])
    arrivals = group(own, np.ones((2, 4)), np.zeros((2, 4)), transfer=transfer)
    lost = skew_of_axis([arrivals]).lost_s
    assert lost[Cause.NETWORK] == pytest.approx(0.1)  # 0.4 in one iteration of four
    assert sum(lost.values()) == pytest.approx(0.1)
    assert all(value == pytest.approx(0) for one in last_ranks([arrivals]) for value in one.lost_s.values())


@pytest.mark.parametrize(("hosts", "cause"), [(["a", "a"], Cause.TOPOLOGY), (["a", "b"], Cause.LOCALITY)])
def test_a_group_that_is_always_slower_is_topology_or_locality(hosts, cause):
    own, used, away = np.ones((2, 3, 2)), np.ones((2, 3)), np.zeros((2, 3))
    near = group(own, used, away, transfer=0.1)
    far = group(own, used, away, transfer=0.3, hosts=hosts, ranks=[2, 3])
    lost = skew_of_axis([near, far]).lost_s
    assert lost[cause] == pytest.approx(0.2 * 2 / 2)  # two synchronisations, mean over two groups
    assert sum(lost.values()) == pytest.approx(lost[cause])


def test_a_rank_that_was_let_go_later_is_late_by_the_network():
    arrivals = late_rank(0.0, 0.0)
    arrivals.arrived_s[2, :, 1] += 0.25  # without having done more of its own
    lost = skew_of_axis([arrivals]).lost_s
    assert lost[Cause.NETWORK] >= 0.25
    assert lost[Cause.COMPUTE] == lost[Cause.HOST] == 0


def test_a_hold_that_makes_a_rank_last_is_the_hosts():
    held = np.zeros((3, 1, 1))
    held[0] = 0.2
    arrivals = group(np.ones((3, 1, 1)), np.ones((3, 1)), [[0.2], [0.0], [0.0]], held=held)
    assert skew_of_axis([arrivals]).lost_s[Cause.HOST] == pytest.approx(0.2)


def test_causes_add_up_to_the_time_lost_whatever_arrives():
    random = np.random.default_rng(7)
    own = 1 + random.exponential(0.3, (5, 6, 4))
    arrivals = group(own, random.random((5, 6)), random.random((5, 6)), transfer=0.1)
    late = (arrivals.entered_s.max(axis=0) - np.median(arrivals.entered_s, axis=0)).sum(axis=1).mean()
    assert sum(skew_of_axis([arrivals]).lost_s.values()) == pytest.approx(late)
    by_rank = sum(value for one in last_ranks([arrivals]) for value in one.lost_s.values())
    assert by_rank == pytest.approx(late)


def test_the_sample_is_the_median_iteration_from_its_first_arrival():
    own = np.ones((3, 3, 1))
    own[2, :, 0] += [0.1, 0.5, 0.3]
    sample = sample_of(group(own, np.ones((3, 3)), np.zeros((3, 3))), [4, 5, 6])
    assert sample.iteration == 6
    assert sample.arrived_s == [[0.0], [0.0], [pytest.approx(0.3)]]
    assert sample.done_s[0] == [pytest.approx(0.4)]
