"""Every figure and table of studies from the committed records, several at once in processes that stay.

A process that draws one figure spends two thirds of its time on starting; one that stays draws the next at once.
"""

from __future__ import annotations

import contextlib
import functools
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from scaling_study.errors import UserError
from scaling_study.processes import end_with, identity
from scaling_study.spec import Config
from scaling_study.tracking import Track, untracked
from scaling_study.workflow import Drawing


def redraw(
    config_root: Path, drawings: list[Drawing], output: Path, cores: int, track: Track = untracked
) -> dict[str, str]:
    """Write figures and tables, each complete or not at all; one that cannot be drawn does not stop the others.

    Args:
        config_root: the folder of studies and what they name.
        drawings: what to draw, and from what.
        output: gets a folder a study.
        cores: how many are drawn at once.

    Returns:
        what is wrong with those that could not be drawn, by study and name.

    Raises:
        UserError: a process was killed, by the kernel for its memory perhaps.
    """
    end = functools.partial(end_with, identity(), at_once=True)
    pool = ProcessPoolExecutor(min(cores, len(drawings)) or 1, get_context("spawn"), initializer=end)
    try:
        with _uninterrupted():
            futures = {pool.submit(_draw, config_root, output, one): one for one in drawings}
        for future in track(as_completed(futures), len(futures)):
            future.result()
    except BrokenProcessPool as error:
        raise UserError("a process that draws was killed", remedy="Give it more memory, or fewer --cores.") from error
    finally:
        pool.shutdown(cancel_futures=True)
    wrong = {one: future.result() for future, one in futures.items()}
    return {f"{one.study}/{one.name}": message for one, message in wrong.items() if message is not None}


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that are started meanwhile leave an interrupt to this one."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@functools.cache
def _config(root: Path) -> Config:
    """Read once a process."""
    return Config(root)


def _draw(config_root: Path, output: Path, drawing: Drawing) -> str | None:
    """Draw one; what is wrong if it cannot be."""
    from scaling_study.drawing import draw, tabulate

    try:
        config = _config(config_root)
        study, files = config.study(drawing.study), tuple(map(Path, drawing.files))
        if drawing.is_table:
            tabulate(config, study, drawing.name, files, output / study.name)
        else:
            draw(config, study, drawing.name, files, tuple(map(Path, drawing.timelines)), output / study.name)
    except UserError as error:
        return str(error)
    return None
