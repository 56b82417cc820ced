"""From the committed records to what a reader sees, against the project's limits: all of it, and one figure.

Each line has a checkout of its own, without figures; what is drawn there must be what is committed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.lines import Line, limited

_ROOT = Path(__file__).resolve().parents[1]
_BIN = Path(sys.executable).parent
EVERYTHING_S, FIGURE_S = 60.0, 6.0
_FIGURE = ("source=cached", "study=paper", "figure=hst-04")


def run(rounds: int) -> list[Line]:
    """A line for every figure, table, the paper and the report, and one for a single figure."""
    return [
        _line("every figure and table, the paper, the report", EVERYTHING_S, (), max(1, rounds // 2)),
        _line("one figure", FIGURE_S, ("--config", *_FIGURE), rounds),
    ]


def _line(what: str, limit_s: float, options: tuple[str, ...], rounds: int) -> Line:
    with tempfile.TemporaryDirectory() as name:
        folder = _checkout(Path(name))
        taken = [_presented_s(folder, options) for _ in range(rounds)]
        _require_committed(folder / "figures")
    return limited("presenting", f"{what}, from the committed records", "s", limit_s, taken)


def _checkout(folder: Path) -> Path:
    """The committed files in a folder of their own, but the figures."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split("\0")):
        if not name.startswith("figures/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(_ROOT / name, folder / name)
    return folder


def _presented_s(folder: Path, options: tuple[str, ...]) -> float:
    command = [_BIN / "snakemake", "--profile", "workflow/profiles/cached", *options]
    environment = {**os.environ, "PATH": f"{_BIN}:{os.environ['PATH']}"}
    started_s = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started_s


def _require_committed(drawn: Path) -> None:
    """Refuse a time in which something else was drawn.

    Raises:
        RuntimeError: nothing was drawn, or it has other bytes.
    """
    files = {path: _ROOT / "figures" / path.relative_to(drawn) for path in drawn.glob("*/*.*")}
    different = [path.name for path, committed in files.items() if path.read_bytes() != committed.read_bytes()]
    if different or not files:
        raise RuntimeError(f"not what is committed: {', '.join(different) or 'nothing was drawn'}")
