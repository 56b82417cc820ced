"""Tensor parallelism against its links: what a block computes on one rank, and what its all-reduces take.

An all-reduce is a ring here, its hops in NCCL's fastest protocol and its bytes at the full rate of the link: no base
latency and no protocol overhead, so that a real ring takes longer. It waits for what is computed before it and keeps
what comes after it waiting, hence the time of a block is the sum of both.
"""

from __future__ import annotations

import msgspec

from scaling_study.roofline.links import Link, ring_s
from scaling_study.roofline.network import network_of
from scaling_study.roofline.peaks import memory_bytes_per_s, peak_flops
from scaling_study.spec import CollectiveOp, Hardware, Model, NumberFormat, Regime

#: Megatron's: one behind attention, one behind the MLP.
ALL_REDUCES = 2


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One block's forward pass on one of `tp` ranks, seconds.

    Attributes:
        local_s: the longer of its FLOPs at peak and its bytes at the memory's bandwidth.
        all_reduce_s: of one of its two all-reduces.
    """

    tp: int
    local_s: float
    all_reduce_s: float

    @property
    def block_s(self) -> float:
        """All of it."""
        return self.local_s + ALL_REDUCES * self.all_reduce_s

    @property
    def regime(self) -> Regime:
        """Whether its collectives take longer than what it computes."""
        return Regime.COMMUNICATION if ALL_REDUCES * self.all_reduce_s > self.local_s else Regime.COMPUTE


def shard_of(model: Model, hardware: Hardware, link: Link, tp: int, tokens: int, number_format: NumberFormat) -> Shard:
    """A block over `tp` ranks on a link, for so many tokens that attend to none but themselves.

    Raises:
        ValueError: no peak or no memory bandwidth of the hardware is published.
    """
    peak, memory, network = peak_flops(hardware, number_format), memory_bytes_per_s(hardware), network_of(model)
    if peak is None or memory is None:
        raise ValueError(f"no roof is published for {hardware.name}")
    weights = network.blocks / network.layers / tp
    local_s = max(2 * weights * tokens / peak, weights * number_format.element_bytes / memory)
    message = tokens * network.hidden * number_format.element_bytes
    return Shard(tp=tp, local_s=local_s, all_reduce_s=ring_s(CollectiveOp.ALL_REDUCE, tp, message, link))


def rate_of(shard: Shard, model: Model, tokens: int) -> float:
    """Tokens/s of a whole model of such blocks; embedding and head left out."""
    return tokens / (model.layers * shard.block_s)
