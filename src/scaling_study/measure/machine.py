"""What a rank can say about the machine it runs on: device, memory."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import resource
import sys
from pathlib import Path

import psutil


def cpu_name() -> str:
    """The model name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


#: Parameters of glibc's `mallopt`, from its malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Let the C library keep what this process frees, instead of giving it back to the system.

    A training step frees the same large buffers again and again and asks for them anew, and fetching pages from the
    system can take a fifth of a step. Only glibc gives so much back, and has `mallopt`.
    """
    with contextlib.suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
        mallopt(_M_MMAP_MAX, 0)


class PeakMemory:
    """Peak memory of this process above the level at construction, in GiB.

    On Linux, of anonymous memory: pages of libraries and of the token file, which come in at their first use, are no
    memory that training needs. Linux keeps a high-water mark of all resident pages only, so it is read and reset again
    and again, less the file-backed pages of that moment. Elsewhere the mark of the whole process is used, which is
    never lower.
    """

    def __init__(self) -> None:
        _reset_high_water()
        self._base_bytes = _status_bytes("RssAnon") or psutil.Process().memory_info().rss
        self._peak_bytes = self._base_bytes

    def sample(self) -> None:
        """Take what was reached since the last sample; to be called often, such as after every iteration."""
        reached = _status_bytes("VmHWM")
        if reached is not None:
            reached -= (_status_bytes("RssFile") or 0) + (_status_bytes("RssShmem") or 0)
            _reset_high_water()
        else:
            reached = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        self._peak_bytes = max(self._peak_bytes, reached)

    def gib(self) -> float:
        """The peak so far."""
        self.sample()
        return (self._peak_bytes - self._base_bytes) / 2**30


def _reset_high_water() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _status_bytes(name: str) -> int | None:
    """A size that Linux tells of this process."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")]
    return sizes[0] if sizes else None
