"""What a person sees: tables, and while a sweep is measured a bar with the time left, or without a terminal lines."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from scaling_study.spec import Outcome, Run, RunResult, run_id, steps_of
from scaling_study.spec import Progress as RunProgress
from scaling_study.tracking import Advance, T, Track

_PLAIN_WIDTH = 240


def printer() -> Console:
    """Where a verb prints its tables; without a terminal wide enough for whole names, which somebody may search for."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


@contextlib.contextmanager
def advancing(title: str, total: int | None = None) -> Iterator[Advance]:
    """Shows how far something has come and the time left, or where no total is known the time it has taken.

    On standard error and only while it goes on; nothing at all where that is no terminal.
    """
    console = Console(stderr=True, highlight=False)
    left = (TextColumn("left"), TimeRemainingColumn()) if total is not None else ()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), *left)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda amount: progress.advance(task, amount)


def tracked(title: str) -> Track:
    """Shows the same of a loop."""

    def track(items: Iterable[T], total: int) -> Iterable[T]:
        with advancing(title, total) as advance:
            for item in items:
                yield item
                advance(1)

    return track


class SweepMonitor:
    """Shows how a sweep goes on, on standard error, and keeps a log.

    Args:
        runs: all runs of the sweep.
        title: shown before the bar.
        log: a file that gets a line an event, or None.
    """

    def __init__(self, runs: Sequence[Run], title: str, log: Path | None) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._log, self._title = log, title
        self._started_s: dict[str, float] = {}
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
        )
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._done = {run_id(run): 0 for run in runs}
        self._total = {run_id(run): steps_of(run) for run in runs}
        self._task = self._bar.add_task(title, total=sum(self._total.values()))

    def __enter__(self) -> SweepMonitor:
        """Begin to draw."""
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        self._bar.stop()

    def start(self, run: Run, position: int, total: int) -> None:
        """A run is started."""
        self._started_s[run_id(run)] = time.monotonic()
        self._bar.update(self._task, description=f"{self._title}: run {position} of {total}")
        self._write_log(f"start {run_id(run)}")

    def progress(self, run: Run, progress: RunProgress) -> None:
        """A run goes on."""
        self._advance(run_id(run), progress.done)

    def finish(self, run: Run, result: RunResult, *, fresh: bool) -> None:
        """A run has ended, or its result was there already."""
        name = run_id(run)
        self._advance(name, self._total[name])
        took = f"{time.monotonic() - self._started_s[name]:.1f} s" if fresh else "there already"
        why = f": {result.reason}" if result.outcome is not Outcome.OK else ""
        position = list(self._done).index(name) + 1
        if fresh or why:
            self._say(f"{self._title} [{position}/{len(self._done)}] {name}  {result.outcome}{why}  ({took})")
        self._write_log(f"{result.outcome} {name} ({took}){why}")

    def note(self, message: str) -> None:
        """Something that a person should know."""
        self._say(message)
        self._write_log(message)

    def _advance(self, name: str, done: int) -> None:
        self._bar.advance(self._task, done - self._done[name])
        self._done[name] = done

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)

    def _write_log(self, line: str) -> None:
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {line}\n")
