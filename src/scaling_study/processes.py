"""Processes that belong together: telling one from another, and ending when one's owner ends.

A chain of owners (make, Snakemake, a driver, its ranks) must not leave anything behind when a link is killed, and a
killed link cannot clean up. So each link watches the one above it and ends by itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time

import psutil

from scaling_study.spec import ProcessIdentity

OWNER_VARIABLE = "SCALING_STUDY_OWNER_PID"
_CLOCK_TOLERANCE_S = 2.0
_WATCH_INTERVAL_S = 0.25
_GRACE_S = 5.0


def identity(pid: int | None = None) -> ProcessIdentity:
    """The identity of a process of this host; of this one by default."""
    process = psutil.Process(pid)
    return ProcessIdentity(host=socket.gethostname(), pid=process.pid, started=f"{process.create_time():.2f}")


def is_alive(process: ProcessIdentity) -> bool:
    """Whether a process of this host still runs: the same process id, started at the same time, no zombie."""
    try:
        found = psutil.Process(process.pid)
        same = abs(found.create_time() - float(process.started)) < _CLOCK_TOLERANCE_S
        return bool(same and found.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill(process: ProcessIdentity) -> None:
    """Kill a process of this host if it is still the same one."""
    if process.host == socket.gethostname() and is_alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def end_with(owner: ProcessIdentity, *, at_once: bool) -> None:
    """End this process soon after its owner ends.

    Args:
        owner: a process of this host.
        at_once: exit on the spot; otherwise ask with SIGTERM first and exit some seconds later.
    """

    def watch() -> None:
        while is_alive(owner):
            time.sleep(_WATCH_INTERVAL_S)
        if not at_once:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-owner", daemon=True).start()


def end_with_owner_of_environment(*, at_once: bool) -> None:
    """Follow the process named by the environment, if there is one, and become the owner of what is started here."""
    pid = os.environ.get(OWNER_VARIABLE, "")
    if pid.isdecimal() and psutil.pid_exists(int(pid)):
        end_with(identity(int(pid)), at_once=at_once)
    os.environ[OWNER_VARIABLE] = str(os.getpid())


def available_cores() -> int:
    """Cores that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
