"""Bandwidth of collectives by the conventions of nccl-tests (its doc/PERFORMANCE.md)."""

from __future__ import annotations

from scaling_study.spec import CollectiveOp


def bus_factor(op: CollectiveOp, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth: what each link carries for every byte of the message.

    The message is the whole buffer: of an all-gather what each rank ends with, of a reduce-scatter what each rank
    starts with. So the bus bandwidth of an optimal algorithm is that of the slowest link, whatever the ranks.

    Raises:
        ValueError: there are fewer than two ranks.
    """
    if ranks < 2:
        raise ValueError(f"a collective needs at least two ranks, not {ranks}")
    return {
        CollectiveOp.ALL_REDUCE: 2 * (ranks - 1) / ranks,
        CollectiveOp.ALL_GATHER: (ranks - 1) / ranks,
        CollectiveOp.REDUCE_SCATTER: (ranks - 1) / ranks,
        CollectiveOp.SEND_RECV: 1.0,
    }[op]
