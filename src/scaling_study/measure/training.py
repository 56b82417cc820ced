"""A training run on this rank: timed iterations, memory, then the profiled window."""

from __future__ import annotations

import math
import platform
import socket
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec
import torch

from scaling_study.errors import write_atomically
from scaling_study.measure.failures import NotFiniteError
from scaling_study.measure.machine import PeakMemory, cpu_name
from scaling_study.measure.power import power_unavailable
from scaling_study.measure.profile import profile_iterations, save_timeline
from scaling_study.processes import available_cores
from scaling_study.spec import (
    Assignment,
    AttemptFiles,
    Environment,
    Outcome,
    Progress,
    RankReport,
    RunFiles,
    RunResult,
    TrainingRun,
)
from scaling_study.timeline import CpuTrace, exposure
from scaling_study.training.step import Trainer
from scaling_study.training.tokens import TokenFile

_PROGRESS_INTERVAL_S = 0.5


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's report, and what it knows of the environment."""

    report: RankReport
    environment: Environment


def measure_training(assignment: Assignment, files: AttemptFiles, rank: int) -> Measurement:
    """Train on this rank by the run's protocol; the process group exists already.

    Raises:
        NotFiniteError: a loss is NaN or infinite.
        UserError: the data do not fit the run.
    """
    run, model = assignment.run, assignment.model
    assert isinstance(run, TrainingRun)
    assert model is not None
    tokens = TokenFile(Path(assignment.data_folder), run.protocol.data)
    memory = PeakMemory()
    loop = _Loop(Trainer(run, model, torch.device("cpu")), tokens, files, rank)
    iteration_ns = [loop.timed(iteration) for iteration in range(run.protocol.iterations)]
    peak_gib, losses = memory.gib(), loop.losses.copy()
    window = range(run.protocol.iterations, run.protocol.iterations + run.protocol.profiled_iterations)
    trace = profile_iterations(loop.timed, window, loop.trainer.mesh, files.trace(rank), rank)
    save_timeline(trace, RunFiles(Path(assignment.run_folder)).timeline(rank))
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
    return Measurement(report=report, environment=_environment(assignment, tokens, trace))


class _Loop:
    """Iterations of a trainer, each timed, its loss checked, progress reported outside the timed part."""

    def __init__(self, trainer: Trainer, tokens: TokenFile, files: AttemptFiles, rank: int) -> None:
        self.trainer, self.tokens, self.files, self.rank = trainer, tokens, files, rank
        self.losses: list[float] = []
        self._reported_at_s = 0.0

    def timed(self, iteration: int, around: AbstractContextManager[object] | None = None) -> int:
        """Run one iteration; its duration in nanoseconds, from batch in hand to finished update.

        Args:
            around: a context that is entered for just what is timed.
        """
        tokens_BT, target_BT = self.tokens.batch(self.trainer.run, iteration, self.trainer.replica)
        with around or nullcontext():
            start_ns = time.perf_counter_ns()
            loss = self.trainer.step(tokens_BT, target_BT)
            value = None if loss is None else loss.item()
            duration_ns = time.perf_counter_ns() - start_ns
        if value is not None:
            if not math.isfinite(value):
                raise NotFiniteError(f"the loss is {value} at iteration {iteration}")
            self.losses.append(value)
        self._report_progress(iteration + 1)
        return duration_ns

    def _report_progress(self, done: int) -> None:
        protocol, now_s = self.trainer.run.protocol, time.monotonic()
        if self.rank == 0 and (now_s - self._reported_at_s > _PROGRESS_INTERVAL_S or done == 1):
            self._reported_at_s = now_s
            progress = Progress(done=done, total=protocol.iterations + protocol.profiled_iterations)
            write_atomically(self.files.progress, msgspec.json.encode(progress), durable=False)


def _environment(assignment: Assignment, tokens: TokenFile, trace: CpuTrace) -> Environment:
    no_power = power_unavailable()
    return Environment(
        torch=str(torch.__version__),
        python=platform.python_version(),
        backend="gloo",
        attention_operator=",".join(trace.attention_operators),
        code_version=assignment.code_version,
        data_source=tokens.manifest.dataset.source,
        data_sha256=tokens.manifest.sha256,
        host_cores=available_cores(),
        unavailable={"power_w_per_gpu": no_power, "tokens_per_joule": no_power},
    )


def combine(assignment: Assignment, measurements: list[Measurement], started_at: str, finished_at: str) -> RunResult:
    """The result of a run from what its ranks measured, in rank order; the environment is that of rank 0."""
    return RunResult(
        run=assignment.run,
        model=assignment.model,
        outcome=Outcome.OK,
        attempt=assignment.attempt,
        started_at=started_at,
        finished_at=finished_at,
        ranks=[measurement.report for measurement in measurements],
        environment=measurements[0].environment,
    )
