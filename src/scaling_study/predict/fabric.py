"""Iterations by chance: ranks of unequal speed, hosts that pause, links that flows share, with and without pacing.

The performance model says how long an iteration is when nothing varies; this module draws what does, and runs the
controller of `synchronisation.controller` itself on what it draws. An iteration has one synchronisation:

    iteration = last rank's work + exposed communication + (slowdown - 1) communication + early_cost mean earliness

Work is all but exposed communication, times a lasting factor a GPU and one an iteration, and a pause of a host now and
then. The model is fitted on iterations that were as long as their slowest rank, so its work is that of the last GPU on
average: factors are drawn around what puts the expected last one there, and how the mean grows with scale stays the
model's own (`scale_jitter`). Communication that hid behind work is taken to have no slack: what a slower network adds
is exposed.

Slowdown. A group's ring over the nodes crosses leaf switches. Its flows (`queue_pairs` a GPU and neighbour) are hashed
to the uplinks of a leaf once a run, as ECMP does; the ring is as slow as its most loaded uplink. Other jobs take a
part of the uplinks anew each iteration. Neither happens where all nodes hang on the same leaf switches. Placement:
nodes of a job fill a leaf before the next (`packed`), or no two share one (`scattered`).
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from scaling_study.errors import UserError
from scaling_study.spec.explain import explain_validation_error
from scaling_study.spec.load import read_yaml
from scaling_study.synchronisation.controller import EXCHANGE_EVERY, PacingController, PacingSettings

Array = NDArray[np.float64]
Placement = Literal["packed", "scattered"]

_OTHERS_AT_MOST = 0.5  # of an uplink: sharing it fairly, a flow of ours keeps half


class Range(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A parameter: its value, the range that sources leave, and where it comes from."""

    value: float
    low: float
    high: float
    unit: str = ""
    assumed: bool = False
    meaning: str
    source: str

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"value ({self.value}) is not within {self.low}..{self.high}")


class Chance(msgspec.Struct, frozen=True, kw_only=True):
    """One value of every parameter; `config/calibration/fabric.yaml` says what each is."""

    device_spread: float = 0.0
    iteration_jitter: float = 0.0
    stall_probability: float = 0.0
    stall_s: float = 0.0
    queue_pairs: float = 1.0
    background_load: float = 0.0
    early_cost: float = 0.0


class Fabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network of leaf and spine switches.

    Attributes:
        nodes_per_leaf: whose GPUs reach each other without an uplink.
        oversubscription: ports of a leaf down to nodes over those up.
    """

    nodes_per_leaf: int
    oversubscription: float
    source: str


class FabricModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters with their ranges, and the fabrics."""

    parameters: dict[str, Range]
    fabrics: dict[str, Fabric]

    def __post_init__(self) -> None:
        if set(self.parameters) != set(Chance.__struct_fields__):
            different = sorted(set(self.parameters) ^ set(Chance.__struct_fields__))
            raise ValueError(f"parameters must be exactly those of the model; differing: {', '.join(different)}")

    def central(self) -> Chance:
        """Every parameter at its value."""
        return Chance(**{name: one.value for name, one in self.parameters.items()})

    def draw(self, random: np.random.Generator) -> Chance:
        """Every parameter from its range: as likely below its value as above it, evenly on either side."""
        drawn = {}
        for name, one in self.parameters.items():
            ends = (one.low, one.value) if one.low < one.value and random.random() < 0.5 else (one.value, one.high)
            drawn[name] = float(random.uniform(*ends))
        return Chance(**drawn)


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """An iteration when nothing varies.

    Attributes:
        work_s: all of it but exposed communication.
        exposed_s: communication that nothing hides.
        communication_s: all communication between nodes.
    """

    nodes: int
    gpus_per_node: int
    work_s: float
    exposed_s: float
    communication_s: float

    @property
    def iteration_s(self) -> float:
        """Its length."""
        return self.work_s + self.exposed_s


def read_fabric_model(folder: Path) -> FabricModel:
    """The parameters of `fabric.yaml`.

    Args:
        folder: `config/calibration`.

    Raises:
        UserError: the file is missing or not valid.
    """
    path = folder / "fabric.yaml"
    try:
        return msgspec.convert(read_yaml(path), FabricModel)
    except msgspec.ValidationError as error:
        raise explain_validation_error(error, str(path)) from error


def simulate(
    base: Base,
    chance: Chance,
    fabric: Fabric,
    iterations: int,
    random: np.random.Generator,
    pacing: PacingSettings | None = None,
    placement: Placement = "packed",
) -> Array:
    """The lengths of the iterations of one run, in seconds.

    Args:
        random: what is drawn; the same without and with pacing, if it starts the same.
        pacing: constants of the GPUs' controllers; None where nobody holds back.
    """
    work = _work(base, chance, iterations, random)
    slowdown = _slowdown(base, chance, fabric, iterations, random, placement)
    controller = PacingController(1, pacing) if pacing else None
    unsent: list[tuple[Array, float, bool]] = []
    sent: list[tuple[Array, float, bool]] = []
    taken = np.empty(iterations)
    for step in range(iterations):
        entered = work[step] + controller.hold_s if controller else work[step]
        last = float(entered.max())
        transfer = base.exposed_s + (slowdown[step] - 1) * base.communication_s
        taken[step] = last + transfer + chance.early_cost * (last - float(entered.mean()))
        if controller:
            unsent.append((work[step].max() - work[step], float(taken[step]), controller.paced))
        if controller and len(unsent) == EXCHANGE_EVERY:
            for slack, length, paced in sent:
                controller.observe(slack, length, paced=paced)
            sent, unsent = unsent, []
    return taken


def _work(base: Base, chance: Chance, iterations: int, random: np.random.Generator) -> Array:
    """(iteration, GPU): seconds until a GPU arrives at the synchronisation."""
    gpus = base.nodes * base.gpus_per_node
    lasting = random.normal(0.0, chance.device_spread, gpus)
    passing = random.normal(0.0, chance.iteration_jitter, (iterations, gpus))
    pauses = random.random((iterations, base.nodes)) < chance.stall_probability
    lengths = random.exponential(1.0, (iterations, base.nodes)) * chance.stall_s
    stalls = np.repeat(pauses * lengths, base.gpus_per_node, axis=1)
    last = expected_last(gpus) * math.hypot(chance.device_spread, chance.iteration_jitter)
    work: Array = base.work_s * np.maximum(1 + lasting + passing - last, 0.5) + stalls
    return work


def expected_last(count: int) -> float:
    """The expected maximum of so many standard normal values, by Blom's approximation (Blom 1958)."""
    return statistics.NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def _slowdown(
    base: Base, chance: Chance, fabric: Fabric, iterations: int, random: np.random.Generator, placement: Placement
) -> Array:
    """(iteration): the time of a transfer over that on links of its own."""
    share = fabric.nodes_per_leaf if placement == "packed" else 1
    leaves = math.ceil(base.nodes / share)
    if leaves == 1:
        return np.ones(iterations)
    uplinks = max(1, round(fabric.nodes_per_leaf * base.gpus_per_node / fabric.oversubscription))
    pairs = max(1, round(chance.queue_pairs))
    flows = base.gpus_per_node * pairs  # a ring a GPU of the node; each leaves a leaf once
    loads = np.stack([np.bincount(random.integers(uplinks, size=flows), minlength=uplinks) for _ in range(leaves)])
    busiest = loads.max(axis=1) / pairs  # of each leaf, in links of one GPU
    others = np.minimum(random.exponential(1.0, (iterations, leaves)) * chance.background_load, _OTHERS_AT_MOST)
    slowest: Array = np.maximum(busiest / (1 - others), 1.0).max(axis=1)
    return slowest


def require_fabric(model: FabricModel, name: str) -> Fabric:
    """A fabric by its name.

    Raises:
        UserError: there is none.
    """
    if name not in model.fabrics:
        known = ", ".join(model.fabrics)
        raise UserError(
            f"there is no fabric {name!r}", where="config/calibration/fabric.yaml", remedy=f"Known: {known}."
        )
    return model.fabrics[name]
