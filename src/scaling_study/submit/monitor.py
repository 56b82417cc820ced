"""Who is told how a sweep goes on."""

from __future__ import annotations

from typing import Protocol

from scaling_study.spec import Progress, Run, RunResult


class Monitor(Protocol):
    """Who is told how a sweep goes on."""

    def start(self, run: Run, position: int, total: int) -> None:
        """A run is started."""

    def progress(self, run: Run, progress: Progress) -> None:
        """A run goes on."""

    def finish(self, run: Run, result: RunResult, *, fresh: bool) -> None:
        """A run has ended, or its result was there already."""

    def note(self, message: str) -> None:
        """Something that a person should know."""
