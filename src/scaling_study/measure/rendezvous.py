"""How ranks find each other: rank 0 binds a free port first, then says where, in the attempt's folder."""

from __future__ import annotations

import time
from datetime import timedelta

import msgspec
import torch.distributed as dist

from scaling_study.errors import write_atomically
from scaling_study.spec import AttemptFiles

_POLL_S = 0.02


class _Address(msgspec.Struct, frozen=True):
    host: str
    port: int


def meet(files: AttemptFiles, rank: int, world_size: int, host: str, timeout_s: float = 120.0) -> dist.TCPStore:
    """The store that all ranks of an attempt share; no port is fixed, so no two jobs can collide.

    Args:
        host: the address of this host under which the others reach it; only that of rank 0 matters.

    Raises:
        TimeoutError: rank 0 did not say where it is.
    """
    limit = timedelta(seconds=timeout_s)
    if rank == 0:
        store = dist.TCPStore(host, 0, world_size, is_master=True, timeout=limit, wait_for_workers=False)
        write_atomically(files.rendezvous, msgspec.json.encode(_Address(host, store.port)))
        return store
    deadline = time.monotonic() + timeout_s
    while not files.rendezvous.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 did not write {files.rendezvous} within {timeout_s:.0f} s")
        time.sleep(_POLL_S)
    address = msgspec.json.decode(files.rendezvous.read_bytes(), type=_Address)
    return dist.TCPStore(address.host, address.port, world_size, is_master=False, timeout=limit)
