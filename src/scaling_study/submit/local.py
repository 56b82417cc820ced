"""One run on this machine: a process a rank, and this driver watches them.

Ranks of a dead one would wait for their time-out. The driver looks at what ranks say in the attempt's folder, and ends
all of them within seconds when one is gone, reports a failure, or makes no progress.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import psutil

from scaling_study.processes import identity, is_alive, kill
from scaling_study.spec import (
    Assignment,
    AttemptFiles,
    FailureKind,
    Outcome,
    Platform,
    ProcessIdentity,
    Progress,
    RunFiles,
    RunResult,
    TrainingRun,
    steps_of,
)
from scaling_study.submit import node, verdict

LOOPBACK = "127.0.0.1"
SERVER = "scaling_study.measure.server"  # imported by the process that forks ranks
_POLL_S = 0.2  # ranks and driver share the cores
_EVIDENCE_S = 1.5  # after the first sign of a failure, the ranks get this long to say what happened
_EXIT_S = 5.0
_OUTSIDE_S = 3.0
_START_S = 2.0

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
    watch, ranks = _Watch(assignment, platform), _Ranks(assignment)
    try:
        ranks.start()
        return watch.until_end(ranks, on_progress)
    finally:
        ranks.end(_EXIT_S if watch.has_result else 0.0)


@contextlib.contextmanager
def alone_on_this_machine(on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the machine for one run: local runs disturb each other, whichever checkout or driver they belong to.

    The lock is one for each user and temporary folder.

    Args:
        on_wait: called once if another run holds it.
    """
    path = Path(tempfile.gettempdir()) / f"scaling-study-{os.getuid()}.lock"
    with path.open("a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class ChildError(Exception):
    """A process that was asked something ended without an answer; the message says how."""


def ask_fresh_process(task: node.Task, payload: bytes, limit_s: float, log: Path) -> bytes:
    """What a task answers in a process of its own, forked as ranks are; what it breaks ends with it.

    Args:
        task: sends its answer.
        payload: that it is given.
        limit_s: how long it may take.
        log: what it prints.

    Raises:
        ChildError: it ended without an answer, or took too long.
    """
    _ensure_server(log.with_name("server.log"))
    context = multiprocessing.get_context("forkserver")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=node.answer, args=(task, theirs, payload, str(log)), daemon=True)
    process.start()
    theirs.close()
    try:
        if not mine.poll(limit_s):
            raise ChildError(f"no answer within {limit_s:.0f} s")
        return mine.recv_bytes()
    except EOFError as error:
        process.join(_EXIT_S)
        code = process.exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
        raise ChildError(f"the process ended {how} and no answer{': ' + said[-1] if said else ''}") from error
    finally:
        mine.close()
        process.kill()
        process.join(_EXIT_S)


class _Ranks:
    """The processes of an attempt, forked from a server that lives as long as this driver.

    They are started in the background: a server that imports may take long, and the limits of the run hold meanwhile.

    Args:
        assignment: what they measure.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._assignment, self._files = assignment, AttemptFiles(Path(assignment.attempt_folder))
        self._log = Path(assignment.run_folder).parent / "server.log"
        self._processes: list[BaseProcess] = []
        self._identities: list[ProcessIdentity] = []
        self._ending = threading.Event()
        self._starter = threading.Thread(target=self._start_all, name="start ranks", daemon=True)
        self.trouble: tuple[FailureKind, str] | None = None  # why ranks could not be started

    def start(self) -> None:
        """Begin to start the ranks, and the server if it does not run."""
        os.environ["OMP_NUM_THREADS"] = str(self._assignment.threads_per_rank)
        self._files.log.mkdir(parents=True, exist_ok=True)
        _ensure_server(self._log)
        self._starter.start()

    def _start_all(self) -> None:
        context = multiprocessing.get_context("forkserver")
        payload, ranks = msgspec.json.encode(self._assignment).decode(), self._assignment.ranks
        for rank in range(ranks):
            if self._ending.is_set():
                return
            process = context.Process(target=node.measure, args=(payload, rank, ranks, LOOPBACK, rank), daemon=True)
            try:
                process.start()
            except (OSError, EOFError) as error:
                self.trouble = self._explain(error)
                return
            self._processes.append(process)
            with contextlib.suppress(psutil.NoSuchProcess):
                self._identities.append(identity(process.pid))

    def _explain(self, error: Exception) -> tuple[FailureKind, str]:
        """Why the server did not answer: it was killed, or what it printed says why it ended."""
        said = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        last = said.strip().splitlines()[-1:]
        why = last[0] if last else f"{type(error).__name__}: {error}"
        kind = FailureKind.ERROR if "Traceback" in said else FailureKind.KILLED
        return kind, f"ranks could not be started: {why} (log: {self._log})"

    def exit_codes(self) -> dict[int, int]:
        """How the processes of ranks ended that did."""
        return {rank: p.exitcode for rank, p in enumerate(self._processes) if p.exitcode is not None}

    def end(self, grace_s: float) -> None:
        """Wait for the processes; kill those that do not end in time, even if the server has gone."""
        self._ending.set()
        if self._starter.ident is not None:
            self._starter.join(_START_S)
        if self._starter.is_alive():  # the server hangs
            _kill_servers()
            self._starter.join(_EXIT_S)
        deadline = time.monotonic() + grace_s
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        told = (verdict.process_of(self._files, rank) for rank in range(self._assignment.ranks))
        left = [*self._identities, *(one for one in told if one)]
        for one in left:
            kill(one)
        deadline = time.monotonic() + _EXIT_S
        while any(is_alive(one) for one in left) and time.monotonic() < deadline:
            time.sleep(_POLL_S / 10)
        for process in self._processes:
            process.join(_POLL_S)


def _ensure_server(log: Path) -> None:
    """Start the server if it does not run; what it says goes to a file. What it is given now its ranks have later."""
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's name need not resolve
    multiprocessing.set_forkserver_preload([SERVER])
    with _standard_error_to(log):
        forkserver.ensure_running()  # by this thread: the server ends with the one that started it


def _kill_servers() -> None:
    """End the servers of this process; multiprocessing starts another when it is asked for ranks."""
    servers, deadline = _servers(), time.monotonic() + _EXIT_S
    for server in servers:
        server.kill()
    while any(_at_work(server) for server in servers) and time.monotonic() < deadline:
        time.sleep(_POLL_S / 10)


def _at_work(process: psutil.Process) -> bool:
    """Whether a child of this process has not ended with all its threads; reaping it is multiprocessing's."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _servers() -> list[psutil.Process]:
    """The servers of this process that fork ranks and live."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended
            if "multiprocessing.forkserver" in str(child.cmdline()):
                found.append(child)
    return found


@contextlib.contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """What a process started meanwhile says on standard error goes to a file, which is emptied before."""
    saved = os.dup(2)
    with path.open("ab") as file:  # one that was started before goes on writing at its end
        file.truncate(0)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)


class _Watch:
    """What a driver sees of an attempt."""

    def __init__(self, assignment: Assignment, platform: Platform) -> None:
        self.assignment, self.platform = assignment, platform
        self._step = "iteration" if isinstance(assignment.run, TrainingRun) else "call"
        self.attempt = AttemptFiles(Path(assignment.attempt_folder))
        self._result = RunFiles(Path(assignment.run_folder)).result
        self.started_at = verdict.utc_now()
        self._start_s = self._last_step_s = time.monotonic()
        self._done = 0

    @property
    def has_result(self) -> bool:
        """Whether rank 0 wrote the result."""
        return self._result.exists()

    def until_end(self, ranks: _Ranks, on_progress: OnProgress) -> RunResult | None:
        """Look at the attempt until it ends."""
        while not self.has_result:
            on_progress(self._progress())
            late = self._late()
            if late:
                return verdict.ended(self.assignment, Outcome.TIMEOUT, late, self.started_at)
            if ranks.trouble:
                kind, reason = ranks.trouble
                return verdict.ended(self.assignment, Outcome.FAILED, reason, self.started_at, kind)
            if ranks.exit_codes() or verdict.failures(self.attempt, self.assignment.ranks):
                return self._judge(ranks)
            time.sleep(_POLL_S)
        return None

    def _judge(self, ranks: _Ranks) -> RunResult | None:
        """Give other ranks a moment to report, unless the result appears after all."""
        deadline = time.monotonic() + _EVIDENCE_S
        while time.monotonic() < deadline and len(ranks.exit_codes()) < self.assignment.ranks:
            if self.has_result:
                return None
            time.sleep(_POLL_S)
        found = verdict.failures(self.attempt, self.assignment.ranks, ranks.exit_codes())
        return None if self.has_result else verdict.verdict(self.assignment, found, self.started_at)

    def _progress(self) -> Progress:
        try:
            progress = msgspec.json.decode(self.attempt.progress.read_bytes(), type=Progress)
        except (OSError, msgspec.DecodeError):
            progress = Progress(done=0, total=steps_of(self.assignment.run))
        if progress.done > self._done:
            self._done, self._last_step_s = progress.done, time.monotonic()
        return progress

    def _late(self) -> str | None:
        """Which limit is passed; a rank that can still tell has told its own before."""
        now_s, limits = time.monotonic(), self.platform
        if now_s - self._start_s > limits.run_limit_s:
            return f"the run took longer than {limits.run_limit_s:.0f} s (run_limit_s)"
        if self._done == 0 and now_s - self._start_s > limits.first_iteration_limit_s + _OUTSIDE_S:
            return f"no first {self._step} within {limits.first_iteration_limit_s:g} s (first_iteration_limit_s)"
        if self._done and now_s - self._last_step_s > limits.iteration_limit_s + _OUTSIDE_S:
            last = f"{self._step} {self._done}"
            return f"no {self._step} for {limits.iteration_limit_s:g} s after {last} (iteration_limit_s)"
        return None
