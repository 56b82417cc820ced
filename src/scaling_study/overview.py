"""What the verbs `status` and `cancel` show: the run store of a platform, for people and machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from rich.table import Column, Table

from scaling_study.console import printer
from scaling_study.spec import Platform
from scaling_study.submit.slurm.overview import OpenAttempt, open_attempts, outcomes


def status_of(platform: Platform, results_folder: Path) -> dict[str, Any]:
    """Results by outcome, and attempts that go on."""
    root = results_folder / "store" / platform.name
    return {
        "platform": platform.name,
        "results": outcomes(root),
        "going_on": msgspec.to_builtins(open_attempts(root)),
    }


def print_status(status: dict[str, Any]) -> None:
    """The same as tables."""
    console = printer()
    said = ", ".join(f"{count} {outcome}" for outcome, count in status["results"].items()) or "none yet"
    console.print(f"{status['platform']}: results: {said}")
    going = [msgspec.convert(one, OpenAttempt) for one in status["going_on"]]
    if not going:
        console.print("no job goes on")
        return
    table = Table(Column("run", overflow="fold"), "attempt", "job", "state", "nodes", "steps", box=None, pad_edge=False)
    for one in going:
        steps = f"{one.done:,} of {one.total:,}" if one.total else ""
        table.add_row(one.run_id, str(one.attempt), one.job_id or one.name, one.state, one.nodes, steps)
    console.print(table)
