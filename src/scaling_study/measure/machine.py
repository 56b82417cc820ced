"""What a rank can say about the machine it runs on: device, memory."""

from __future__ import annotations

import contextlib
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


class PeakMemory:
    """Peak resident memory above the level at construction, in GiB.

    Linux can reset its high-water mark; elsewhere the mark of the whole process is used, which is never lower.
    """

    def __init__(self) -> None:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._base_bytes: int = psutil.Process().memory_info().rss

    def gib(self) -> float:
        """The peak so far."""
        return max(0, _high_water_bytes() - self._base_bytes) / 2**30


def _high_water_bytes() -> int:
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
