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
from scaling_study.measure.device import Device, open_device
from scaling_study.measure.rendezvous import meet
from scaling_study.spec import AttemptFiles, Hardware, NodeCheck, Precision, RankHealth
from scaling_study.training.parallel import DTYPES

_TIMEOUT = timedelta(minutes=5)
_LATENCY_CALLS = 50


def check_node(check: NodeCheck, rank: int, world_size: int, address: str, local_rank: int) -> None:
    """Measure on this rank, together with all others, and write what it found.

    Args:
        address: the address of this host for the other ranks.
        local_rank: the rank's number on this host, which tells its GPU.
    """
    files = AttemptFiles(Path(check.folder))
    torch.set_num_threads(check.threads_per_rank)
    device = open_device(check.gpu, local_rank)
    store = meet(files, rank, world_size, address)
    options = device.group_options()
    dist.init_process_group(device.backend, store=store, rank=rank, world_size=world_size, timeout=_TIMEOUT, **options)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    nodes: list[str] = [""] * world_size
    dist.all_gather_object(nodes, node)
    found = RankHealth(
        rank=rank,
        node=node,
        device=device.name,
        gemm_tflops=2 * check.gemm_size**3 / _matrix_product_s(check, device) / 1e12,
        memory_gb_per_s=2 * check.copy_bytes / _copy_s(check, device) / 1e9,
        within_gb_per_s=_within(check, rank, nodes, device),
        between_gb_per_s=_between(check, rank, nodes, device),
        latency_us=_latency_us(world_size, device),
    )
    write_atomically(files.health(rank), msgspec.json.encode(found))
    dist.barrier()
    dist.destroy_process_group()


def _median_s(
    call: Callable[[], object], repeats: int, device: Device, group: dist.ProcessGroup | None = None
) -> float:
    """The median duration of a call that every rank of a group makes at the same time."""
    call()
    taken = []
    for _ in range(repeats):
        dist.barrier(group)
        device.synchronise()
        start_s = time.perf_counter()
        call()
        device.synchronise()
        taken.append(time.perf_counter() - start_s)
    return statistics.median(taken)


def _matrix_product_s(check: NodeCheck, device: Device) -> float:
    size, dtype = check.gemm_size, DTYPES[training_precision(check.gpu)]
    a, b, c = (torch.ones(size, size, dtype=dtype, device=device.torch_device) for _ in range(3))
    return _median_s(lambda: torch.mm(a, b, out=c), check.repeats, device)


def training_precision(gpu: Hardware | None) -> Precision:
    """What a device trains in: bf16 where the part has it, fp16 on older ones, fp32 on a CPU."""
    known = gpu.peak_tflops if gpu is not None else {}
    return next((one for one in (Precision.BF16, Precision.FP16) if one in known), Precision.FP32)


def _copy_s(check: NodeCheck, device: Device) -> float:
    source, target = (torch.ones(check.copy_bytes // 4, device=device.torch_device) for _ in range(2))
    return _median_s(lambda: target.copy_(source), check.repeats, device)


def _within(check: NodeCheck, rank: int, nodes: list[str], device: Device) -> float | None:
    """Bus bandwidth of an all-reduce over the ranks of this node: 2 (n - 1) / n of its bytes, as in nccl-tests."""
    groups = {node: dist.new_group([r for r, one in enumerate(nodes) if one == node]) for node in sorted(set(nodes))}
    group, size = groups[nodes[rank]], nodes.count(nodes[rank])
    if size == 1:
        return None
    message = torch.zeros(check.message_bytes // 4, device=device.torch_device)
    taken_s = _median_s(lambda: dist.all_reduce(message, group=group), check.repeats, device, group)
    return 2 * (size - 1) / size * check.message_bytes / taken_s / 1e9


def _between(check: NodeCheck, rank: int, nodes: list[str], device: Device) -> dict[str, float]:
    """Bandwidth of exchanges with the same rank of the node before and the node after, all ranks of a node at once.

    Each node takes part with two others (with one where there are but two), so a slow one is told from its partner.
    """
    ordered = sorted(set(nodes))
    members = {node: [r for r, one in enumerate(nodes) if one == node] for node in ordered}
    place, local = ordered.index(nodes[rank]), members[nodes[rank]].index(rank)
    found: dict[str, float] = {}
    sent, got = (torch.zeros(check.message_bytes // 4, device=device.torch_device) for _ in range(2))
    for pairs in rounds(len(ordered)):
        dist.barrier()
        partner = pairs.get(place)
        if partner is None or local >= len(members[ordered[partner]]):
            continue
        peer = members[ordered[partner]][local]
        taken_s = _exchange_s(sent, got, peer, check.repeats, device)
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


def _exchange_s(sent: torch.Tensor, got: torch.Tensor, peer: int, repeats: int, device: Device) -> float:
    """The median duration of sending to a peer and receiving from it at once."""
    taken = []
    for _ in range(repeats + 1):
        start_s = time.perf_counter()
        both = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, got, peer)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        device.synchronise()
        taken.append(time.perf_counter() - start_s)
    return statistics.median(taken[1:])


def _latency_us(world_size: int, device: Device) -> float | None:
    if world_size == 1:
        return None
    message = torch.zeros(1, device=device.torch_device)
    return _median_s(lambda: dist.all_reduce(message), _LATENCY_CALLS, device) * 1e6
