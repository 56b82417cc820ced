"""What the verbs `status` and `cancel` show: the run store of a platform, for people and machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from rich.table import Column, Table

from scaling_study.console import printer
from scaling_study.spec import Platform
from scaling_study.submit.health import QUANTITIES, HealthReport
from scaling_study.submit.slurm.overview import FailingNode, OpenAttempt, failing_nodes, open_attempts, outcomes

_HEADINGS = {
    "gemm_tflops": "GEMM, TFLOP/s",
    "memory_gb_per_s": "memory, GB/s",
    "within_gb_per_s": "within node, GB/s",
    "between_gb_per_s": "between nodes, GB/s",
}


def status_of(platform: Platform, results_folder: Path) -> dict[str, Any]:
    """Results by outcome, and attempts that go on."""
    root = results_folder / "store" / platform.name
    return {
        "platform": platform.name,
        "results": outcomes(root),
        "going_on": msgspec.to_builtins(open_attempts(root)),
        "failing_nodes": msgspec.to_builtins(
            failing_nodes(root, platform.slurm.exclude_after if platform.slurm else 1)
        ),
    }


def print_status(status: dict[str, Any]) -> None:
    """The same as tables."""
    console = printer()
    said = ", ".join(f"{count} {outcome}" for outcome, count in status["results"].items()) or "none yet"
    console.print(f"{status['platform']}: results: {said}")
    going = [msgspec.convert(one, OpenAttempt) for one in status["going_on"]]
    if not going:
        console.print("no job goes on")
    else:
        console.print(_going_on(going))
    for one in (msgspec.convert(node, FailingNode) for node in status["failing_nodes"]):
        what = "avoided" if one.avoided else "in use"
        console.print(f"node {one.node}: {what}, {one.failures} failures, last: {one.last}", markup=False)


def _going_on(going: list[OpenAttempt]) -> Table:
    table = Table(Column("run", overflow="fold"), "attempt", "job", "state", "nodes", "steps", box=None, pad_edge=False)
    for one in going:
        steps = f"{one.done:,} of {one.total:,}" if one.total else ""
        table.add_row(one.run_id, str(one.attempt), one.job_id or one.name, one.state, one.nodes, steps)
    return table


def print_health(report: HealthReport) -> None:
    """What a check of nodes found, a row a node, and the nodes that are avoided from now on."""
    console = printer()
    table = Table("node", *(_HEADINGS[name] for name in QUANTITIES), box=None, pad_edge=False)
    slow = {(one.node, one.quantity) for one in report.outliers}
    for node, values in [*report.nodes.items(), ("median", report.measured)]:
        cells = [
            f"{values[name]:.3g}{' slow' if (node, name) in slow else ''}" if name in values else ""
            for name in QUANTITIES
        ]
        table.add_row(node, *cells)
    console.print(table)
    for one in report.outliers:
        console.print(f"{one.node}: {one}; the platform's jobs avoid it", markup=False)
    if not report.outliers:
        console.print("no node is slower than the others beyond doubt")
