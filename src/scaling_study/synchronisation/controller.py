"""Adaptive pacing: how long a rank that keeps arriving early holds back before it enters a gradient synchronisation.

Each rank has a controller of its own; what they share are maxima: when the last rank arrived at each synchronisation,
and how long the slowest rank's iteration took, of `EXCHANGE_EVERY` iterations at once and as many iterations late.
Arrivals are counted as they would have been without holding back, so that holds cannot feed on each other: the rank
that is last has no slack, whatever others do.

State. `slack_s` and `deviation_s`: moving averages of how early the rank arrives at a synchronisation, and of how far
that strays; `hold_s`: the delay before each; `paced`: whether holds are applied; the iteration times of the blocks
that are being compared.

Control. With x the slack of an iteration, g the gain and m the margin:

    slack += g (x - slack)      deviation += g (|x - slack| - deviation)
    hold  += g (clip(slack - m deviation, 0, limit) - hold)

Gain. Two first-order filters in a row, without a loop through the plant, since x does not depend on hold: both poles
are 1 - g. Stable for 0 < g < 2, without overshoot for g <= 1; a step of slack is followed to 90% in 14 iterations with
the default of 0.25, and late news only delays it.

Bound. `limit` is `bound` times the median iteration without pacing, over the synchronisations of an iteration. Holds of
a rank in an iteration never add up to more than `bound` of an iteration, whatever the arrivals.

Off. Blocks of iterations without and with holds alternate. After `pairs` of each, pacing stays on only where it helped:
iterations not longer than by `tolerance`, and clearly shorter or steadier (`helped`). Otherwise it is off for
`rest` iterations before it is tried again, each time twice as long. Where it stays on, it is tried anew after `rest`.
Every rank sees the same times, so that all of a group decide alike. Holds delay only when a rank enters a collective:
no value that is computed depends on them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from scaling_study.spec.synchronisation import Verdict

#: How many iterations ranks exchange at once. News is taken in when the next is sent: it has long arrived by then.
EXCHANGE_EVERY = 4
#: Of one rank, or of many that share their trials: then one controller stands for all of them.
Seconds = float | NDArray[np.float64]


class PacingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the controller.

    Attributes:
        gain: of the moving averages and of the hold, each iteration.
        margin: deviations of its slack that a rank keeps.
        bound: of an iteration that a rank may hold back in all.
        block: iterations with, or without, holds before the other turn.
        pairs: of blocks that a verdict is made of.
        tolerance: of the mean iteration time, relative; below it there is no difference.
        steadier: by how much the standard deviation must fall to be a help by itself, relative.
        rest: iterations between a verdict and the next trial.
    """

    gain: float = 0.25
    margin: float = 2.0
    bound: float = 0.05
    block: int = 4
    pairs: int = 2
    tolerance: float = 0.01
    steadier: float = 0.5
    rest: int = 50

    def __post_init__(self) -> None:
        if not 0 < self.gain <= 1:
            raise ValueError(f"gain ({self.gain}) must be above 0 and at most 1: it would overshoot")
        if not 0 <= self.bound < 1:
            raise ValueError(f"bound ({self.bound}) must be a fraction of an iteration")
        if min(self.block, self.pairs, self.rest) < 1:
            raise ValueError("block, pairs and rest are numbers of iterations or blocks, at least 1")


class Phase(StrEnum):
    """What a controller is doing."""

    WITHOUT = "trial, without holds"
    WITH = "trial, with holds"
    KEPT = "kept on"
    REJECTED = "turned off"


class PacingController:
    """The controller of one rank, or in a simulation of many.

    Args:
        synchronisations: held ones of an iteration.
        settings: its constants.
    """

    def __init__(self, synchronisations: int, settings: PacingSettings | None = None) -> None:
        self.settings = settings or PacingSettings()
        self.synchronisations = max(1, synchronisations)
        self.slack_s: Seconds = 0.0
        self.deviation_s: Seconds = 0.0
        self._wanted_s: Seconds = 0.0
        self.phase = Phase.WITHOUT
        self.verdicts: list[Verdict] = []
        self._iteration = self._in_phase = 0
        self._rest = self.settings.rest
        self._times: dict[Phase, list[float]] = {Phase.WITHOUT: [], Phase.WITH: []}
        self._reference_s: float | None = None

    @property
    def paced(self) -> bool:
        """Whether holds are applied in the next iteration."""
        return self.phase in (Phase.WITH, Phase.KEPT)

    @property
    def hold_s(self) -> Seconds:
        """The delay before each synchronisation of the next iteration; 0 where it is not paced."""
        return np.minimum(self._wanted_s, self.limit_s) if self.paced else 0.0

    @property
    def limit_s(self) -> float:
        """The longest delay before a synchronisation; 0 until an iteration without holds is known."""
        if self._reference_s is None:
            return 0.0
        return self.settings.bound * self._reference_s / self.synchronisations

    def observe(self, slack_s: Seconds, iteration_s: float, *, paced: bool | None = None) -> None:
        """Take in an iteration.

        Args:
            slack_s: by how much this rank came before the last one, mean over held synchronisations, holds of both
                not counted; never negative.
            iteration_s: of the slowest rank.
            paced: whether holds were applied in it, if that is not as now: such an iteration counts for no trial.
        """
        self._iteration += 1
        if paced is None or paced == self.paced:
            self._count(iteration_s)
        gain = self.settings.gain
        self.deviation_s = self.deviation_s + gain * (np.abs(slack_s - self.slack_s) - self.deviation_s)
        self.slack_s = self.slack_s + gain * (slack_s - self.slack_s)
        target_s = np.clip(self.slack_s - self.settings.margin * self.deviation_s, 0.0, self.limit_s)
        self._wanted_s = self._wanted_s + gain * (target_s - self._wanted_s)

    def _count(self, iteration_s: float) -> None:
        """Iteration times decide what comes next."""
        self._in_phase += 1
        if self.phase in self._times:
            self._times[self.phase].append(iteration_s)
        if self.phase is Phase.WITHOUT:
            self._reference_s = statistics.median(self._times[Phase.WITHOUT])
        if self.phase in (Phase.KEPT, Phase.REJECTED):
            if self._in_phase >= self._rest:
                self._times = {Phase.WITHOUT: [], Phase.WITH: []}
                self._enter(Phase.WITHOUT)
        elif self._in_phase >= self.settings.block:
            full = self.settings.block * self.settings.pairs
            if self.phase is Phase.WITH and len(self._times[Phase.WITH]) >= full:
                self._judge()
            else:
                self._enter(Phase.WITH if self.phase is Phase.WITHOUT else Phase.WITHOUT)

    def _judge(self) -> None:
        without, paced = self._times[Phase.WITHOUT], self._times[Phase.WITH]
        found = Verdict(
            iteration=self._iteration,
            kept=helped(without, paced, self.settings),
            mean_without_s=statistics.fmean(without),
            mean_with_s=statistics.fmean(paced),
            deviation_without_s=statistics.pstdev(without),
            deviation_with_s=statistics.pstdev(paced),
        )
        again = self.verdicts and not self.verdicts[-1].kept and not found.kept
        self._rest = self._rest * 2 if again else self.settings.rest
        self.verdicts.append(found)
        self._enter(Phase.KEPT if found.kept else Phase.REJECTED)

    def _enter(self, phase: Phase) -> None:
        self.phase, self._in_phase = phase, 0


def helped(without_s: Sequence[float], with_s: Sequence[float], settings: PacingSettings) -> bool:
    """Whether iterations with holds are no longer, and clearly shorter or steadier, than those without.

    Clearly shorter: by `tolerance` and by two standard errors of the difference, so that noise alone seldom counts.
    """
    mean, base = statistics.fmean(with_s), statistics.fmean(without_s)
    spread, base_spread = statistics.pstdev(with_s), statistics.pstdev(without_s)
    if mean > base * (1 + settings.tolerance):
        return False
    error_s = math.sqrt(spread**2 / len(with_s) + base_spread**2 / len(without_s))
    shorter = base - mean > max(settings.tolerance * base, 2 * error_s)
    return shorter or spread < base_spread * (1 - settings.steadier)
