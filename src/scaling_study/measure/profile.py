"""The profiled window of a rank: a few iterations outside the timed ones, reduced to the span table on the spot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.profiler import ProfilerActivity, profile, record_function

from scaling_study.timeline import MARK_AXIS, MARK_ITERATION, CpuTrace, read_cpu_trace

_CALLS_PER_AXIS = 16  # enough that each of gloo's two worker threads of a group serves some


def profile_iterations(
    iterate: Callable[[int, AbstractContextManager[object]], object],
    iterations: range,
    mesh: DeviceMesh,
    trace_path: Path,
    rank: int,
) -> CpuTrace:
    """Run iterations under Kineto and read the trace; the raw trace is deleted.

    Args:
        iterate: runs an iteration; what it times runs inside the context that it is given, which marks it.
        iterations: their numbers.
        mesh: of the run; its process groups are made known to the reader.
        trace_path: where the raw trace lies meanwhile.
        rank: of this process.
    """
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        _mark_axes(mesh)
        for iteration in iterations:
            iterate(iteration, record_function(MARK_ITERATION))
    try:
        profiler.export_chrome_trace(str(trace_path))
        return read_cpu_trace(trace_path, rank)
    finally:
        trace_path.unlink(missing_ok=True)


def _mark_axes(mesh: DeviceMesh) -> None:
    """Make each process group's worker threads known to the reader, since gloo's annotations name no group."""
    for axis in mesh.mesh_dim_names or ():
        group = mesh.get_group(axis)
        if dist.get_world_size(group) == 1:
            continue
        with record_function(f"{MARK_AXIS}{axis}"):
            values = [torch.zeros(1) for _ in range(_CALLS_PER_AXIS)]
            for work in [dist.all_reduce(value, group=group, async_op=True) for value in values]:
                work.wait()
