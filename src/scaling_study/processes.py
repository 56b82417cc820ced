"""Processes that belong together: telling one from another, and ending when one's owner ends.

A chain of owners (make, Snakemake, a driver, its ranks) must not leave anything behind when a link is killed, and a
killed link cannot clean up. So each link watches the one above it and ends by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import msgspec
import psutil

from scaling_study.spec import ProcessIdentity

OWNER_VARIABLE = "SCALING_STUDY_OWNER_PID"
_CGROUP = Path("/sys/fs/cgroup")
_CLOCK_TOLERANCE_S = 2.0
_WATCH_INTERVAL_S = 0.25
_GRACE_S = 5.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


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


def end_with_parent() -> None:
    """On Linux, have this process killed when the thread that started it ends; processes forked from it are not."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def follow_owner_of_environment(*, at_once: bool) -> None:
    """End with the process that the environment names, if it names one; end now if that one has gone already.

    The variable holds a process id, and after a colon the start time where whoever set it knew it (make does not).
    """
    pid, _, started = os.environ.get(OWNER_VARIABLE, "").partition(":")
    if not pid.isdecimal():
        return
    try:
        owner = identity(int(pid))
    except psutil.NoSuchProcess:
        sys.exit("the process that started this one has gone; ending with it")
    if started:
        owner = msgspec.structs.replace(owner, started=started)
    end_with(owner, at_once=at_once)


def own_what_is_started() -> None:
    """Make this process the one that those it starts end with."""
    me = identity()
    os.environ[OWNER_VARIABLE] = f"{me.pid}:{me.started}"


def available_cores() -> int:
    """Cores that this process may keep busy: its affinity, or less where a container's quota says so."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _quota_cores()
    return cores if quota is None else max(1, min(cores, math.floor(quota)))


def _quota_cores() -> float | None:
    """The CPU quota of the control group in cores (version 2, then 1); None where there is none."""
    for path, period_path in (("cpu.max", None), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = (_CGROUP / path).read_text(encoding="ascii").split()
            words += (_CGROUP / period_path).read_text(encoding="ascii").split() if period_path else []
            quota_us, period_us = float(words[0]), float(words[1])
        except (OSError, ValueError, IndexError):
            continue
        if quota_us > 0 and period_us > 0:
            return quota_us / period_us
    return None
