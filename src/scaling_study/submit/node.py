"""What runs as a rank: one function of one run. `measure` is imported there, never by the driver.

On a cluster submitit starts a fresh process a rank. On this machine ranks are forked from a server that has imported
what they need and done nothing else, which is most of a small run's time saved.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

#: Is given a payload, and sends its answer.
Task = Callable[[Connection, bytes], None]


def start_rank(payload: str, address: str) -> None:
    """The task of a job: ask the job which rank this is, measure.

    Args:
        payload: an `Assignment` as JSON.
        address: of rank 0's host for the others; empty for the name that the job knows it by.

    Raises:
        RuntimeError: this node has other code than the driver; it is reported as this rank's failure.
    """
    from submitit import JobEnvironment

    _leave_signals_to_slurm()
    job = JobEnvironment()
    if job.global_rank == 0:
        _require_own_attempt(payload)
    if job.local_rank == 0:  # one a node: all ranks of a node read the same files
        _require_code_of(payload, job.global_rank)
    measure(payload, job.global_rank, job.num_tasks, address or job.hostnames[0], job.local_rank)


def start_check(payload: str, address: str) -> None:
    """The task of a check of nodes.

    Args:
        payload: a `NodeCheck` as JSON.
        address: of rank 0's host for the others; empty for the name that the job knows it by.

    Raises:
        RuntimeError: this node has other code than whoever asked for the check.
    """
    import msgspec
    from submitit import JobEnvironment

    from scaling_study.spec import AttemptFiles, NodeCheck

    _leave_signals_to_slurm()
    job, check = JobEnvironment(), msgspec.json.decode(payload, type=NodeCheck)
    os.environ["OMP_NUM_THREADS"] = str(check.threads_per_rank)
    _print_to(AttemptFiles(Path(check.folder)).output(job.global_rank))
    if job.local_rank == 0 and (error := _other_code(check.code_digest)) is not None:
        raise error
    from scaling_study.measure.health import check_node

    check_node(check, job.global_rank, job.num_tasks, address or job.hostnames[0], job.local_rank)


def measure(payload: str, rank: int, world_size: int, address: str, local_rank: int) -> None:
    """Measure an assignment on this rank; what it prints goes to the attempt's log.

    Args:
        payload: an `Assignment` as JSON.
        rank: of this process.
        world_size: how many there are.
        address: the address of rank 0's host for the others.
        local_rank: of this process on its host.
    """
    import msgspec

    from scaling_study.measure.rank import run_one
    from scaling_study.spec import Assignment, AttemptFiles

    assignment = msgspec.json.decode(payload, type=Assignment)
    os.environ["OMP_NUM_THREADS"] = str(assignment.threads_per_rank)
    _print_to(AttemptFiles(Path(assignment.attempt_folder)).output(rank))
    run_one(assignment, rank, world_size, address, local_rank)


def answer(task: Task, connection: Connection, payload: bytes, log: str) -> None:
    """A task in a process of its own; what it prints goes to a file."""
    _print_to(Path(log))
    task(connection, payload)


def look_at_gpus(connection: Connection, _: bytes) -> None:
    """The task of a process that looks which GPUs there are; answers with a `MachineReport` as JSON."""
    import msgspec

    from scaling_study.measure.inspection import look

    connection.send_bytes(msgspec.json.encode(look()))


def check_attention(connection: Connection, payload: bytes) -> None:
    """The task of a process that compares attention backends; answers with a list of `AttentionReport` as JSON.

    Args:
        payload: an `AttentionCheck` as JSON.
    """
    import msgspec

    from scaling_study.measure.attention import check
    from scaling_study.spec import AttentionCheck

    connection.send_bytes(msgspec.json.encode(check(msgspec.json.decode(payload, type=AttentionCheck))))


def _leave_signals_to_slurm() -> None:
    """A rank ends by SIGTERM at once, and not by the warning before the wall time: why a job ended, Slurm says.

    submitit ignores the one and takes the other for its own time-out, even where it is a preemption.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def _require_own_attempt(payload: str) -> None:
    """Refuse to measure an attempt that was submitted again as another job: the answer to this submission was lost."""
    import msgspec

    from scaling_study.spec import Assignment
    from scaling_study.submit.slurm import ledger

    entry = ledger.read(Path(msgspec.json.decode(payload, type=Assignment).attempt_folder))
    own = os.environ.get("SLURM_JOB_NAME")
    if entry is not None and own is not None and own != entry.name:
        raise SystemExit(f"this attempt is that of job {entry.name} now; {own} leaves it alone")


def _require_code_of(payload: str, rank: int) -> None:
    """Refuse to measure with other code than the driver's: the record would name the wrong one."""
    import msgspec

    from scaling_study.measure.rank import report_failure
    from scaling_study.spec import Assignment, AttemptFiles

    assignment = msgspec.json.decode(payload, type=Assignment)
    error = _other_code(assignment.code_digest) if assignment.code_digest is not None else None
    if error is not None:
        report_failure(AttemptFiles(Path(assignment.attempt_folder)), rank, error)
        raise error


def _other_code(digest: str) -> RuntimeError | None:
    """Why this node may not measure for a driver that has some code, if it may not."""
    from scaling_study.submit.version import code_digest

    if code_digest() == digest:
        return None
    return RuntimeError(
        f"this node runs other code than its driver (modules' SHA-256 {code_digest()[:12]}, the driver's {digest[:12]})"
    )


def _print_to(path: Path) -> None:
    """From here on, what this process and its libraries print goes to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
