"""Run the benchmarks, show their lines, and say by the exit code whether a requirement is missed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

import click
from rich.console import Console

from benchmarks import (
    first_step,
    lines,
    one_process,
    performance_model,
    presenting,
    profiled_window,
    submission,
    trace_reading,
    two_ranks,
)
from benchmarks.lines import Line

_ROUNDS = 5
_NAMES = (
    "one-process",
    "two-ranks",
    "profiled-window",
    "first-step",
    "performance-model",
    "extraction",
    "presenting",
    "traces",
    "submission",
)


@click.command(context_settings={"show_default": True})
@click.option("--only", type=click.Choice(_NAMES), multiple=True, help="Just this one; may be repeated.")
@click.option("--rounds", type=click.IntRange(1), default=_ROUNDS, help="Rounds, each with new processes.")
@click.option("--alike", is_flag=True, help="Give the peers what our ranks set up for themselves: kept memory.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), default="results/bench.json", help="The lines as JSON."
)
def main(only: tuple[str, ...], rounds: int, alike: bool, output: Path) -> None:
    """Compare with peers: training with transformers and torchtitan, traces with HTA; hold the rest to its limits.

    Submission needs root and Debian's Slurm (python -m tests.slurm.cluster install), and is left out elsewhere.

    Exit code 1 where ours is slower than a peer or a limit by more than noise: even the upper end of the 95% interval
    of the ratio is below 1; or where the model's workload differs from the training code's.

    Example: python -m benchmarks --only one-process --rounds 3
    """
    console = Console(width=None if sys.stdout.isatty() else 200)
    found: list[Line] = []
    benchmarks: dict[str, Callable[[int], list[Line]]] = {
        "one-process": partial(one_process.run, alike=alike),
        "two-ranks": partial(two_ranks.run, alike=alike),
        "profiled-window": profiled_window.run,
        "first-step": first_step.run,
        "performance-model": performance_model.run,
        "extraction": performance_model.run_extraction,
        "presenting": presenting.run,
        "traces": trace_reading.run,
        "submission": submission.run,
    }
    for name in only or _NAMES:
        click.echo(f"{name} ...", err=True)
        found += benchmarks[name](rounds)
    report = lines.report(found, _versions(), rounds)
    lines.write(report, output)
    lines.show(report, console)
    sys.exit(1 if report.missed else 0)


def _versions() -> dict[str, str]:
    versions = {}
    for name in ("scaling-study", "torch", "transformers", "torchtitan", "snakemake", "submitit"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


if __name__ == "__main__":
    main()
