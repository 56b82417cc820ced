"""Run a function on several gloo ranks; processes are forked from a server that has imported torch once."""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.preload"])


def run_on_ranks(function, world_size, *args, timeout_s=120):
    """Call `function(*args)` on every rank of a fresh process group; the list of what ranks returned."""
    with tempfile.TemporaryDirectory() as folder:
        queue = CONTEXT.Queue()
        processes = [
            CONTEXT.Process(target=_rank, args=(queue, folder, rank, world_size, function, args), daemon=True)
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        try:
            results = dict(queue.get(timeout=timeout_s) for _ in processes)
        finally:
            for process in processes:
                process.join(10)
                process.kill()
    errors = {rank: value for rank, (kind, value) in results.items() if kind == "error"}
    assert not errors, "\n".join(f"rank {rank}: {text}" for rank, text in errors.items())
    return [results[rank][1] for rank in range(world_size)]


def _rank(queue, folder, rank, world_size, function, args):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        store = dist.FileStore(str(Path(folder) / "store"), world_size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
        queue.put((rank, ("ok", function(*args))))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        queue.put((rank, ("error", traceback.format_exc())))
