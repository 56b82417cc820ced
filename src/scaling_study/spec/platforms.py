"""Platforms: where runs execute. Nothing of a machine is in the code; it is all here and in `config/platforms`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from scaling_study.spec.words import Executor

#: The platform that runs nothing: the performance model, for every hardware that it knows.
PREDICT = "predict"

Seconds = Annotated[float, Meta(gt=0)]


Positive = Annotated[int, Meta(gt=0)]
#: What reaches a shell or sbatch: names that cannot begin an option or end a word.
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$")]
Constraint = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_(\[][A-Za-z0-9_.&|*()\[\]-]*$")]
NodeList = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]*$")]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How jobs of a platform are asked of Slurm.

    Attributes:
        partition, account, qos, constraint: of every job.
        nodes: the most that one job may have.
        nodes_at_once: the most that all jobs of one sweep have together; a job larger than that runs alone.
        tasks_per_node: ranks that a node takes; None for as many as the hardware has accelerators.
        gpus: whether accelerators are asked for, one a task (`--gpus-per-node`).
        cpus_per_task: cores of a rank.
        memory_gib_per_node: asked for; None for all of a node.
        exclusive: whether a node is shared with nobody.
        exclude: nodes never used, in Slurm's notation.
        exclude_after: failures of a node after which this platform's jobs avoid it too.
        most_minutes, least_minutes: of a job's wall time. submitit takes any signal for a time-out in jobs of ten
            minutes or less.
        start_up_minutes: from the start of a job to its first iteration.
        margin: wall time asked for over the predicted time.
        setup: lines of shell before the ranks start, such as `module load cuda`. They are code, written by whoever
            owns the platform.
        environment: variables of the ranks, such as those of NCCL.
        poll_s: seconds between two looks at the jobs, at first; longer while nothing changes.
        unknown_s: how long a job may be unknown to Slurm before it counts as gone.
        restarts: how often a run is submitted again after a preemption or the failure of a node.
        on_interrupt: what becomes of jobs when their driver is interrupted.
        price_per_gpu_hour: in `currency`.
    """

    partition: Word
    account: Word | None = None
    qos: Word | None = None
    constraint: Constraint | None = None
    nodes: Positive
    nodes_at_once: Positive
    tasks_per_node: Positive | None = None
    gpus: bool = True
    cpus_per_task: Positive = 1
    memory_gib_per_node: Positive | None = None
    exclusive: bool = False
    exclude: NodeList | None = None
    exclude_after: Positive = 2
    most_minutes: Positive
    least_minutes: Positive = 15
    start_up_minutes: Annotated[float, Meta(gt=0)] = 10.0
    margin: Annotated[float, Meta(ge=1)] = 1.5
    setup: tuple[str, ...] = ()
    environment: dict[VariableName, str] = {}
    poll_s: Seconds = 10.0
    unknown_s: Seconds = 120.0
    restarts: Annotated[int, Meta(ge=0)] = 10
    on_interrupt: Literal["leave", "cancel"] = "leave"
    price_per_gpu_hour: Annotated[float, Meta(ge=0)] | None = None
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$")] = "USD"

    def __post_init__(self) -> None:
        if self.least_minutes > self.most_minutes:
            raise ValueError(f"least_minutes ({self.least_minutes}) is above most_minutes ({self.most_minutes})")


class Platform(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One place that measures runs of one hardware.

    Attributes:
        hardware: the only hardware that it measures.
        threads_per_rank: threads of one operator; the same for every run, so that a rank has the same compute at
            every scale.
        first_iteration_limit_s: from the start of a run to the end of its first iteration.
        iteration_limit_s: between two later iterations.
        run_limit_s: one run in all.
        attempts: how often a run is started when a rank is killed from outside.
        slurm: of the executor `slurm`.
    """

    name: str
    title: str
    executor: Executor
    hardware: str
    first_iteration_limit_s: Seconds = 120.0
    iteration_limit_s: Seconds = 60.0
    run_limit_s: Seconds = 600.0
    threads_per_rank: Annotated[int, Meta(gt=0)] = 1
    attempts: Annotated[int, Meta(gt=0)] = 2
    slurm: SlurmSettings | None = None

    def __post_init__(self) -> None:
        if (self.executor is Executor.SLURM) != (self.slurm is not None):
            raise ValueError("a platform has `slurm` settings if and only if its executor is slurm")
