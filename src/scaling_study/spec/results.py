"""What a run leaves behind on the node: a small typed result, written by rename, last."""

from __future__ import annotations

import msgspec

from scaling_study.spec.gpus import GpuReport
from scaling_study.spec.hardware import Hardware
from scaling_study.spec.models import Model
from scaling_study.spec.runs import Run
from scaling_study.spec.synchronisation import Synchronisation
from scaling_study.spec.words import DataSource, FailureKind, Outcome

RESULT_SCHEMA_VERSION = 1


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that cannot be mistaken for another: a process id is used again, its start time is not."""

    host: str
    pid: int
    started: str


class Assignment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a node needs for one run; travels as JSON.

    Attributes:
        model: dimensions of a training run's model.
        ranks: how many processes the run has.
        run_folder: where `result.json` appears.
        attempt_folder: where ranks report progress and failures.
        code_digest: of the driver's code; a node that has other code refuses. None where both are one checkout.
        first_step_limit_s: from a rank's start to the end of its first iteration or call; it ends where that is passed.
        step_limit_s: between two later ones, likewise.
        owner: ranks end when this process does; None where jobs outlive their driver.
        gpu: what each rank has one of, or refuses; None where ranks train on CPUs.
        keep_trace: rank 0 keeps its raw trace of the profiled window, gzipped.
    """

    run: Run
    model: Model | None
    ranks: int
    run_folder: str
    attempt_folder: str
    attempt: int
    data_folder: str
    code_version: str
    threads_per_rank: int
    code_digest: str | None = None
    first_step_limit_s: float = 1800.0
    step_limit_s: float = 600.0
    owner: ProcessIdentity | None = None
    gpu: Hardware | None = None
    keep_trace: bool = False


class RankReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank's measurement.

    Attributes:
        cores: cores that the rank may run on.
        threads: threads that an operator may use.
        peak_memory_gib: on a CPU, peak anonymous memory above the level after imports; on a GPU, peak allocated.
        iteration_ns: every timed iteration, discarded ones included.
        profiled_ns: every iteration under the profiler.
        losses: the replica's loss of every timed iteration; empty but on the last pipeline stage.
        compute_ns, communication_ns, exposed_communication_ns: over all profiled iterations, flattened.
        loss_scale, skipped_updates: of fp16: the scale at the end, and updates left out for infinite gradients.
        gpu: of a rank on one.
    """

    rank: int
    host: str
    device: str
    cores: int
    threads: int
    peak_memory_gib: float | None
    iteration_ns: list[int]
    profiled_ns: list[int]
    losses: list[float]
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    communication_by_axis_ns: dict[str, int]
    exposed_by_axis_ns: dict[str, int]
    loss_scale: float | None = None
    skipped_updates: int | None = None
    gpu: GpuReport | None = None


class CollectiveReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank's measurement of a collective.

    Attributes:
        cores, threads: as in `RankReport`.
        call_ns: every timed call, from its issue to its completion on this rank.
    """

    rank: int
    host: str
    device: str
    cores: int
    threads: int
    call_ns: list[int]


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With what a run was measured.

    Attributes:
        attention_operator: the operators that computed attention; None where there was none.
        data_source, data_sha256: None for a run that reads no data.
        host_cores: cores of a host that the run's ranks share.
        unavailable: metrics that cannot be had here, each with its reason.
        cuda, driver, nccl, xformers: versions, where ranks are on GPUs; None for what is not there.
    """

    torch: str
    python: str
    backend: str
    attention_operator: str | None
    code_version: str
    data_source: DataSource | None
    data_sha256: str | None
    host_cores: int
    unavailable: dict[str, str]
    cuda: str | None = None
    driver: str | None = None
    nccl: str | None = None
    xformers: str | None = None


class RunResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run ended, and its measurement where it ended well. Times are UTC, ISO 8601.

    Attributes:
        evidence: the last lines of the rank that is the cause: its traceback, or what it printed.
        ranks: of a training run, in rank order.
        calls: of a collective run, in rank order.
        synchronisation: of a training run under observation.
    """

    run: Run
    model: Model | None = None
    outcome: Outcome
    reason: str | None = None
    failure: FailureKind | None = None
    evidence: str | None = None
    attempt: int
    started_at: str
    finished_at: str
    ranks: list[RankReport] = []
    calls: list[CollectiveReport] = []
    environment: Environment | None = None
    synchronisation: Synchronisation | None = None
    schema_version: int = RESULT_SCHEMA_VERSION


class RankFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a rank ended."""

    rank: int
    host: str
    kind: FailureKind
    message: str
    traceback: str
    at_ns: int


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a run is; rank 0 writes it."""

    done: int
    total: int
