"""Time of a collective after NCCL's own tuning model, with bandwidths as measured.

A collective takes a base latency, the latency of each of its steps (inside a node or between nodes), and its bytes
over the bandwidth of the slowest link, by algorithm and protocol; NCCL takes the fastest, and so do we. All-gather
and reduce-scatter know the ring only. To NCCL's numbers one is added that measurements show: the time until its
pipeline of chunks is full, for what is fast on large messages.

Numbers: NVIDIA/nccl src/graph/tuning.cc (2.2x), latencies in us, bandwidths a channel in GB/s; channels of DGX
systems: 24 on A100, 16 on H100, 12 on V100.
"""

from __future__ import annotations

import msgspec
import numpy as np

from scaling_study.predict.batch import Array, Batch, Flags
from scaling_study.predict.parameters import Constants

_US = 1e-6
_RING_BASE = {"simple": 8.4, "ll128": 14.0, "ll": 6.6}
_RING_LINK = {"simple": 3.4, "ll128": 1.9, "ll": 0.6}
_RING_NETWORK = {"simple": 14.0, "ll128": 4.0, "ll": 2.7}
_START = {"simple": 1.0, "ll128": 0.5, "ll": 0.0}  # share of a full pipeline's start; collectives.csv, 1 to 8 MiB
_TREE_BASE, _TREE_LINK, _TREE_NETWORK = 8.4, 4.0, 14.0
_NVLS_LINK, _NVLS_TREE_NETWORK = 25.0, 14.0
_NET_POST_US = 3.0  # three posts of 1 us that each step of a ring across nodes pays
#: Bus bandwidth of NVLS over the ring's: 480 against 370 GB/s (collectives.csv, nvidia_gtc24_s62129_slide12).
_NVLS_OVER_RING = 1.3
#: 120 of 128 bytes carry data in LL128, half of them in LL; channels cap both (GB/s: LL128 all channels, LL in all).
_LL128_SHARE = 0.92
#: (LL128 by channels, LL in one node, LL across nodes, tree by channels at two and at more nodes), GB/s, by generation.
_CAPS = {"a100": (480.0, 87.7, 19.0, 566.0, 427.0), "h100": (587.0, 141.0, 35.0, 662.0, 576.0)}
_OLD_CAPS = (240.0, 39.0, 20.4, 222.0, 120.0)


#: Bus bandwidth through a hybrid cube mesh over that of its eight GPUs' rings at NCCL's rate, by GPUs of the group on
#: a node: pairs share one link (collectives.csv, vtrain_allreduce_lut, V100: 22, 46, 85, 38, 46, 87, 135 GB/s).
_MESH_SHARE = np.array([1.0, 1.0, 0.18, 0.37, 0.70, 0.31, 0.37, 0.71, 1.10])


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that communicate, as columns.

    Attributes:
        ranks: in the group.
        per_node: of them on one node.
        network_bytes_per_s: of a node's injection bandwidth, the part of this group, as its neighbours on the node
            communicate at the same time.
    """

    ranks: Array
    per_node: Array
    network_bytes_per_s: Array

    @property
    def nodes(self) -> Array:
        """Nodes that the group spans."""
        return np.maximum(1.0, self.ranks / self.per_node)


def group_of(batch: Batch, stride: Array, ranks: Array) -> Group:
    """The group of every `stride`-th rank. Ranks are numbered tensor first, then context, data, pipeline."""
    per_node = np.minimum(np.maximum(1.0, np.floor(batch.gpus_per_node / stride)), ranks)
    on_a_node = np.minimum(batch.gpus_per_node, batch.gpus) / per_node
    return Group(ranks=ranks, per_node=per_node, network_bytes_per_s=batch.network_bytes_per_s / on_a_node)


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """What collectives of a batch of setups run on; built once a batch."""

    ring_bytes_per_s: Array
    switched: Flags
    start: float
    network_rate: float
    link_latency: float
    network_latency: float
    network_hop: Array
    caps: tuple[float, float, float, float, float]
    has_nvls: bool


def fabric_of(batch: Batch, constants: Constants, family: str) -> Fabric:
    """Links and protocols of a family of parts."""
    return Fabric(
        ring_bytes_per_s=constants.ring_rate * batch.link_bytes_per_s / 2,
        switched=batch.switched,
        start=constants.collective_start_us * _US,
        network_rate=constants.network_rate,
        link_latency=constants.link_latency * _US,
        network_latency=constants.network_latency * _US,
        network_hop=batch.network_hop_s,
        caps=_CAPS.get("h100" if family.startswith("h") else family, _OLD_CAPS),
        has_nvls=family.startswith("h"),
    )


def _between_nodes(fabric: Fabric, latency_us: float) -> Array:
    """Seconds of a hop between nodes, which takes so long in NCCL's model."""
    seconds: Array = latency_us * fabric.network_latency + fabric.network_hop
    return seconds


def _bus(fabric: Fabric, group: Group) -> Array:
    """Bytes/s of the slowest link of a ring through the group."""
    mesh = _MESH_SHARE[np.minimum(group.per_node, len(_MESH_SHARE) - 1).astype(np.int64)]
    links = fabric.ring_bytes_per_s * np.where(fabric.switched, 1.0, mesh)
    inside = np.where(group.per_node > 1, links, np.inf)
    across = np.where(group.nodes > 1, fabric.network_rate * group.network_bytes_per_s, np.inf)
    return np.minimum(inside, across)


def _ring(fabric: Fabric, group: Group, message_bytes: Array, rounds: int) -> Array:
    """Seconds of `rounds` turns around a ring, by the best protocol; every turn has ranks - 1 steps."""
    steps = rounds * (group.ranks - 1)
    across = np.where(group.nodes > 1, rounds * (group.nodes - 1), 0.0)
    bus, wire = _bus(fabric, group), message_bytes * steps / group.ranks
    ll_cap = np.where(group.nodes > 1, fabric.caps[2], fabric.caps[1]) * 1e9
    bandwidths = {
        "simple": bus,
        "ll128": np.minimum(bus * _LL128_SHARE, fabric.caps[0] * 1e9),
        "ll": np.minimum(bus / 2, ll_cap),
    }
    best = np.full_like(bus, np.inf)
    for protocol, bandwidth in bandwidths.items():
        post = np.where(group.nodes > 1, _NET_POST_US if protocol == "simple" else _NET_POST_US / 3, 0.0)
        link = np.maximum(_RING_LINK[protocol], post) * fabric.link_latency
        latency = _RING_BASE[protocol] * _US + _START[protocol] * fabric.start + (steps - across) * link
        latency = latency + across * _between_nodes(fabric, _RING_NETWORK[protocol])
        best = np.minimum(best, latency + wire / bandwidth)
    return best


def _tree(fabric: Fabric, group: Group, message_bytes: Array) -> Array:
    """Seconds of an all-reduce up and down two binary trees."""
    cap = np.where(group.nodes > 2, fabric.caps[4], fabric.caps[3]) * 1e9
    bandwidth = np.minimum(_bus(fabric, group) * _LL128_SHARE, cap)
    inside = (group.per_node - 1) * _TREE_LINK * fabric.link_latency
    hops = inside + np.log2(group.nodes) * _between_nodes(fabric, _TREE_NETWORK)
    return _TREE_BASE * _US + fabric.start + 2 * hops + 2 * message_bytes / bandwidth


def _nvls(fabric: Fabric, group: Group, message_bytes: Array) -> Array:
    """Seconds of an all-reduce in the switches of each node, with a tree between nodes; inf where there is none."""
    if not fabric.has_nvls:
        return np.full_like(group.ranks, np.inf)
    inside = fabric.ring_bytes_per_s * _NVLS_OVER_RING
    across = np.where(group.nodes > 1, fabric.network_rate * group.network_bytes_per_s, np.inf)
    wire = 2 * message_bytes * (group.ranks - 1) / group.ranks
    tree = 2 * np.log2(group.nodes) * _between_nodes(fabric, _NVLS_TREE_NETWORK)
    latency = _NVLS_LINK * fabric.link_latency + fabric.start + tree
    return np.where(group.per_node >= 4, latency + wire / np.minimum(inside, across), np.inf)


def all_reduce(fabric: Fabric, group: Group, message_bytes: Array) -> Array:
    """Seconds; the fastest of ring, tree and NVLS. Nothing for a group of one."""
    tree = np.where(group.nodes > 1, _tree(fabric, group, message_bytes), np.inf)
    best = np.minimum(_ring(fabric, group, message_bytes, 2), np.minimum(tree, _nvls(fabric, group, message_bytes)))
    return np.where(group.ranks > 1, best, 0.0)


def all_gather(fabric: Fabric, group: Group, message_bytes: Array) -> Array:
    """Seconds to gather (or to reduce-scatter) a buffer of that many bytes in all, by ring. Nothing for one rank."""
    return np.where(group.ranks > 1, _ring(fabric, group, message_bytes, 1), 0.0)


def send(fabric: Fabric, batch: Batch, stride: Array, message_bytes: Array) -> Array:
    """Seconds of one message of every GPU at once to the rank `stride` further on.

    Across nodes each GPU has its share of the node's network; inside a node, its links (half of them through a hybrid
    cube mesh, where not all pairs are neighbours).
    """
    across = stride >= batch.gpus_per_node
    share = fabric.network_rate * batch.network_bytes_per_s / batch.gpus_per_node
    inside = fabric.ring_bytes_per_s * np.where(batch.switched, 1.0, 0.5)
    network = _between_nodes(fabric, _RING_NETWORK["simple"])
    latency = np.where(across, network, _RING_LINK["simple"] * fabric.link_latency)
    return _RING_BASE["simple"] * _US + latency + message_bytes / np.where(across, share, inside)
