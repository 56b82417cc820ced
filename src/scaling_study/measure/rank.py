"""One rank of one run, from the first import to the result.

torch is imported inside the function: a fresh process says who it is and begins to follow its owner before that, so
that a driver sees a rank that dies while importing. A forked one has it already.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from scaling_study.errors import write_atomically
from scaling_study.measure.failures import StalledError, classify
from scaling_study.measure.watchdog import Watchdog, write_flight_record
from scaling_study.processes import end_with, identity
from scaling_study.spec import Assignment, AttemptFiles, RankFailure, RunFiles, TrainingRun

if TYPE_CHECKING:
    from scaling_study.measure.report import Measurement

_TRACEBACK_LINES = 20


def run_one(assignment: Assignment, rank: int, world_size: int, address: str, local_rank: int) -> None:
    """Measure one run on this rank; rank 0 writes `result.json`, last.

    Args:
        address: the address of this host for the other ranks.
        local_rank: the rank's number on this host, which tells its GPU.

    Raises:
        Exception: whatever ended the rank, after it was written to the rank's failure file.
    """
    files = AttemptFiles(Path(assignment.attempt_folder))
    write_atomically(files.process(rank), msgspec.json.encode(identity()))
    if assignment.owner is not None:
        end_with(assignment.owner, at_once=True)
    watchdog = _watchdog(assignment, files, rank)
    try:
        if world_size != assignment.ranks:
            raise ValueError(f"the job has {world_size} tasks, the run needs {assignment.ranks}")
        _measure(assignment, files, (rank, local_rank), world_size, address, watchdog)
    except BaseException as error:
        report_failure(files, rank, error)
        raise
    finally:
        watchdog.close()


def _watchdog(assignment: Assignment, files: AttemptFiles, rank: int) -> Watchdog:
    """What ends this rank when it stalls, and leaves its stacks, its flight record and its report."""

    def report(error: StalledError) -> None:
        _report(files, rank, error, str(error), _stack_of_main_thread())
        write_flight_record(files.flight_record(rank))

    step = "iteration" if isinstance(assignment.run, TrainingRun) else "call"
    return Watchdog(assignment.first_step_limit_s, assignment.step_limit_s, step, report)


def _measure(
    assignment: Assignment,
    files: AttemptFiles,
    ranks: tuple[int, int],
    world_size: int,
    address: str,
    watchdog: Watchdog,
) -> None:
    started_at, (rank, local_rank) = _now(), ranks
    import torch
    import torch.distributed as dist

    from scaling_study.measure import device as devices
    from scaling_study.measure.collective import measure_collective
    from scaling_study.measure.machine import keep_freed_memory
    from scaling_study.measure.rendezvous import meet
    from scaling_study.measure.report import ProgressFile, combine
    from scaling_study.measure.training import measure_training

    keep_freed_memory()
    torch.set_num_threads(assignment.threads_per_rank)
    device = devices.open_device(assignment.gpu, local_rank)
    store = meet(files, rank, world_size, address)
    dist.init_process_group(
        device.backend,
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(minutes=10),
        **device.group_options(),
    )
    progress = ProgressFile(assignment, files, rank)

    def step(done: int) -> None:
        watchdog.step(done)
        progress(done)

    if isinstance(assignment.run, TrainingRun):
        measurement = measure_training(assignment, files, rank, device, step)
    else:
        measurement = measure_collective(assignment, rank, device, step)
    watchdog.close()
    everyone: list[Measurement | None] | None = [None] * world_size if rank == 0 else None
    dist.gather_object(measurement, everyone)
    if everyone is not None:
        result = combine(assignment, [one for one in everyone if one], started_at, _now())
        write_atomically(RunFiles(Path(assignment.run_folder)).result, msgspec.json.encode(result))
    dist.barrier()  # no rank leaves before the result is there
    dist.destroy_process_group()


def report_failure(files: AttemptFiles, rank: int, error: BaseException) -> None:
    """Write why this rank ends, for its driver."""
    message = f"{type(error).__name__}: {error}".strip(": ")
    _report(files, rank, error, message, "".join(traceback.format_exception(error)))


def _stack_of_main_thread() -> str:
    """Where the main thread is at this moment."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "".join(traceback.format_stack(frame)) if frame else ""


def _report(files: AttemptFiles, rank: int, error: BaseException, message: str, stack: str) -> None:
    failure = RankFailure(
        rank=rank,
        host=socket.gethostname(),
        kind=classify(error),
        message=message,
        traceback="\n".join(stack.splitlines()[-_TRACEBACK_LINES:]),
        at_ns=time.time_ns(),
    )
    write_atomically(files.failure(rank), msgspec.json.encode(failure))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
