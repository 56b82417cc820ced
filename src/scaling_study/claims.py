"""What the verb `claims` shows: the claims of the sources, judged by the records that there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import polars as pl
from rich.markup import escape
from rich.table import Column, Table

from scaling_study.console import advancing, printer
from scaling_study.errors import UserError, write_atomically
from scaling_study.present.claims import (
    Changed,
    Evidence,
    Judged,
    acknowledge,
    between,
    by_place,
    changes,
    claims_table,
    finding,
    judge,
    read_acknowledged,
    shown,
)
from scaling_study.records import read_records, read_table
from scaling_study.spec import Config, Place, Verdict

CACHE = Path("results/cached")
ACKNOWLEDGED = CACHE / "verdicts.csv"
_MODEL, _SENSITIVITY = "model", "sensitivity"
_NO_RECORDS = {"timelines", "observed"}  # folders of other tables
_NAMES = {
    Place.CLUSTER: "measured on a cluster",
    Place.LOCAL: "measured on this machine",
    Place.MODEL: "predicted",
    Place.SOURCES: "reported",
}


def run_claims(
    config: Config, paths: Sequence[Path], output: Path | None, *, acknowledging: bool, as_json: bool
) -> None:
    """Judge the claims and print the verdicts; write the table, and the verdicts as known ones, if asked to.

    Args:
        paths: of records; none for the committed ones.

    Raises:
        UserError: a file is missing or damaged, a claim is not valid, or an output cannot be written.
    """
    if acknowledging and paths:
        raise UserError(
            "only verdicts on the committed records are acknowledged",
            where="claims --acknowledge",
            remedy="Promote the records first, then give no RECORDS.",
        )
    with advancing("judging claims"):
        judged = judged_by(config, paths or [CACHE])
    if acknowledging:
        acknowledge(ACKNOWLEDGED, judged)
    if output is not None:
        write_atomically(output, claims_table(judged).write_csv().encode())
    changed = [] if paths else changes(judged, read_acknowledged(ACKNOWLEDGED))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(as_rows(judged, changed))))
    else:
        print_claims(judged, changed)


def judged_by(config: Config, paths: Sequence[Path]) -> list[Judged]:
    """Every claim at every place, judged by files of records and tables of the model, or folders of them.

    Raises:
        UserError: a file is missing or damaged, there is none, or a claim is not valid.
    """
    return judge(config.claims, evidence_of(config, paths))


def judged_of(
    config: Config, records: Iterable[tuple[str, pl.DataFrame]], tables: Mapping[str, pl.DataFrame]
) -> list[Judged]:
    """The same by what was read already.

    Args:
        records: a sweep with some of its records, as often as there are.
        tables: of the model, by name.

    Raises:
        UserError: a claim is not valid.
    """
    return judge(config.claims, _evidence(config, records, tables))


def evidence_of(config: Config, paths: Sequence[Path]) -> Evidence:
    """The records of files and folders, by where they come from; a file's name is that of its sweep.

    Files at `<study>/<platform>/` of studies that claims keep apart are passed over.

    Raises:
        UserError: a file is missing or damaged, or there is none.
    """
    apart = config.claims.apart
    files = [path for path in parquet_files(paths) if not set(path.parts[-3:-2]) & set(apart)]
    records = [(path.stem, read_records(path)) for path in files if path.parent.name != _MODEL]
    tables = {path.stem: path for path in files if path.parent.name == _MODEL}
    return _evidence(config, records, {name: read_table(tables[name]) for name in tables.keys() & {_SENSITIVITY}})


def _evidence(
    config: Config, records: Iterable[tuple[str, pl.DataFrame]], tables: Mapping[str, pl.DataFrame]
) -> Evidence:
    executors = {name: platform.executor for name, platform in config.platforms.items()}
    return Evidence(
        frames=by_place(records, executors), catalogue=config.catalogue, sensitivity=tables.get(_SENSITIVITY)
    )


def parquet_files(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, and of folders every parquet file below but timelines and what ranks observed.

    Raises:
        UserError: a path does not exist, or no file is found.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UserError("there is no such file or folder", where=str(path), remedy="Check the path.")
        below = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        found += [one for one in below if not _NO_RECORDS & set(one.parts)]
    if not found:
        where = ", ".join(str(path) for path in paths)
        raise UserError("there are no records", where=where, remedy="Give record files, or a folder of them.")
    return found


def as_rows(judged: Sequence[Judged], changed: Sequence[Changed]) -> list[dict[str, Any]]:
    """The verdicts for machines; `was` is there where a verdict is not the acknowledged one."""
    other = {(one.id, one.place): one.was for one in changed}
    rows: list[dict[str, Any]] = []
    for one in judged:
        row = msgspec.to_builtins(one)
        if (one.id, one.place) in other:
            row["was"] = other[one.id, one.place]
        rows.append(row)
    return rows


def print_claims(judged: Sequence[Judged], changed: Sequence[Changed]) -> None:
    """The same for people: a table of what can be judged, what does not hold, and why others cannot be tested."""
    console = printer()
    console.print(_table(judged))
    for line in (*_totals(judged), *_findings(judged)):
        console.print(line, markup=False, soft_wrap=True)
    console.print(
        "\nNo constant of the model is fitted on a claim, so that none had to be left out. Intervals: of measured rates"
        " the 5th to 95th percentile of iterations; of predicted ones what held four of five measurements; of predicted"
        " changes the interval of the constant that counts most.",
        soft_wrap=True,
    )
    if changed:
        console.print("\nNot as acknowledged (`scaling-study claims --acknowledge` writes them):")
    for change in changed:
        console.print(f"- {change}", markup=False, soft_wrap=True)


def _totals(judged: Sequence[Judged]) -> Iterator[str]:
    """How many claims hold, of each place."""
    for place, name in _NAMES.items():
        counts = Counter(one.verdict for one in judged if one.place is place)
        if counts:
            said = [f"{counts[one]} {_counted(one, counts[one])}" for one in Verdict if counts[one]]
            yield f"{name}: {', '.join(said)}"


def _findings(judged: Sequence[Judged]) -> Iterator[str]:
    """What does not come out, and why what might be predicted is not."""
    found = [(one, finding(one)) for one in judged if finding(one)]
    if found:
        yield "\nWhat does not come out as the sources say:"
    for one, said in found:
        yield f"- {one.id}, {_NAMES[one.place]}, {one.verdict}: {said}."
    for one in judged:
        if one.verdict is Verdict.UNTESTABLE and one.place is Place.MODEL:
            yield f"- {one.id}, {_NAMES[one.place]}, {one.verdict}: {one.reason}."


def _counted(verdict: Verdict, count: int) -> str:
    """A verdict as what several claims do."""
    many = {Verdict.HOLDS: "hold", Verdict.SHAPE: "hold in shape only", Verdict.FAILS: "do not hold"}
    return verdict.value if count == 1 else many.get(verdict, verdict.value)


def _table(judged: Sequence[Judged]) -> Table:
    """The claims that can be judged somewhere, a line a place; the others with the first reason why not."""
    table = Table(
        Column("claim", no_wrap=True), "source", "numbers are", "verdict", "value", "interval", "expected", "of",
        box=None, pad_edge=False,
    )  # fmt: skip
    for name in dict.fromkeys(one.id for one in judged):
        own = [one for one in judged if one.id == name]
        tested = [one for one in own if one.verdict is not Verdict.UNTESTABLE]
        for one in tested or own[-1:]:
            value = "" if one.value is None else shown(one.value, one.unit)
            said = one.measured if tested else one.reason or ""
            cells = (value, between(one.interval, one.unit), one.expected, said)
            mark = " (extrapolated)" if one.extrapolated else ""
            words = (one.id, one.source, _NAMES[one.place] + mark if tested else "", one.verdict.value)
            table.add_row(*(escape(cell) for cell in (*words, *cells)))
    return table
