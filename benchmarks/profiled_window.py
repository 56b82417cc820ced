"""What the profiled window costs a rank: its iterations beside plain ones, and reading the trace.

One rank of the mini study's run, plain iterations and windows in turn, in one process a round.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from unittest import mock

import msgspec

from benchmarks.arena import CONTEXT, batch
from benchmarks.lines import Line
from benchmarks.ratios import paired_ratio, spread
from benchmarks.training import SMALL, training_run
from scaling_study.spec import Model, TrainingRun

_WARMUP = 3
_WINDOWS = 4


class _Window(msgspec.Struct):
    """Seconds of one window, and of the plain iterations before it."""

    plain_s: list[float]
    profiled_s: list[float]
    whole_s: float
    reading_s: float

    @property
    def beside_s(self) -> float:
        """Of the window outside its iterations: starting and stopping the profiler, writing and reading the trace."""
        return self.whole_s - sum(self.profiled_s)


def run(rounds: int) -> list[Line]:
    """A line for the iterations, and one for the rest of the window."""
    setting = training_run(SMALL, dp=1, micro_batch=2, sequence_length=64)
    with ProcessPoolExecutor(1, CONTEXT, max_tasks_per_child=1) as processes:
        windows = [processes.submit(_measure, SMALL, setting).result() for _ in range(rounds)]
    pairs = [
        [pair for one in of_round for pair in zip(one.profiled_s, one.plain_s, strict=True)] for of_round in windows
    ]
    flat = [one for of_round in windows for one in of_round]
    count = setting.protocol.profiled_iterations
    reading_s = statistics.median(one.reading_s for one in flat)
    iterations = Line(
        benchmark="profiled window",
        what=f"{SMALL.name}, an iteration under the profiler",
        unit="ms",
        ours=spread([1000 * value for one in flat for value in one.profiled_s]),
        peer="a plain one",
        theirs=spread([1000 * value for one in flat for value in one.plain_s]),
        ratio=paired_ratio(pairs),
    )
    rest = Line(
        benchmark="profiled window",
        what=f"the rest of a window of {count} iterations",
        unit="ms",
        ours=spread([1000 * one.beside_s for one in flat]),
        reason=f"starting and stopping the profiler, writing the trace, and reading it ({1000 * reading_s:.0f} ms)",
    )
    return [iterations, rest]


def _measure(model: Model, run: TrainingRun) -> list[_Window]:
    """In a process of its own."""
    import torch
    import torch.distributed as dist

    from scaling_study.measure.machine import keep_freed_memory
    from scaling_study.training.step import Trainer

    keep_freed_memory()  # as every rank does
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    trainer = Trainer(run, model, torch.device("cpu"))
    tokens_BT, target_BT = batch(model, run, seed=0)

    def iterate(into: list[float], around: AbstractContextManager[object] | None = None) -> int:
        with around or nullcontext():
            start_s = time.perf_counter()
            loss = trainer.step(tokens_BT, target_BT)
            assert loss is not None  # one pipeline stage
            loss.item()
            into.append(time.perf_counter() - start_s)
        return round(into[-1] * 1e9)

    for _ in range(_WARMUP):
        iterate([])
    return [_window(iterate, trainer.mesh, run.protocol.profiled_iterations) for _ in range(_WINDOWS)]


def _window(iterate, mesh, count: int) -> _Window:
    """As many plain iterations as a window has, then the window."""
    from scaling_study.measure import profile
    from scaling_study.measure.device import CpuDevice

    plain_s, profiled_s, reading_s = [], [], []

    def read(*arguments):
        start_s = time.perf_counter()
        try:
            return kept(*arguments)
        finally:
            reading_s.append(time.perf_counter() - start_s)

    def profiled(iterations, around):
        return [iterate(profiled_s, around()) for _ in iterations]

    for _ in range(count):
        iterate(plain_s)
    kept = profile.read_cpu_trace
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(profile, "read_cpu_trace", read):
        start_s = time.perf_counter()
        trace = Path(folder) / "trace.json"
        profile.profile_iterations(profiled, range(count), CpuDevice(), mesh, trace, 0)
        whole_s = time.perf_counter() - start_s
    return _Window(plain_s, profiled_s, whole_s, reading_s[0])
