"""A rank's part in a check of nodes: matrix products, copies, all-reduces within the node, exchanges between nodes."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from scaling_study.errors import write_atomically
from scaling_study.measure.machine import cpu_name
from scaling_study.measure.rendezvous import meet
from scaling_study.spec import AttemptFiles, NodeCheck, RankHealth

_TIMEOUT = timedelta(minutes=5)
_LATENCY_CALLS = 50


def check_node(check: NodeCheck, rank: int, world_size: int, address: str) -> None:
    """Measure on this rank, together with all others, and write what it found.

    Args:
        address: the address of this host for the other ranks.
    """
    files = AttemptFiles(Path(check.folder))
    torch.set_num_threads(check.threads_per_rank)
    store = meet(files, rank, world_size, address)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=_TIMEOUT)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    nodes: list[str] = [""] * world_size
    dist.all_gather_object(nodes, node)
    found = RankHealth(
        rank=rank,
        node=node,
        device=cpu_name(),
        gemm_tflops=2 * check.gemm_size**3 / _matrix_product_s(check) / 1e12,
        memory_gb_per_s=2 * check.copy_bytes / _copy_s(check) / 1e9,
        within_gb_per_s=_within(check, rank, nodes),
        between_gb_per_s=_between(check, rank, nodes),
        latency_us=_latency_us(world_size),
    )
    write_atomically(files.health(rank), msgspec.json.encode(found))
    dist.barrier()
    dist.destroy_process_group()


def _median_s(call: Callable[[], object], repeats: int, group: dist.ProcessGroup | None = None) -> float:
    """The median duration of a call that every rank of a group makes at the same time."""
    call()
    taken = []
    for _ in range(repeats):
        dist.barrier(group)
        start_s = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start_s)
    return statistics.median(taken)


def _matrix_product_s(check: NodeCheck) -> float:
    a, b, c = (torch.ones(check.gemm_size, check.gemm_size) for _ in range(3))
    return _median_s(lambda: torch.mm(a, b, out=c), check.repeats)


def _copy_s(check: NodeCheck) -> float:
    source, target = (torch.ones(check.copy_bytes // 4) for _ in range(2))
    return _median_s(lambda: target.copy_(source), check.repeats)


def _within(check: NodeCheck, rank: int, nodes: list[str]) -> float | None:
    """Bus bandwidth of an all-reduce over the ranks of this node: 2 (n - 1) / n of its bytes, as in nccl-tests."""
    groups = {node: dist.new_group([r for r, one in enumerate(nodes) if one == node]) for node in sorted(set(nodes))}
    group, size = groups[nodes[rank]], nodes.count(nodes[rank])
    if size == 1:
        return None
    message = torch.zeros(check.message_bytes // 4)
    taken_s = _median_s(lambda: dist.all_reduce(message, group=group), check.repeats, group)
    return 2 * (size - 1) / size * check.message_bytes / taken_s / 1e9


def _between(check: NodeCheck, rank: int, nodes: list[str]) -> dict[str, float]:
    """Bandwidth of exchanges with the same rank of the node before and the node after, all ranks of a node at once.

    Each node takes part with two others (with one where there are but two), so a slow one is told from its partner.
    """
    ordered = sorted(set(nodes))
    members = {node: [r for r, one in enumerate(nodes) if one == node] for node in ordered}
    place, local = ordered.index(nodes[rank]), members[nodes[rank]].index(rank)
    found: dict[str, float] = {}
    sent, got = (torch.zeros(check.message_bytes // 4) for _ in range(2))
    for pairs in rounds(len(ordered)):
        dist.barrier()
        partner = pairs.get(place)
        if partner is None or local >= len(members[ordered[partner]]):
            continue
        peer = members[ordered[partner]][local]
        taken_s = _exchange_s(sent, got, peer, check.repeats)
        found[ordered[partner]] = check.message_bytes / taken_s / 1e9
    dist.barrier()
    return found


def rounds(nodes: int) -> list[dict[int, int]]:
    """Which node exchanges with which, in rounds in which each has one partner at most; over all, each with both sides.

    Args:
        nodes: how many; they form a ring.
    """
    pairs = [(i, (i + 1) % nodes) for i in range(nodes if nodes > 2 else nodes - 1)]
    last = [pairs.pop()] if nodes > 2 and nodes % 2 else []
    turns = [pairs[0::2], pairs[1::2], last]
    return [{a: b for x, y in turn for a, b in ((x, y), (y, x))} for turn in turns if turn]


def _exchange_s(sent: torch.Tensor, got: torch.Tensor, peer: int, repeats: int) -> float:
    """The median duration of sending to a peer and receiving from it at once."""
    taken = []
    for _ in range(repeats + 1):
        start_s = time.perf_counter()
        both = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, got, peer)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        taken.append(time.perf_counter() - start_s)
    return statistics.median(taken[1:])


def _latency_us(world_size: int) -> float | None:
    if world_size == 1:
        return None
    message = torch.zeros(1)
    return _median_s(lambda: dist.all_reduce(message), _LATENCY_CALLS) * 1e6
