"""Accelerators and the nodes that hold them; every number names its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from scaling_study.errors import UserError
from scaling_study.spec.words import Precision


class Sourced(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number with the key of its source in the file's `sources`."""

    value: Annotated[float, Meta(gt=0)]
    source: str


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator type in its usual node.

    Attributes:
        part: the exact part, as its driver names it; `null` where it is not one part (a CPU).
        device_names: every name that a driver has for the part; a device of another name is never taken for it. Empty
            for what is not measured on a GPU: a CPU, or hardware that does not exist.
        gpus_per_node: ranks a node.
        peak_tflops: dense peak by precision, 1e12 FLOP/s; a missing precision has no defined MFU.
        peak_8bit_tflops: the same of fp8, or of int8 where the part has no fp8.
        memory_gib: memory of one accelerator, 2**30 bytes.
        memory_gb_per_s: memory bandwidth, 1e9 bytes/s.
        intra_node_gb_per_s: accelerator to accelerator inside the node, both directions summed, 1e9 bytes/s.
        inter_node_gb_per_s: node to network, one direction, all NICs of the node, 1e9 bytes/s.
        host_gb_per_s: host to accelerator, both directions summed, 1e9 bytes/s.
        network_hop_us: what a hop between nodes takes longer than over InfiniBand, us.
        power_limit_w: thermal design power of one accelerator.
        idle_w: what one that does nothing draws at least.
        power_sampling_share: share of the time in which its power sensor looks, where that was measured.
        assumptions: what is ours and not a published fact.
    """

    name: str
    title: str
    part: str | None = None
    device_names: tuple[str, ...] = ()
    gpus_per_node: Annotated[int, Meta(gt=0)]
    peak_tflops: dict[Precision, Sourced] = {}
    peak_8bit_tflops: Sourced | None = None
    memory_gib: Sourced | None = None
    memory_gb_per_s: Sourced | None = None
    intra_node_gb_per_s: Sourced | None = None
    inter_node_gb_per_s: Sourced | None = None
    host_gb_per_s: Sourced | None = None
    network_hop_us: Sourced | None = None
    power_limit_w: Sourced | None = None
    idle_w: Sourced | None = None
    power_sampling_share: Sourced | None = None
    interconnect: str = ""
    assumptions: tuple[str, ...] = ()
    sources: dict[str, str] = {}

    def __post_init__(self) -> None:
        sourced = [*self.peak_tflops.values()]
        sourced += [v for f in self.__struct_fields__ if isinstance(v := getattr(self, f), Sourced)]
        for number in sourced:
            if number.source not in self.sources:
                raise ValueError(f"source {number.source!r} is not among the keys of `sources`")


def hardware_of_device(name: str, catalogue: Mapping[str, Hardware]) -> Hardware:
    """The hardware that a device is, by the exact name that its driver gives it.

    A PCIe or NVL part has other peaks than the SXM part of that name, and a slice of a GPU has a part of them: neither
    is taken for it.

    Raises:
        UserError: no hardware has that name.
    """
    for hardware in catalogue.values():
        if name in hardware.device_names:
            return hardware
    known = [one for hardware in catalogue.values() for one in hardware.device_names]
    raise UserError(
        f"the part {name!r} is not known, so its peak is not",
        where="GPU",
        remedy=f"Known: {', '.join(known) or 'none'}. Others go into config/hardware/, with their peaks and sources.",
    )
