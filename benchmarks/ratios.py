"""Medians, and how sure a ratio of paired durations is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

_RESAMPLES = 2000
_CONFIDENCE = 0.95


class Spread(msgspec.Struct, frozen=True):
    """The median and the middle half of some numbers."""

    median: float
    low: float
    high: float


class Ratio(msgspec.Struct, frozen=True):
    """A median ratio and its 95% interval."""

    median: float
    low: float
    high: float

    def falls_short_of(self, required: float) -> bool:
        """Whether it is below what is required by more than noise: even the upper end of its interval is."""
        return self.high < required


def spread(values: Sequence[float]) -> Spread:
    """Of at least one number."""
    low, median, high = np.percentile(values, [25, 50, 75]).tolist()
    return Spread(median, low, high)


def paired_ratio(rounds: Sequence[Sequence[tuple[float, float]]]) -> Ratio:
    """The median over rounds of the median ratio of a round's pairs, first to second.

    The interval is a bootstrap of two levels, rounds and then the pairs of a round, since pairs of one round share
    their processes, and with them some luck. The same numbers give the same interval.

    Args:
        rounds: the pairs of each round.
    """
    ratios = [np.array([first / second for first, second in pairs]) for pairs in rounds]
    source = np.random.default_rng(0)
    shape = (_RESAMPLES, len(ratios))
    medians = np.stack([np.median(source.choice(one, (*shape, one.size)), axis=-1) for one in ratios])
    found = np.median(np.take_along_axis(medians, source.integers(len(ratios), size=(1, *shape)), axis=0)[0], axis=-1)
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(found, [tail, 1 - tail]).tolist()
    return Ratio(float(np.median([np.median(one) for one in ratios])), low, high)
