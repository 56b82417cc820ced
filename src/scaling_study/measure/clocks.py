"""One clock for all ranks: what to add to a rank's monotonic clock so that it reads as rank 0's does, and how sure.

Ranks of one machine share the kernel's monotonic clock. Between machines the first rank of each sends rank 0 messages
to and fro: over the quickest exchange, the other clock was read in the middle, wrong by half its time at most (Cristian
1989, Probabilistic clock synchronization). Clocks drift apart afterwards, by parts in a million: a run of minutes adds
microseconds for each second, which the error does not count.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

_EXCHANGES = 30


def machine() -> str:
    """A name that two ranks share exactly if they share a monotonic clock."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    known = boot.read_text(encoding="ascii").strip() if boot.exists() else socket.gethostname()
    offsets = Path("/proc/self/timens_offsets")  # a time namespace has a clock of its own
    return known + (offsets.read_text(encoding="ascii") if offsets.exists() else "")


def offset_to_rank_0(name: str, clock: Callable[[], int] = time.perf_counter_ns) -> tuple[int, int]:
    """Nanoseconds to add to this rank's clock, and the most by which that is wrong.

    Every rank of the default group calls it.

    Args:
        name: of the machine, `machine()`.
        clock: that is to be read, in nanoseconds.
    """
    names: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(names, name)
    first = {one: names.index(one) for one in names}
    found: dict[str, tuple[int, int]] = {names[0]: (0, 0)}
    for one, rank in sorted(first.items(), key=lambda pair: pair[1]):
        if rank and dist.get_rank() == 0:
            _answer(rank, clock)
        elif rank and dist.get_rank() == rank:
            found[one] = _ask(clock)
    everyone: list[dict[str, tuple[int, int]]] = [{}] * len(names)
    dist.all_gather_object(everyone, found)
    return everyone[first[name]][name]


def _answer(peer: int, clock: Callable[[], int]) -> None:
    message = torch.zeros(1, dtype=torch.int64)
    for _ in range(_EXCHANGES):
        dist.recv(message, peer)
        message[0] = clock()
        dist.send(message, peer)


def _ask(clock: Callable[[], int]) -> tuple[int, int]:
    message, best = torch.zeros(1, dtype=torch.int64), (0, 1 << 62)
    for _ in range(_EXCHANGES):
        sent_ns = clock()
        dist.send(message, 0)
        dist.recv(message, 0)
        got_ns = clock()
        error_ns = (got_ns - sent_ns + 1) // 2
        if error_ns < best[1]:
            best = (int(message.item()) - (sent_ns + got_ns) // 2, error_ns)
    return best
