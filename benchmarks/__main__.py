"""Run the benchmarks, show their lines, and say by the exit code whether a requirement is missed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import click
from rich.console import Console

from benchmarks import first_step, lines, one_process, profiled_window, two_ranks
from benchmarks.lines import Line

_ROUNDS = 5
_BENCHMARKS: dict[str, Callable[[int], list[Line]]] = {
    "one-process": one_process.run,
    "two-ranks": two_ranks.run,
    "profiled-window": profiled_window.run,
    "first-step": first_step.run,
}


@click.command(context_settings={"show_default": True})
@click.option("--only", type=click.Choice(list(_BENCHMARKS)), multiple=True, help="Just this one; may be repeated.")
@click.option("--rounds", type=click.IntRange(1), default=_ROUNDS, help="Rounds, each with new processes.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), default="results/bench.json", help="The lines as JSON."
)
def main(only: tuple[str, ...], rounds: int, output: Path) -> None:
    """Compare training with transformers' and torchtitan's Llama, and time what surrounds it.

    Exit code 1 where ours is slower than a peer by more than noise: even the upper end of the 95% interval of the
    ratio is below 1.

    Example: python -m benchmarks --only one-process --rounds 3
    """
    console = Console(width=None if sys.stdout.isatty() else 200)
    found: list[Line] = []
    for name in only or _BENCHMARKS:
        click.echo(f"{name} ...", err=True)
        found += _BENCHMARKS[name](rounds)
    report = lines.report(found, _versions(), rounds)
    lines.write(report, output)
    lines.show(report, console)
    sys.exit(1 if report.missed else 0)


def _versions() -> dict[str, str]:
    versions = {}
    for name in ("scaling-study", "torch", "transformers", "torchtitan", "snakemake"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


if __name__ == "__main__":
    main()
