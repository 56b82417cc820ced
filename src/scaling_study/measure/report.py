"""What a rank hands to rank 0, and what rank 0 makes of it."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence

import msgspec
import torch

from scaling_study.errors import write_atomically
from scaling_study.measure.arrivals import RankArrivals, synchronisation_of
from scaling_study.measure.device import Device
from scaling_study.processes import available_cores
from scaling_study.spec import (
    Assignment,
    AttemptFiles,
    CollectiveReport,
    DataSource,
    Environment,
    Outcome,
    Progress,
    RankReport,
    RunResult,
    TrainingRun,
    steps_of,
)

_PROGRESS_INTERVAL_S = 0.5


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's report, what it knows of the environment, and its arrivals where they were observed."""

    report: RankReport | CollectiveReport
    environment: Environment
    arrivals: RankArrivals | None = None


class ProgressFile:
    """How far the run is, for the driver; only rank 0 writes, and seldom.

    Args:
        assignment: the run.
        files: of the attempt.
        rank: of this process.
    """

    def __init__(self, assignment: Assignment, files: AttemptFiles, rank: int) -> None:
        self._path, self._total, self._writes = files.progress, steps_of(assignment.run), rank == 0
        self._written_at_s = 0.0

    def __call__(self, done: int) -> None:
        """So many steps are done."""
        now_s = time.monotonic()
        if self._writes and (now_s - self._written_at_s > _PROGRESS_INTERVAL_S or done == 1):
            self._written_at_s = now_s
            content = msgspec.json.encode(Progress(done=done, total=self._total))
            write_atomically(self._path, content, durable=False)


def environment(
    assignment: Assignment,
    device: Device,
    *,
    attention_operator: str | None = None,
    data_source: DataSource | None = None,
    data_sha256: str | None = None,
    unavailable: Mapping[str, str] | None = None,
) -> Environment:
    """With what this rank measures.

    Args:
        unavailable: metrics that cannot be had beside those that the device does not give, each with its reason.
    """
    return Environment(
        torch=str(torch.__version__),
        python=platform.python_version(),
        backend=device.backend,
        attention_operator=attention_operator,
        code_version=assignment.code_version,
        data_source=data_source,
        data_sha256=data_sha256,
        host_cores=available_cores(),
        unavailable={**device.unavailable(), **(unavailable or {})},
        **device.versions(),
    )


def combine(
    assignment: Assignment, measurements: Sequence[Measurement], started_at: str, finished_at: str
) -> RunResult:
    """The result of a run from what its ranks measured, in rank order; the environment is that of rank 0."""
    reports = [measurement.report for measurement in measurements]
    arrivals = [measurement.arrivals for measurement in measurements if measurement.arrivals]
    run = assignment.run
    return RunResult(
        run=run,
        model=assignment.model,
        outcome=Outcome.OK,
        attempt=assignment.attempt,
        started_at=started_at,
        finished_at=finished_at,
        ranks=[report for report in reports if isinstance(report, RankReport)],
        calls=[report for report in reports if isinstance(report, CollectiveReport)],
        environment=measurements[0].environment,
        synchronisation=synchronisation_of(arrivals, run.protocol.discard)
        if arrivals and isinstance(run, TrainingRun)
        else None,
    )
