"""What arrivals at synchronisations say: skew, who was last, and what lost time is due to.

A synchronisation is a collective of a group that every member enters once an iteration at the same place. Of each,
the time lost is how much later the last rank arrives than the median rank, plus how much longer the transfer takes
after that than the quickest one at this place. The first part: since it arrived at the synchronisation before, the
last rank was busy with its own for longer than the median rank, or it was let go later (network). Its own is compute
imbalance or host (descheduled, stalled, asleep) in the proportion in which it used more processor time than the median
rank in this iteration, and was off the processor for longer without waiting for a collective. The second part is split
by what is lasting: the quickest transfer of a group over that of the quickest group of its axis is topology where all
its ranks share a host, else locality; what comes and goes is network.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from scaling_study.spec.synchronisation import AxisSkew, Cause, LastRank, SampleIteration

Seconds = NDArray[np.float64]


class GroupArrivals(msgspec.Struct, frozen=True, kw_only=True):
    """The synchronisations of one group over some iterations, on one clock; arrays are (rank, iteration, place).

    Attributes:
        axis: of the mesh that the group lies on.
        ranks: of the whole run, in the order of the arrays.
        hosts: of these ranks.
        arrived_s: when a rank was ready, before any hold.
        held_s: how long it then held back.
        done_s: when it had the result.
        own_s: time since it arrived at the synchronisation before in which it did not wait for a collective or hold.
        processor_s, away_s: (rank, iteration); processor time used in all of the iteration, and time that was neither
            that nor waiting.
    """

    axis: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    arrived_s: Seconds
    held_s: Seconds
    done_s: Seconds
    own_s: Seconds
    processor_s: Seconds
    away_s: Seconds

    @property
    def entered_s(self) -> Seconds:
        """When a rank entered the collective."""
        return self.arrived_s + self.held_s


def _lateness(group: GroupArrivals) -> tuple[NDArray[np.intp], Seconds, dict[Cause, Seconds]]:
    """Of each (iteration, place): the last rank, its lateness over the median rank, and that by cause."""
    entered = group.entered_s
    last = entered.argmax(axis=0)
    late = entered.max(axis=0) - np.median(entered, axis=0)
    busy = group.own_s + group.held_s
    own = np.clip(np.take_along_axis(busy, last[None], axis=0)[0] - np.median(busy, axis=0), 0.0, late)
    host = own * np.take_along_axis(_host_share(group), last.T, axis=0).T
    return last, late, {Cause.COMPUTE: own - host, Cause.HOST: host, Cause.NETWORK: late - own}


def _host_share(group: GroupArrivals) -> Seconds:
    """(rank, iteration): of what a rank did for longer than the median rank, the share that was off the processor."""
    more = [np.maximum(times - np.median(times, axis=0), 0.0) for times in (group.processor_s, group.away_s)]
    whole = more[0] + more[1]
    share: Seconds = np.where(whole > 0, more[1] / np.where(whole > 0, whole, 1.0), 0.0)
    return share


def _transfers(group: GroupArrivals) -> Seconds:
    """(iteration, place): from the last rank's entering to the first rank that has the result.

    A rank that looks later, since it had other work meanwhile, says nothing of the transfer.
    """
    taken: Seconds = np.maximum(group.done_s.min(axis=0) - group.entered_s.max(axis=0), 0.0)
    return taken


def skew_of_axis(groups: list[GroupArrivals]) -> AxisSkew:
    """The skew and the lost time of one axis.

    Args:
        groups: of that axis; those of other pipeline stages may have other synchronisations.
    """
    skews = np.concatenate([(group.entered_s.max(axis=0) - group.entered_s.min(axis=0)).ravel() for group in groups])
    waited = [float((group.entered_s.max(axis=0) - group.entered_s).sum(axis=2).mean()) for group in groups]
    lost = dict.fromkeys(Cause, 0.0)
    quickest = [_transfers(group).min(axis=0) for group in groups]
    for group, own in zip(groups, quickest, strict=True):
        floor = np.min([other for other in quickest if other.shape == own.shape], axis=0)
        causes = {cause: float(values.sum(axis=1).mean()) for cause, values in _lateness(group)[2].items()}
        causes[Cause.NETWORK] += float((_transfers(group) - own).sum(axis=1).mean())
        lasting = Cause.TOPOLOGY if len(set(group.hosts)) == 1 else Cause.LOCALITY
        causes[lasting] = float((own - floor).sum())
        for cause, value in causes.items():
            lost[cause] += value / len(groups)
    return AxisSkew(
        axis=groups[0].axis,
        ranks=len(groups[0].ranks),
        synchronisations=max(group.arrived_s.shape[2] for group in groups),
        skew_s=float(skews.mean()),
        skew_s_p50=float(np.quantile(skews, 0.5)),
        skew_s_p95=float(np.quantile(skews, 0.95)),
        waited_s=float(np.mean(waited)),
        lost_s=lost,
    )


def last_ranks(groups: list[GroupArrivals]) -> list[LastRank]:
    """Every rank of the groups of an axis, in order."""
    found = []
    for group in groups:
        last, _, causes = _lateness(group)
        for index, rank in enumerate(group.ranks):
            mine = last == index
            lost = {cause: float((values * mine).sum(axis=1).mean()) for cause, values in causes.items()}
            found.append(LastRank(rank=rank, axis=group.axis, share=float(mine.mean()), lost_s=lost))
    return sorted(found, key=lambda one: one.rank)


def sample_of(group: GroupArrivals, iterations: list[int]) -> SampleIteration:
    """The iteration of a group in which as much time is lost as in its median one.

    Args:
        iterations: their numbers, in the order of the arrays.
    """
    late = group.entered_s.max(axis=0) - np.median(group.entered_s, axis=0)
    index = int(np.argsort(late.sum(axis=1), kind="stable")[late.shape[0] // 2])
    start_s = group.arrived_s[:, index].min()

    def rows(values: Seconds) -> list[list[float]]:
        return [[round(float(value), 9) for value in row] for row in values[:, index] - start_s]

    return SampleIteration(
        axis=group.axis,
        iteration=iterations[index],
        ranks=list(group.ranks),
        arrived_s=rows(group.arrived_s),
        entered_s=rows(group.entered_s),
        done_s=rows(group.done_s),
    )
