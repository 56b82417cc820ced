"""Links and what must pass them: the least time of communication, and that of a ring.

The least counts the bytes that have to enter or to leave a rank and a node, whatever the algorithm, each direction for
itself: switches that add up on the way (NVLS, SHARP) spare an all-reduce half of a ring's traffic. A ring is what NCCL
falls back to, and what makes more ranks slower.
"""

from __future__ import annotations

import msgspec

from scaling_study.roofline.collectives import bus_factor
from scaling_study.spec import Axis, CollectiveOp, Hardware, TrainingRun

#: One hop in NCCL's fastest protocol: NVIDIA/nccl@01afd20a77 src/graph/tuning.cc, ring, LL.
NVLINK_HOP_S, PCIE_HOP_S, NETWORK_HOP_S = 0.47e-6, 1.0e-6, 2.7e-6


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A way from one accelerator to another; bytes/s in one direction, seconds of a hop."""

    name: str
    bytes_per_s: float
    hop_s: float


def links_of(hardware: Hardware) -> dict[str, Link]:
    """The links of a node, the fastest first: NVLink, the host's PCIe, one accelerator's share of the network."""
    found = {}
    if hardware.intra_node_gb_per_s:
        rate = hardware.intra_node_gb_per_s.value * 1e9 / 2
        found["nvlink"] = Link(name="NVLink", bytes_per_s=rate, hop_s=NVLINK_HOP_S)
    if hardware.host_gb_per_s:
        found["pcie"] = Link(name="PCIe", bytes_per_s=hardware.host_gb_per_s.value * 1e9 / 2, hop_s=PCIE_HOP_S)
    if hardware.inter_node_gb_per_s:
        rate = hardware.inter_node_gb_per_s.value * 1e9 / hardware.gpus_per_node
        found["network"] = Link(name="network", bytes_per_s=rate, hop_s=NETWORK_HOP_S)
    return found


def ring_s(op: CollectiveOp, ranks: int, message_bytes: float, link: Link) -> float:
    """Seconds of a ring over one kind of link: its hops, and its bytes at full rate. Nothing for one rank."""
    if ranks < 2:
        return 0.0
    hops = {CollectiveOp.ALL_REDUCE: 2 * (ranks - 1), CollectiveOp.SEND_RECV: 1}.get(op, ranks - 1)
    return hops * link.hop_s + bus_factor(op, ranks) * message_bytes / link.bytes_per_s


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that communicate: how many, on how many nodes, and how many such groups a node has members of."""

    ranks: int
    nodes: int
    groups_per_node: int


def group_of(axis: Axis, run: TrainingRun, hardware: Hardware) -> Group:
    """The groups of a parallel axis. Ranks are numbered tensor first, then data, then pipeline."""
    ranks, stride = {
        Axis.TENSOR: (run.tp, 1),
        Axis.DATA: (run.dp, run.tp),
        Axis.PIPELINE: (run.pp, run.tp * run.dp),
    }[axis]
    on_a_node = min(hardware.gpus_per_node, run.ranks)
    per_node = min(max(1, on_a_node // stride), ranks)
    return Group(ranks=ranks, nodes=-(-ranks // per_node), groups_per_node=max(1, on_a_node // per_node))


def group_of_nodes(ranks: int, nodes: int) -> Group:
    """The group of all ranks of some whole nodes."""
    return Group(ranks=ranks, nodes=nodes, groups_per_node=1)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What must pass in a step: bytes of one rank and of one node, each direction, and hops one after another."""

    rank_in: float = 0.0
    rank_out: float = 0.0
    node_in: float = 0.0
    node_out: float = 0.0
    link_hops: float = 0.0
    network_hops: float = 0.0

    def __add__(self, other: Load) -> Load:
        return Load(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

    def times(self, count: float) -> Load:
        """So many of them, one after another."""
        return Load(**{name: getattr(self, name) * count for name in self.__struct_fields__})

    def seconds(self, hardware: Hardware) -> float | None:
        """The least time over the links of a hardware; None where no number of a link that is used is published."""
        rank, node = max(self.rank_in, self.rank_out), max(self.node_in, self.node_out)
        links = links_of(hardware)
        inside, across = links.get("nvlink") or links.get("pcie"), links.get("network")
        if (rank and inside is None) or (node and across is None):
            return None
        rate = (inside.bytes_per_s if inside else 0.0) + (across.bytes_per_s if across and node else 0.0)
        times = [rank / rate if rank else 0.0]
        if node and across:
            times.append(node / (across.bytes_per_s * hardware.gpus_per_node))
        return max(times) + self.link_hops * NVLINK_HOP_S + self.network_hops * NETWORK_HOP_S


def _traffic(op: CollectiveOp, members: int) -> tuple[float, float]:
    """The shares of a message that enter and that leave one of so many members of a group at the least."""
    one = 1 / members
    return {
        CollectiveOp.ALL_REDUCE: (1 - one, 1 - one),
        CollectiveOp.ALL_GATHER: (1 - one, one),
        CollectiveOp.REDUCE_SCATTER: (one, 1 - one),
        CollectiveOp.SEND_RECV: (1.0, 1.0),
    }[op]


def load_of(op: CollectiveOp, group: Group, message_bytes: float) -> Load:
    """What one collective of every group makes pass at the least; nothing for groups of one."""
    if group.ranks < 2:
        return Load()
    rank_in, rank_out = (share * message_bytes for share in _traffic(op, group.ranks))
    if group.nodes < 2:
        return Load(rank_in=rank_in, rank_out=rank_out, link_hops=1)
    crossing = message_bytes * group.groups_per_node
    node_in, node_out = (share * crossing for share in _traffic(op, group.nodes))
    return Load(rank_in=rank_in, rank_out=rank_out, node_in=node_in, node_out=node_out, network_hops=1)
