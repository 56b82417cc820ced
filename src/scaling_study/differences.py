"""What the verb `compare` shows: numbers that moved between two campaigns, claims that changed, runs of one only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from rich.table import Column, Table

from scaling_study.claims import evidence_of, parquet_files
from scaling_study.console import printer
from scaling_study.present.claims import Judged, judge
from scaling_study.records import read_records
from scaling_study.records.comparison import Comparison, compare
from scaling_study.spec import Config, Place, Verdict

_SHOWN = 40  # that are printed of a list
_MODEL = "model"


class ClaimChange(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with another verdict; two places where one campaign was measured and the other predicted."""

    id: str
    place_a: Place
    place_b: Place
    a: Verdict
    b: Verdict


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """All that differs between two campaigns.

    Attributes:
        claims: whose verdict changed, of those that both can judge.
    """

    names: tuple[str, str]
    found: Comparison
    claims: list[ClaimChange]

    @property
    def any(self) -> bool:
        """Whether a number moved, a run ended differently or a claim changed; runs of one only are no difference."""
        return bool(self.found.moved.height or self.found.outcomes.height or self.claims)


def differences(config: Config, a: Path, b: Path) -> Differences:
    """Compare two files or folders of records.

    Raises:
        UserError: one is missing, damaged or holds no records, or they have no run in common.
    """
    by_sweep = a.is_dir() and b.is_dir()
    frames = [_records(path, by_sweep=by_sweep) for path in (a, b)]
    judged = [judge(config.claims, evidence_of(config, [path])) for path in (a, b)]
    return Differences(names=(str(a), str(b)), found=compare(*frames), claims=list(_changed(*judged)))


def _records(path: Path, *, by_sweep: bool) -> pl.DataFrame:
    """The records of a file or folder; of folders with their sweep, which tells runs apart that differ in it alone."""
    files = [one for one in parquet_files([path]) if one.parent.name != _MODEL]
    return pl.concat([read_records(one).with_columns(sweep=pl.lit(one.stem if by_sweep else "")) for one in files])


def _changed(a: Sequence[Judged], b: Sequence[Judged]) -> Iterator[ClaimChange]:
    for name in dict.fromkeys(one.id for one in a):
        before, after = ({one.place: one.verdict for one in side if one.id == name} for side in (a, b))
        tested = [[place for place, one in side.items() if one is not Verdict.UNTESTABLE] for side in (before, after)]
        places = [(place, place) for place in tested[0] if place in tested[1]]
        if not places and all(len(side) == 1 for side in tested):
            places = [(tested[0][0], tested[1][0])]
        for one, other in places:
            if before[one] is not after[other]:
                yield ClaimChange(id=name, place_a=one, place_b=other, a=before[one], b=after[other])


def as_mapping(found: Differences) -> dict[str, Any]:
    """The differences for machines."""
    numbers = found.found
    return {
        "a": found.names[0],
        "b": found.names[1],
        "same": not found.any,
        "compared": numbers.numbers.height,
        "moved": numbers.moved.to_dicts(),
        "outcomes": numbers.outcomes.to_dicts(),
        "claims": msgspec.to_builtins(found.claims),
        "only_a": list(numbers.only_a),
        "only_b": list(numbers.only_b),
    }


def print_differences(found: Differences) -> None:
    """The same for people."""
    console, numbers = printer(), found.found
    if numbers.moved.height:
        console.print(_table(numbers.moved))
    for line in _lines(found):
        console.print(line, markup=False, soft_wrap=True)


def _lines(found: Differences) -> Iterator[str]:
    numbers = found.found
    if numbers.moved.height > _SHOWN:
        yield f"... and {numbers.moved.height - _SHOWN:,} more (--json has all)"
    yield (
        f"{numbers.moved.height:,} of {numbers.numbers.height:,} numbers moved beyond their ranges: 5th to 95th"
        " percentile of iterations over all repeats, of predictions the last digits"
    )
    if not numbers.repeated and "measured" in {*numbers.numbers["provenance_a"], *numbers.numbers["provenance_b"]}:
        yield "there are no repeats of measured runs, so that noise from one start to the next is not in their ranges"
    for row in numbers.outcomes.iter_rows(named=True):
        yield f"{row['run_id']}: {row['a']} before, {row['b']} after"
    for one in found.claims:
        yield f"claim {one.id}: {one.a} ({one.place_a}) before, {one.b} ({one.place_b}) after"
    if not found.claims:
        yield "no claim changed that both can judge"
    for name, runs in zip(found.names, (numbers.only_a, numbers.only_b), strict=True):
        if runs:
            shown = ", ".join(runs[:3]) + (", ..." if len(runs) > 3 else "")
            yield f"{len(runs):,} runs in {name} only: {shown}"


def _table(moved: pl.DataFrame) -> Table:
    table = Table(Column("run", overflow="fold"), "metric", "before", "after", "change", box=None, pad_edge=False)
    for row in moved.head(_SHOWN).iter_rows(named=True):
        ends = [f"{row[side]:.4g} ({row[f'{side}_low']:.4g} to {row[f'{side}_high']:.4g})" for side in ("a", "b")]
        change = "" if row["change"] is None else f"{row['change']:+.2%}"
        table.add_row(row["run_id"], row["metric"], *ends, change)
    return table
