"""From what every rank's observer kept to what the run says of its synchronisations."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from scaling_study.spec import Axis
from scaling_study.spec.synchronisation import Synchronisation, Verdict
from scaling_study.synchronisation.arrivals import GroupArrivals, last_ranks, sample_of, skew_of_axis
from scaling_study.synchronisation.controller import EXCHANGE_EVERY

Columns = dict[str, list[int]]


class RankArrivals(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank's observer kept; on the common clock, nanoseconds.

    Attributes:
        spent_ns: of each iteration, time inside the observer, and of all of it.
        used_ns: since the iteration before ended, processor time, and time that was neither that nor waiting.
        verdicts: of the rank's controller.
        calls: of each axis, columns of its collectives in order.
        members: of each axis, the ranks of this rank's group.
    """

    rank: int
    host: str
    clock_error_ns: int
    spent_ns: list[tuple[int, int]]
    used_ns: list[tuple[int, int]]
    verdicts: list[Verdict]
    calls: dict[str, Columns]
    members: dict[str, list[int]]


def synchronisation_of(everyone: Sequence[RankArrivals], discard: int) -> Synchronisation:
    """What the ranks of a run saw together.

    Args:
        everyone: in rank order.
        discard: first iterations to leave out.
    """
    by_axis = {axis.value: _groups(everyone, axis.value, discard) for axis in Axis}
    groups = {axis: [group for group, _ in found] for axis, found in by_axis.items() if found}
    held = [group.held_s.sum(axis=2) for found in groups.values() for group in found]
    sampled = next((by_axis[axis][0] for axis in (Axis.DATA, Axis.TENSOR, Axis.PIPELINE) if by_axis[axis]), None)
    return Synchronisation(
        axes=[skew_of_axis(found) for found in groups.values()],
        last=[one for found in groups.values() for one in last_ranks(found)],
        overhead=max(_overhead(one.spent_ns[discard:]) for one in everyone),
        clock_error_s=2 * max(one.clock_error_ns for one in everyone) / 1e9,
        held_s=statistics.fmean(float(values.mean()) for values in held) if held else 0.0,
        held_s_largest=max((float(values.max()) for values in held), default=0.0),
        verdicts=everyone[0].verdicts,
        sample=sample_of(*sampled) if sampled else None,
    )


def _overhead(spent_ns: Sequence[tuple[int, int]]) -> float:
    """Time inside the observer over iteration time: the median over windows, each of which holds one exchange."""
    windows = [spent_ns[start : start + EXCHANGE_EVERY] for start in range(0, len(spent_ns), EXCHANGE_EVERY)]
    whole = [one for one in windows if len(one) == EXCHANGE_EVERY] or windows
    return statistics.median(sum(own for own, _ in one) / sum(taken for _, taken in one) for one in whole)


def _groups(everyone: Sequence[RankArrivals], axis: str, discard: int) -> list[tuple[GroupArrivals, list[int]]]:
    """The groups of an axis, each with the numbers of its iterations."""
    members = {tuple(one.members[axis]) for one in everyone if axis in one.members}
    found = [_group([everyone[rank] for rank in ranks], axis, discard) for ranks in sorted(members)]
    return [one for one in found if one is not None]


def _group(ranks: list[RankArrivals], axis: str, discard: int) -> tuple[GroupArrivals, list[int]] | None:
    """The synchronisations of a group in every iteration that has as many as most have."""
    counts = [Counter(one.calls[axis]["iteration"]) for one in ranks]
    usual = Counter(count for one in counts for step, count in one.items() if step >= discard).most_common(1)
    if not usual:
        return None
    places = usual[0][0]
    steps = sorted(step for step in counts[0] if step >= discard and all(one[step] == places for one in counts))
    if not steps:
        return None

    def table(column: str) -> np.typing.NDArray[np.float64]:
        return np.stack([_rows(one.calls[axis], column, steps, places) for one in ranks])

    used = np.array([[one.used_ns[step] for step in steps] for one in ranks], dtype=np.float64)
    start_ns = min(one.calls[axis]["arrived_ns"][0] for one in ranks)
    group = GroupArrivals(
        axis=axis,
        ranks=tuple(one.rank for one in ranks),
        hosts=tuple(one.host for one in ranks),
        arrived_s=(table("arrived_ns") - start_ns) / 1e9,
        held_s=table("held_ns") / 1e9,
        done_s=(table("done_ns") - start_ns) / 1e9,
        own_s=table("own_ns") / 1e9,
        processor_s=used[:, :, 0] / 1e9,
        away_s=used[:, :, 1] / 1e9,
    )
    return group, steps


def _rows(calls: Mapping[str, list[int]], column: str, steps: list[int], places: int) -> np.typing.NDArray[np.int64]:
    """One column, an iteration a row."""
    iteration, values = np.array(calls["iteration"]), np.array(calls[column])
    return values[np.isin(iteration, steps)].reshape(len(steps), places)
