"""A training run on this rank: timed iterations, memory, then the profiled window."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from scaling_study.measure.failures import NotFiniteError
from scaling_study.measure.machine import PeakMemory, cpu_name
from scaling_study.measure.observer import Observer, observer_of, watched_backend
from scaling_study.measure.profile import profile_iterations
from scaling_study.measure.report import Measurement, environment
from scaling_study.processes import available_cores
from scaling_study.spec import Assignment, AttemptFiles, RankReport, RunFiles, TrainingRun
from scaling_study.timeline import exposure, write_timeline_file
from scaling_study.training.step import Trainer
from scaling_study.training.tokens import TokenFile


def measure_training(
    assignment: Assignment, files: AttemptFiles, rank: int, step: Callable[[int], None]
) -> Measurement:
    """Train on this rank by the run's protocol; the process group exists already.

    Args:
        step: is told how many iterations are done.

    Raises:
        NotFiniteError: a loss is NaN or infinite.
        UserError: the data do not fit the run.
    """
    run, model = assignment.run, assignment.model
    assert isinstance(run, TrainingRun)
    assert model is not None
    tokens = TokenFile(Path(assignment.data_folder), run.protocol.data)
    memory = PeakMemory()
    trainer = Trainer(run, model, torch.device("cpu"), watched_backend(run))
    observer = observer_of(run, trainer.mesh)
    loop = _Loop(trainer, tokens, memory, step, observer)
    iteration_ns = [loop.timed(iteration) for iteration in range(run.protocol.iterations)]
    arrivals = observer.finish(socket.gethostname(), rank) if observer else None
    loop.observer = None
    peak_gib, losses = memory.gib(), loop.losses.copy()
    window = range(run.protocol.iterations, run.protocol.iterations + run.protocol.profiled_iterations)
    trace = profile_iterations(loop.timed, window, loop.trainer.mesh, files.trace(rank), rank)
    write_timeline_file(RunFiles(Path(assignment.run_folder)).timeline(rank), trace.spans)
    seen = exposure(trace.spans)[rank]
    report = RankReport(
        rank=rank,
        host=socket.gethostname(),
        device=cpu_name(),
        cores=available_cores(),
        threads=torch.get_num_threads(),
        peak_memory_gib=peak_gib,
        iteration_ns=iteration_ns,
        profiled_ns=trace.iteration_ns,
        losses=losses,
        compute_ns=seen.compute_ns,
        communication_ns=seen.communication_ns,
        exposed_communication_ns=seen.exposed_communication_ns,
        communication_by_axis_ns=seen.communication_by_axis_ns,
        exposed_by_axis_ns=seen.exposed_by_axis_ns,
    )
    used = environment(
        assignment,
        attention_operator=",".join(trace.attention_operators),
        data_source=tokens.manifest.dataset.source,
        data_sha256=tokens.manifest.sha256,
    )
    return Measurement(report=report, environment=used, arrivals=arrivals)


class _Loop:
    """Iterations of a trainer, each timed, its loss checked, its end told outside the timed part."""

    def __init__(
        self,
        trainer: Trainer,
        tokens: TokenFile,
        memory: PeakMemory,
        step: Callable[[int], None],
        observer: Observer | None,
    ) -> None:
        self.trainer, self.tokens, self.memory, self.step, self.observer = trainer, tokens, memory, step, observer
        self.losses: list[float] = []

    def timed(self, iteration: int, around: AbstractContextManager[object] | None = None) -> int:
        """Run one iteration; its duration in nanoseconds, from batch in hand to finished update.

        Args:
            around: a context that is entered for just what is timed.
        """
        tokens_BT, target_BT = self.tokens.batch(self.trainer.run, iteration, self.trainer.replica)
        watched = self.observer.watching(iteration) if self.observer else nullcontext()
        with around or nullcontext():
            start_ns = time.perf_counter_ns()
            with watched:
                loss = self.trainer.step(tokens_BT, target_BT)
                value = None if loss is None else loss.item()
            duration_ns = time.perf_counter_ns() - start_ns
        if value is not None:
            if not math.isfinite(value):
                raise NotFiniteError(f"the loss is {value} at iteration {iteration}")
            self.losses.append(value)
        self.memory.sample()
        self.step(iteration + 1)
        return duration_ns
