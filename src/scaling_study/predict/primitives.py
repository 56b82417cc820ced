"""Time of a communication primitive over whole nodes, as `CollectiveRun` and public tables have it."""

from __future__ import annotations

import numpy as np

from scaling_study.predict.batch import Array, Batch, batch_of
from scaling_study.predict.collectives import Group, all_gather, all_reduce, fabric_of, send
from scaling_study.predict.parameters import Constants
from scaling_study.predict.setup import Attention, Decoder, Elementwise, Part, Setup, Sharding, Stack
from scaling_study.spec import CollectiveOp

#: Bytes from which a collective is bound by bandwidth rather than by latency.
LARGE_MESSAGE = 128 * 2**20


def batch_of_part(part: Part, gpus_per_node: int = 8, network_hop_us: float = 0.0) -> Batch:
    """A setup of no more interest than its part and its nodes."""
    stack = Stack(
        attention=Attention.FLASH2,
        elementwise=Elementwise.FUSED,
        sequence_parallel=False,
        tp_overlap=False,
        dp_overlap=False,
        dtensor=False,
    )
    setup = Setup(
        decoder=Decoder(layers=1, hidden=128, heads=1, kv_heads=1, ffn=128, vocabulary=128),
        stack=stack,
        part=part,
        power_limit_w=part.power_limit_w,
        gpus_per_node=gpus_per_node,
        node_network_gb_per_s=part.network_gb_per_s,
        network_hop_us=network_hop_us,
        dp=1,
        micro_batch=1,
        global_batch=1,
        sequence_length=128,
        sharding=Sharding.NONE,
        shard_group=1,
    )
    return batch_of([setup])


def primitive_seconds(
    part: Part,
    constants: Constants,
    op: CollectiveOp,
    nodes: Array,
    ranks: Array,
    message_bytes: Array,
    network_hop_us: float = 0.0,
) -> Array:
    """Seconds of one call by message, over all ranks of some nodes; `part.network_gb_per_s` is a node's.

    With `send_recv` every rank sends its buffer to the next one; the slowest pair is the one between nodes.
    """
    per_node = ranks / nodes
    batch = batch_of_part(part, int(np.max(per_node)), network_hop_us)
    fabric = fabric_of(batch, constants, part.family)
    if op is CollectiveOp.SEND_RECV:
        # One pair in a ring crosses between two nodes and has its adapter alone.
        stride = np.where(nodes > 1, batch.gpus_per_node, 1.0)
        return np.asarray(send(fabric, batch, stride, message_bytes))
    group = Group(ranks=ranks, per_node=per_node, network_bytes_per_s=np.full(len(ranks), part.network_gb_per_s * 1e9))
    return (all_reduce if op is CollectiveOp.ALL_REDUCE else all_gather)(fabric, group, message_bytes)
