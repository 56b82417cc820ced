"""A training run on this rank: timed iterations, memory, then the profiled window."""

from __future__ import annotations

import math
import socket
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch

from scaling_study.measure.device import Device
from scaling_study.measure.failures import NotFiniteError
from scaling_study.measure.observer import Observer, observer_of, watched_backend
from scaling_study.measure.profile import ProfiledWindow, profile_iterations
from scaling_study.measure.report import Measurement, environment
from scaling_study.processes import available_cores
from scaling_study.spec import Assignment, AttemptFiles, Axis, RankReport, RunFiles, TrainingRun
from scaling_study.timeline import NO_EXPOSURE, UNKNOWN_AXIS, exposure, write_timeline_file
from scaling_study.training.step import Trainer
from scaling_study.training.tokens import TokenFile

#: Metrics of a record that are made of spans.
_OF_SPANS = (
    "compute_s",
    "communication_s",
    "exposed_communication_s",
    "exposed_fraction",
    *(f"{kind}_{axis}_s" for kind in ("communication", "exposed") for axis in (*Axis, UNKNOWN_AXIS)),
)


def measure_training(
    assignment: Assignment, files: AttemptFiles, rank: int, device: Device, step: Callable[[int], None]
) -> Measurement:
    """Train on this rank by the run's protocol; the process group exists already.

    Args:
        device: what this rank computes on.
        step: is told how many iterations are done.

    Raises:
        NotFiniteError: a loss is NaN or infinite.
        UserError: the data do not fit the run.
    """
    run, model = assignment.run, assignment.model
    assert isinstance(run, TrainingRun)
    assert model is not None
    protocol = run.protocol
    tokens = TokenFile(Path(assignment.data_folder), protocol.data)
    device.watch_memory()
    trainer = Trainer(run, model, device.torch_device, watched_backend(run))
    observer = observer_of(run, trainer.mesh)
    loop = _Loop(trainer, tokens, device, step, observer)
    iteration_ns = loop.run(range(protocol.discard))
    device.begin_power()
    iteration_ns += loop.run(range(protocol.discard, protocol.iterations))
    device.end_power()
    arrivals = observer.finish(socket.gethostname(), rank) if observer else None
    loop.observer = None
    peak_gib, losses, gpu = device.peak_memory_gib(), loop.losses.copy(), device.report()
    seen = _profiled(loop, assignment, files, rank)
    times, scaler = exposure(seen.spans).get(rank, NO_EXPOSURE), trainer.scaler
    report = RankReport(
        rank=rank,
        host=socket.gethostname(),
        device=device.name,
        cores=available_cores(),
        threads=torch.get_num_threads(),
        peak_memory_gib=peak_gib,
        iteration_ns=iteration_ns,
        profiled_ns=seen.iteration_ns,
        losses=losses,
        compute_ns=times.compute_ns,
        communication_ns=times.communication_ns,
        exposed_communication_ns=times.exposed_communication_ns,
        communication_by_axis_ns=times.communication_by_axis_ns,
        exposed_by_axis_ns=times.exposed_by_axis_ns,
        loss_scale=scaler.scale if scaler.enabled else None,
        skipped_updates=scaler.skipped if scaler.enabled else None,
        gpu=gpu,
    )
    used = environment(
        assignment,
        device,
        attention_operator=",".join(seen.attention_operators) or None,
        data_source=tokens.manifest.dataset.source,
        data_sha256=tokens.manifest.sha256,
        unavailable=dict.fromkeys(_OF_SPANS, seen.missing) if seen.missing else {},
    )
    return Measurement(report=report, environment=used, arrivals=arrivals)


def _profiled(loop: _Loop, assignment: Assignment, files: AttemptFiles, rank: int) -> ProfiledWindow:
    """The iterations after the timed ones, under the profiler; this rank's timeline is written."""
    protocol, run_files = loop.trainer.run.protocol, RunFiles(Path(assignment.run_folder))
    window = range(protocol.iterations, protocol.iterations + protocol.profiled_iterations)
    keep = run_files.trace if assignment.keep_trace and rank == 0 else None
    seen = profile_iterations(loop.run, window, loop.device, loop.trainer.mesh, files.trace(rank), rank, keep)
    write_timeline_file(run_files.timeline(rank), seen.spans)
    return seen


class _InFlight(NamedTuple):
    """An iteration that was launched."""

    iteration: int
    start: Any
    end: Any
    loss: torch.Tensor | float | None


class _Loop:
    """Iterations of a trainer, each timed, its loss checked, its end told outside the timed part."""

    def __init__(
        self,
        trainer: Trainer,
        tokens: TokenFile,
        device: Device,
        step: Callable[[int], None],
        observer: Observer | None,
    ) -> None:
        self.trainer, self.tokens, self.device, self.step, self.observer = trainer, tokens, device, step, observer
        self.losses: list[float] = []

    def run(self, iterations: range, around: Callable[[], AbstractContextManager[object]] = nullcontext) -> list[int]:
        """Run iterations; the nanoseconds of each, from batch in hand to finished update.

        Args:
            around: gives a context that is entered for just what is timed.
        """
        launched: deque[_InFlight] = deque()
        taken_ns = []
        for iteration in iterations:
            launched.append(self._launch(iteration, around()))
            if len(launched) > self.device.in_flight:
                taken_ns.append(self._end(launched.popleft()))
        return taken_ns + [self._end(one) for one in launched]

    def _launch(self, iteration: int, around: AbstractContextManager[object]) -> _InFlight:
        batch = self.tokens.batch(self.trainer.run, iteration, self.trainer.replica)
        tokens_BT, target_BT = (self.device.put(part) for part in batch)
        watched = self.observer.watching(iteration) if self.observer else nullcontext()
        with around:
            start = self.device.now()
            with watched:
                loss = self.device.loss(self.trainer.step(tokens_BT, target_BT))
            end = self.device.now()
        return _InFlight(iteration, start, end, loss)

    def _end(self, launched: _InFlight) -> int:
        duration_ns = self.device.between_ns(launched.start, launched.end)
        if launched.loss is not None:
            value = float(launched.loss)
            if not math.isfinite(value):
                raise NotFiniteError(f"the loss is {value} at iteration {launched.iteration}")
            self.losses.append(value)
        self.device.sample_memory()
        self.step(launched.iteration + 1)
        return duration_ns
