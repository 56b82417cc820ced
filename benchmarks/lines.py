"""What a benchmark says: one line a comparison, as a table for a person and as JSON."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.ratios import Ratio, Spread, spread
from scaling_study.errors import write_atomically
from scaling_study.processes import available_cores


class Verdict(StrEnum):
    """What became of a requirement."""

    MET = "met"
    WITHIN_NOISE = "within noise"
    MISSED = "MISSED"
    NOT_COMPARED = "not compared"
    NO_REQUIREMENT = "-"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison.

    Attributes:
        benchmark: which.
        what: what is measured.
        unit: of `ours` and `theirs`.
        ours: what ours does.
        peer: with whom it is compared, with the version.
        theirs: what the peer does.
        ratio: ours to theirs; more than 1 is better for us where something is required.
        required: the least ratio.
        reason: why the peer is missing, or what else a reader should know.
    """

    benchmark: str
    what: str
    unit: str
    ours: Spread | None = None
    peer: str = ""
    theirs: Spread | None = None
    ratio: Ratio | None = None
    required: float | None = None
    reason: str = ""

    @property
    def verdict(self) -> Verdict:
        """Missed only beyond noise."""
        if self.required is None:
            return Verdict.NO_REQUIREMENT
        if self.ratio is None:
            return Verdict.NOT_COMPARED
        if self.ratio.falls_short_of(self.required):
            return Verdict.MISSED
        return Verdict.MET if self.ratio.median >= self.required else Verdict.WITHIN_NOISE


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All lines of a call, with what they were measured on."""

    cores: int
    processor: str
    versions: dict[str, str]
    repeats: int
    lines: list[Line]

    @property
    def missed(self) -> bool:
        """Whether a requirement is missed beyond noise."""
        return any(line.verdict is Verdict.MISSED for line in self.lines)


def limited(
    benchmark: str, what: str, unit: str, limit: float, values: Sequence[float], *, least: bool = False
) -> Line:
    """Values that must stay below a limit of the project, or reach it where it is the `least`."""
    ratios = sorted(value / limit if least else limit / value for value in values)
    return Line(
        benchmark=benchmark,
        what=what,
        unit=unit,
        ours=spread(values),
        peer="limit",
        theirs=spread([limit]),
        ratio=Ratio(ratios[len(ratios) // 2], ratios[0], ratios[-1]),
        required=1.0,
    )


def report(lines: list[Line], versions: dict[str, str], repeats: int) -> Report:
    """With this machine's cores and processor."""
    from scaling_study.measure.machine import cpu_name

    versions = {"python": platform.python_version(), **versions}
    return Report(cores=available_cores(), processor=cpu_name(), versions=versions, repeats=repeats, lines=lines)


def write(content: Report, path: Path) -> None:
    """As JSON, each line with its verdict."""
    built = msgspec.to_builtins(content)
    for plain, line in zip(built["lines"], content.lines, strict=True):
        plain["verdict"] = line.verdict.value
    write_atomically(path, msgspec.json.format(msgspec.json.encode(built)))


def show(content: Report, console: Console) -> None:
    """As a table, and below it what is to be said in words."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("benchmark", "what", "ours", "peer", "theirs", "ratio", "at least", "verdict"):
        table.add_column(heading, justify="right" if heading in ("ours", "theirs", "ratio", "at least") else "left")
    for line in content.lines:
        required = "" if line.required is None else f"{line.required:.1f}"
        cells = [_spread(line.ours, line.unit), line.peer, _spread(line.theirs, line.unit), _ratio(line.ratio)]
        table.add_row(line.benchmark, line.what, *cells, required, line.verdict.value)
    console.print(table)
    for reason in dict.fromkeys(f"{line.peer or line.what}: {line.reason}" for line in content.lines if line.reason):
        console.print(reason, highlight=False)
    versions = ", ".join(f"{name} {version}" for name, version in content.versions.items())
    console.print(f"{content.cores} cores, {content.processor}; {versions}; {content.repeats} rounds", highlight=False)
    console.print("median (middle half); ratio of paired steps, ours to theirs (95% interval)", highlight=False)


def _spread(value: Spread | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if value.median >= 100 else 2
    return f"{value.median:,.{digits}f} ({value.low:,.{digits}f}-{value.high:,.{digits}f}) {unit}"


def _ratio(value: Ratio | None) -> str:
    return "" if value is None else f"{value.median:.3f} ({value.low:.3f}-{value.high:.3f})"
