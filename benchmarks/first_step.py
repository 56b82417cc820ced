"""From `make study` to the first step: how long a person waits until something is measured.

A scratch checkout, nothing measured or prepared in it, and the command of the Makefile with what `.venv` holds. Only
files tell how far it is, so nothing here depends on how ranks are started. A study that is measured on this machine
meanwhile is waited for, and would be in the number.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lines import Line
from benchmarks.ratios import spread

_ROOT = Path(__file__).parents[1]
_BIN = Path(sys.executable).parent
_SCENARIO = _ROOT / "tests/workflow/scenario/config"
_POLL_S = 0.01
_LIMIT_S = 300.0

#: What appears when something is reached; the workflow's first job is the preparation of data, or a driver.
_MARKS = {
    "the workflow's first job": ("results/logs/data/*.log", "results/logs/*/*/*.log", "results/store/*/*/attempts/*"),
    "data prepared": ("results/data/*.json",),
    "a run claimed": ("results/store/*/*/attempts/*/claim.json",),
    "its rank begun": ("results/store/*/*/attempts/*/rank-000.json",),
}
_FIRST_STEP = "results/store/*/*/attempts/*/progress.json"


def run(rounds: int) -> list[Line]:
    """A line for the study of the tests, one for the mini study."""
    return [_line("scenario", _SCENARIO, rounds), _line("mini", _ROOT / "config", max(1, rounds // 2))]


def _line(study: str, config: Path, rounds: int) -> Line:
    measured = [_once(study, config) for _ in range(rounds)]
    reached = {mark: [seconds[mark] for _, seconds in measured if mark in seconds] for mark in _MARKS}
    parts = [f"{mark} after {statistics.median(seconds):.1f} s" for mark, seconds in reached.items() if seconds]
    return Line(
        benchmark="first step",
        what=f"from make study to the first step, {study}",
        unit="s",
        ours=spread([total_s for total_s, _ in measured]),
        reason=", ".join(parts),
    )


def _once(study: str, config: Path) -> tuple[float, dict[str, float]]:
    """Seconds to the first step and to each mark before it, in a checkout of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        shutil.copy(_ROOT / "Snakefile", folder)
        for source in (_ROOT / "workflow", _ROOT / "paper"):
            shutil.copytree(source, folder / source.name)
        shutil.copytree(config, folder / "config")
        with _workflow(study, folder) as process:
            return _watch(process, folder)


def _watch(process: subprocess.Popen, folder: Path) -> tuple[float, dict[str, float]]:
    start_s, seconds = time.monotonic(), {}
    while True:
        passed_s = time.monotonic() - start_s
        for mark, patterns in _MARKS.items():
            if mark not in seconds and any(any(folder.glob(pattern)) for pattern in patterns):
                seconds[mark] = passed_s
        if any(folder.glob(_FIRST_STEP)):
            return passed_s, seconds
        if process.poll() is not None or passed_s > _LIMIT_S:
            raise RuntimeError(f"no first step after {passed_s:.0f} s:\n{(folder / 'workflow.log').read_text()}")
        time.sleep(_POLL_S)


@contextlib.contextmanager
def _workflow(study: str, folder: Path) -> Iterator[subprocess.Popen]:
    """What `make study` starts; with its end, everything that it started ends."""
    command = [_BIN / "snakemake", "--profile", "workflow/profiles/default", "--config", "source=measure"]
    environment = {**os.environ, "PATH": f"{_BIN}:{os.environ['PATH']}", "SCALING_STUDY_OWNER_PID": str(os.getpid())}
    with (folder / "workflow.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"studies={study}"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _wait_until_unused(folder)


def _wait_until_unused(folder: Path) -> None:
    """Ranks end by themselves once their driver has gone."""
    import psutil

    def works_there(process: psutil.Process) -> bool:
        try:
            return Path(process.cwd()).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):
            return False

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(works_there(process) for process in psutil.process_iter()):
        time.sleep(0.1)
