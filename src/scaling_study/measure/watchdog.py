"""A rank that makes no step for too long ends, after it has written where each of its threads is.

A hung collective hangs on every rank, so each writes its own stacks, and the flight record of its process groups where
there is one; a driver on another host could see none of that.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from scaling_study.errors import write_atomically
from scaling_study.measure.failures import StalledError

_GRACE_S = 2.0  # other ranks reach their limit a moment later; the first that ends takes them along

_REPORT_S = 20.0


class Watchdog:
    """Watches this process from its construction on, until it is closed.

    Args:
        first_limit_s: to the end of the first step.
        limit_s: between two later steps.
        step: what a step is called, `iteration` or `call`.
        report: is told of the stall, before the process ends with exit code 1.
        output: file descriptor that the stacks are written to.
    """

    def __init__(
        self, first_limit_s: float, limit_s: float, step: str, report: Callable[[StalledError], None], output: int = 2
    ) -> None:
        self._first_limit_s, self._limit_s, self._step = first_limit_s, limit_s, step
        self._report, self._output = report, output
        self._done, self._deadline_s = 0, time.monotonic() + first_limit_s
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def step(self, done: int) -> None:
        """So many steps are done."""
        self._done, self._deadline_s = done, time.monotonic() + self._limit_s

    def close(self) -> None:
        """Watch no longer."""
        self._closed.set()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        while (left_s := self._deadline_s - time.monotonic()) > 0:
            # a library that holds the interpreter stops this thread, not faulthandler's; it may hold it for one limit
            faulthandler.dump_traceback_later(left_s + self._limit_s, exit=True, file=self._output)
            if self._closed.wait(min(left_s, self._limit_s)):  # the first step may bring the deadline forward
                faulthandler.cancel_dump_traceback_later()
                return
        faulthandler.dump_traceback_later(_GRACE_S + _REPORT_S, exit=True, file=self._output)
        faulthandler.dump_traceback(file=self._output, all_threads=True)
        self._report(StalledError(self._said()))
        if not self._closed.wait(_GRACE_S):
            os._exit(1)

    def _said(self) -> str:
        if self._done:
            return f"no {self._step} for {self._limit_s:g} s after {self._step} {self._done} (iteration_limit_s)"
        return f"no first {self._step} within {self._first_limit_s:g} s (first_iteration_limit_s)"


def write_flight_record(path: Path) -> bool:
    """Write what the process groups' flight recorder holds, as JSON; whether there was anything.

    torch keeps the last 2,000 collectives of a process, or as many as `TORCH_FR_BUFFER_SIZE` says. NCCL's have a
    recorder of their own.
    """
    from torch._C import _distributed_c10d

    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        dump = getattr(_distributed_c10d, name, None)  # not in every build of torch
        content = _dumped(dump) if dump is not None else b""
        if b'"entries"' in content:
            write_atomically(path, content)
            return True
    return False


def _dumped(dump: Callable[[], bytes | str]) -> bytes:
    """What a recorder holds, nothing where it cannot say."""
    try:
        content = dump()
    except RuntimeError:
        return b""
    return content.encode() if isinstance(content, str) else content
