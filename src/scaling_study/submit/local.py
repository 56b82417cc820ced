"""One run on this machine: submitit's local executor starts one process a rank, and this driver watches them.

submitit alone would let the ranks of a dead one wait for their time-out. The driver looks at what ranks say in the
attempt's folder, and ends all of them within seconds when one is gone, reports a failure, or makes no progress.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from scaling_study.processes import is_alive, kill
from scaling_study.spec import (
    Assignment,
    AttemptFiles,
    FailureKind,
    Outcome,
    Platform,
    Progress,
    RunFiles,
    RunResult,
    steps_of,
)
from scaling_study.submit import verdict
from scaling_study.submit.node import start_rank

LOOPBACK = "127.0.0.1"
_POLL_S = 0.2  # ranks and driver share the cores
_EVIDENCE_S = 1.5  # after the first sign of a failure, the ranks get this long to say what happened
_EXIT_S = 5.0
_BEGIN_S = 30.0
_SUBMITIT_LIMIT_MIN = 24 * 60.0  # never reached: the limits of the platform are this driver's

OnProgress = Callable[[Progress], None]


def run_locally(assignment: Assignment, platform: Platform, on_progress: OnProgress) -> RunResult | None:
    """Start the ranks of an attempt, watch them, and leave none behind.

    Args:
        assignment: the run and its folders; ranks end with the assignment's owner.
        platform: its time limits.
        on_progress: called while the run goes on, at least once a heartbeat.

    Returns:
        None if ranks wrote a result, else how the attempt ended.
    """
    watch = _Watch(assignment, platform)
    job = _submit(assignment, watch.ranks)
    try:
        return watch.until_end(job, on_progress)
    finally:
        _end(job, watch)


@contextlib.contextmanager
def alone_on_this_machine(on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the machine for one run: local runs disturb each other, whichever checkout or driver they belong to.

    Args:
        on_wait: called once if another run holds it.
    """
    path = Path(tempfile.gettempdir()) / f"scaling-study-{getpass.getuser()}.lock"
    with path.open("a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _submit(assignment: Assignment, ranks: int) -> Any:
    from submitit import LocalExecutor

    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's name need not resolve
    log = AttemptFiles(Path(assignment.attempt_folder)).log
    executor = LocalExecutor(folder=log)
    executor.update_parameters(tasks_per_node=ranks, timeout_min=_SUBMITIT_LIMIT_MIN)
    with _standard_error_to(log / "controller.err"):
        return executor.submit(start_rank, msgspec.json.encode(assignment).decode(), LOOPBACK)


@contextlib.contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """What a process started meanwhile says on standard error goes to a file: submitit's controller is talkative."""
    saved = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def _end(job: Any, watch: _Watch) -> None:
    """Wait for a job that is done, cancel one that is not, kill what is left."""
    deadline = time.monotonic() + _EXIT_S
    if not watch.has_result:
        job.cancel()
    while job.state == "RUNNING" and time.monotonic() < deadline:
        time.sleep(_POLL_S / 2)
    left = [process for rank in range(watch.ranks) if (process := verdict.process_of(watch.attempt, rank))]
    for process in left:
        kill(process)
    if job.state == "RUNNING":
        job.cancel()
    deadline = time.monotonic() + _EXIT_S
    while any(is_alive(process) for process in left) and time.monotonic() < deadline:
        time.sleep(_POLL_S / 10)


class _Watch:
    """What a driver sees of an attempt."""

    def __init__(self, assignment: Assignment, platform: Platform) -> None:
        self.assignment, self.platform, self.ranks = assignment, platform, assignment.ranks
        self.attempt = AttemptFiles(Path(assignment.attempt_folder))
        self._result = RunFiles(Path(assignment.run_folder)).result
        self.started_at = verdict.utc_now()
        self._start_s = self._last_step_s = time.monotonic()
        self._done = 0
        self._begun_s: float | None = None

    @property
    def has_result(self) -> bool:
        """Whether rank 0 wrote the result."""
        return self._result.exists()

    def until_end(self, job: Any, on_progress: OnProgress) -> RunResult | None:
        """Look at the attempt until it ends."""
        while not self.has_result:
            on_progress(self._progress())
            late = self._late()
            if late:
                return verdict.ended(self.assignment, Outcome.TIMEOUT, late, self.started_at)
            if self._absent():
                return verdict.ended(
                    self.assignment, Outcome.FAILED, self._absent(), self.started_at, FailureKind.KILLED
                )
            if verdict.failures(self.attempt, self.ranks) or job.state != "RUNNING":
                return self._judge()
            time.sleep(_POLL_S)
        return None

    def _judge(self) -> RunResult | None:
        """Give other ranks a moment to report, unless the result appears after all."""
        deadline = time.monotonic() + _EVIDENCE_S
        found = verdict.failures(self.attempt, self.ranks)
        while time.monotonic() < deadline and len(found) < self.ranks:
            if self.has_result:
                return None
            time.sleep(_POLL_S)
            found = verdict.failures(self.attempt, self.ranks)
        return None if self.has_result else verdict.verdict(self.assignment, found, self.started_at)

    def _progress(self) -> Progress:
        try:
            progress = msgspec.json.decode(self.attempt.progress.read_bytes(), type=Progress)
        except (OSError, msgspec.DecodeError):
            progress = Progress(done=0, total=steps_of(self.assignment.run))
        if progress.done > self._done:
            self._done, self._last_step_s = progress.done, time.monotonic()
        return progress

    def _absent(self) -> str:
        """Which rank did not begin although another did long ago: it was killed before it could say who it is."""
        begun = [self.attempt.process(rank).exists() for rank in range(self.ranks)]
        if self._begun_s is None and any(begun):
            self._begun_s = time.monotonic()
        if all(begun) or self._begun_s is None or time.monotonic() - self._begun_s < _BEGIN_S:
            return ""
        return f"rank {begun.index(False)} did not begin within {_BEGIN_S:.0f} s of the others"

    def _late(self) -> str | None:
        """Which limit is passed."""
        now_s, limits = time.monotonic(), self.platform
        if now_s - self._start_s > limits.run_limit_s:
            return f"the run took longer than {limits.run_limit_s:.0f} s (run_limit_s)"
        if self._done == 0 and now_s - self._start_s > limits.first_iteration_limit_s:
            return f"no first iteration within {limits.first_iteration_limit_s:.0f} s (first_iteration_limit_s)"
        if self._done and now_s - self._last_step_s > limits.iteration_limit_s:
            return f"no iteration for {limits.iteration_limit_s:.0f} s after iteration {self._done} (iteration_limit_s)"
        return None
