"""What a run under observation says of its synchronisations; part of its result."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Cause(StrEnum):
    """What time lost at synchronisations is due to; `synchronisation.arrivals` says how they are told apart."""

    COMPUTE = "compute_imbalance"
    HOST = "host"
    NETWORK = "network"
    TOPOLOGY = "topology"
    LOCALITY = "locality"


class AxisSkew(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arrivals along one axis; times are of one iteration, means over groups and iterations kept.

    Attributes:
        ranks: of a group.
        synchronisations: in an iteration.
        skew_s, skew_s_p50, skew_s_p95: the last arrival less the first, of one synchronisation.
        waited_s: how long a rank waits for the last one, mean over ranks.
        lost_s: by cause.
    """

    axis: str
    ranks: int
    synchronisations: int
    skew_s: float
    skew_s_p50: float
    skew_s_p95: float
    waited_s: float
    lost_s: dict[Cause, float]


class LastRank(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a rank is the last of its group, and what that costs.

    Attributes:
        share: of synchronisations.
        lost_s: of an iteration, by cause; transfers are nobody's.
    """

    rank: int
    axis: str
    share: float
    lost_s: dict[Cause, float]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a trial of pacing found: mean and standard deviation of iteration times without and with holds, seconds."""

    iteration: int
    kept: bool
    mean_without_s: float
    mean_with_s: float
    deviation_without_s: float
    deviation_with_s: float


class SampleIteration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arrivals of one group in one iteration, that with the median lost time; seconds from the first arrival.

    Attributes:
        ranks: of the group.
        arrived_s, entered_s, done_s: a list of synchronisations for each rank; what is between the first two is a hold.
    """

    axis: str
    iteration: int
    ranks: list[int]
    arrived_s: list[list[float]]
    entered_s: list[list[float]]
    done_s: list[list[float]]


class Synchronisation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was observed beside training, over the iterations kept.

    Attributes:
        overhead: time inside the observer over iteration time, holds not counted: of the rank where it is largest the
            median over windows of a few iterations, each with one exchange, since a rank may be descheduled in it.
        clock_error_s: the most by which two ranks' clocks may differ.
        held_s: what a rank held back in an iteration, mean over ranks and iterations; the largest is of one rank.
        verdicts: of the trials of pacing, of rank 0; empty where none was made.
        sample: None where no axis has several ranks.
    """

    axes: list[AxisSkew]
    last: list[LastRank]
    overhead: float
    clock_error_s: float
    held_s: float
    held_s_largest: float
    verdicts: list[Verdict] = []
    sample: SampleIteration | None = None
