"""The profiled window of a rank: a few iterations outside the timed ones, reduced to the span table on the spot."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import polars as pl
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.profiler import ProfilerActivity, profile, record_function

from scaling_study.errors import write_atomically
from scaling_study.measure.device import Device
from scaling_study.measure.operators import attention_operators
from scaling_study.timeline import MARK_AXIS, MARK_ITERATION, SCHEMA, read_cpu_trace, read_trace

_CALLS_PER_AXIS = 16  # enough that each of gloo's two worker threads of a group serves some
_NOTHING_SEEN = (
    "the profiler saw nothing on the GPU (CUPTI is missing, or may not be used: see NVIDIA's note on ERR_NVGPUCTRPERM)"
)

#: Runs iterations, each inside a context that it is given, and returns how long each took, in nanoseconds.
Iterate = Callable[[range, Callable[[], AbstractContextManager[object]]], list[int]]


class ProfiledWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What a profiled window says.

    Attributes:
        spans: the span table of the rank.
        iteration_ns: the length of each iteration.
        attention_operators: what computed attention.
        missing: why the spans are not there, if they are not.
    """

    spans: pl.DataFrame
    iteration_ns: list[int]
    attention_operators: list[str]
    missing: str | None = None


def profile_iterations(
    iterate: Iterate,
    iterations: range,
    device: Device,
    mesh: DeviceMesh,
    trace_path: Path,
    rank: int,
    keep: Path | None = None,
) -> ProfiledWindow:
    """Run iterations under Kineto and read the trace; the raw trace is deleted.

    Args:
        iterate: runs iterations; what it times runs inside the context that it is given, which marks it.
        iterations: their numbers.
        device: that they run on.
        mesh: of the run; its process groups are made known to the reader.
        trace_path: where the raw trace lies meanwhile.
        rank: of this process.
        keep: where the raw trace is kept, gzipped, if anywhere.
    """
    on_gpu = ProfilerActivity.CUDA in device.activities
    device.synchronise()
    dist.barrier()
    with profile(activities=device.activities) as profiler:
        if not on_gpu:
            _mark_axes(mesh)
        taken_ns = iterate(iterations, lambda: record_function(MARK_ITERATION))
        device.synchronise()
    try:
        profiler.export_chrome_trace(str(trace_path))
        if keep is not None:
            _keep(trace_path, keep)
        if on_gpu:
            names = {event.name for event in profiler.events() or ()}
            return _on_gpu(trace_path, rank, taken_ns, attention_operators(names))
        trace = read_cpu_trace(trace_path, rank)
        return ProfiledWindow(
            spans=trace.spans, iteration_ns=trace.iteration_ns, attention_operators=trace.attention_operators
        )
    finally:
        trace_path.unlink(missing_ok=True)


def _on_gpu(trace_path: Path, rank: int, taken_ns: list[int], operators: list[str]) -> ProfiledWindow:
    """What the GPU did between the two moments at which it had nothing to do."""
    spans = read_trace(trace_path, rank).device.select(*SCHEMA)
    missing = _NOTHING_SEEN if spans.is_empty() else None
    return ProfiledWindow(spans=spans, iteration_ns=taken_ns, attention_operators=operators, missing=missing)


def _keep(trace_path: Path, keep: Path) -> None:
    packed = trace_path.with_suffix(".gz")
    with trace_path.open("rb") as raw, gzip.open(packed, "wb", compresslevel=6) as file:
        shutil.copyfileobj(raw, file)
    write_atomically(keep, packed.read_bytes())
    packed.unlink()


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
