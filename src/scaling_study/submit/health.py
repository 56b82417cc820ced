"""What a check of nodes found: a value a node and quantity, and the nodes that are slower than the others by far."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from scaling_study.spec import RankHealth

#: A node is an outlier when it is below the median by this share of it, and by so many robust standard deviations. 10%
#: is what operators commonly allow between equal nodes; 1.4826 MAD estimates a standard deviation (Rousseeuw and Croux,
#: 1993).
SLOWER_BY, DEVIATIONS = 0.1, 5.0
_MAD_TO_DEVIATION = 1.4826
_LEAST_NODES = 3
QUANTITIES = ("gemm_tflops", "memory_gb_per_s", "within_gb_per_s", "between_gb_per_s")


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is slow in one quantity."""

    node: str
    quantity: str
    value: float
    median: float

    def __str__(self) -> str:
        share = 1 - self.value / self.median
        return f"{self.quantity} {self.value:.3g}, {share:.0%} below the median of {self.median:.3g}"


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """A platform's nodes as a check found them.

    Attributes:
        nodes: by name, then by quantity; the slowest rank of a node counts.
        measured: the median of each quantity over nodes, and the latency of an all-reduce over all ranks.
        exclude: the outliers' names, in the notation of a platform's `exclude`.
    """

    platform: str
    code_version: str
    at: str
    device: str
    ranks: int
    nodes: dict[str, dict[str, float]]
    measured: dict[str, float]
    outliers: list[Outlier]
    exclude: str


def values_of_nodes(ranks: Sequence[RankHealth]) -> dict[str, dict[str, float]]:
    """A value a node and quantity: of its slowest rank; between nodes, with the better of its partners.

    A healthy node next to a bad one is slow with that one only.
    """
    found: dict[str, dict[str, float]] = {}
    for one in ranks:
        values: dict[str, float | None] = {
            "gemm_tflops": one.gemm_tflops,
            "memory_gb_per_s": one.memory_gb_per_s,
            "within_gb_per_s": one.within_gb_per_s,
            "between_gb_per_s": max(one.between_gb_per_s.values(), default=None),
        }
        node = found.setdefault(one.node, {})
        for quantity, value in values.items():
            if value is not None:
                node[quantity] = min(node.get(quantity, value), value)
    return dict(sorted(found.items()))


def outliers(nodes: Mapping[str, Mapping[str, float]]) -> list[Outlier]:
    """Nodes that are slow beyond doubt, by quantity; none of fewer than three nodes, which do not say who is right."""
    found = []
    for quantity in QUANTITIES:
        values = {node: one[quantity] for node, one in nodes.items() if quantity in one}
        if len(values) < _LEAST_NODES:
            continue
        median = statistics.median(values.values())
        deviation = _MAD_TO_DEVIATION * statistics.median(abs(value - median) for value in values.values())
        limit = median - max(SLOWER_BY * median, DEVIATIONS * deviation)
        found += [
            Outlier(node=node, quantity=quantity, value=value, median=median)
            for node, value in values.items()
            if value < limit
        ]
    return found


def health_report(platform: str, code_version: str, at: str, ranks: Sequence[RankHealth]) -> HealthReport:
    """What ranks found, judged."""
    nodes = values_of_nodes(ranks)
    slow = outliers(nodes)
    measured = {
        quantity: statistics.median(values)
        for quantity in QUANTITIES
        if (values := [one[quantity] for one in nodes.values() if quantity in one])
    }
    latencies = [one.latency_us for one in ranks if one.latency_us is not None]
    if latencies:
        measured["latency_us"] = statistics.median(latencies)
    return HealthReport(
        platform=platform,
        code_version=code_version,
        at=at,
        device=ranks[0].device,
        ranks=len(ranks),
        nodes=nodes,
        measured=measured,
        outliers=slow,
        exclude=",".join(sorted({one.node for one in slow})),
    )
