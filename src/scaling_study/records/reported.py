"""Numbers that a source prints, as records beside our own: the place of a run, a metric or two, nothing else.

Their `reason` says where they are printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from scaling_study.errors import UserError
from scaling_study.records.best import best_layouts
from scaling_study.records.schema import RUN_COLUMNS, SCHEMA
from scaling_study.spec import Outcome, Provenance, ReportedPoint, Study


def with_reported(records: pl.DataFrame, study: Study, sweep: str) -> pl.DataFrame:
    """The records of a sweep, and below them what the source prints of it.

    A point that no record is there for is left out: a platform may have measured one hardware of several.

    Raises:
        UserError: a point names a column that records do not have.
    """
    rows: dict[str, dict[str, Any]] = {}
    for point in study.reported:
        drawn = point.sweep == sweep and point.bound is None
        place = _fastest(records, point.where, study.name) if drawn else None
        value = _value(records, point, study.name) if place else None
        if place is None or value is None:
            continue
        row = rows.setdefault(place["run_id"], _empty(place))
        said = point.source if point.change is None else f"{point.source}, a change from our own number"
        row[point.metric] = value
        row["reason"] = "; ".join(dict.fromkeys([*(row["reason"].split("; ") if row["reason"] else []), said]))
    return pl.concat([records, pl.DataFrame(list(rows.values()), schema=SCHEMA)]) if rows else records


def _empty(place: Mapping[str, Any]) -> dict[str, Any]:
    """A record of the run at a place, without any metric."""
    row: dict[str, Any] = dict.fromkeys(SCHEMA)
    row |= {name: place[name] for name in RUN_COLUMNS}
    return row | {"provenance": Provenance.REPORTED.value, "outcome": Outcome.OK.value}


def _value(records: pl.DataFrame, point: ReportedPoint, study: str) -> float | None:
    if point.change is None:
        return point.value
    start = _fastest(records, point.since, study)
    return None if start is None or start[point.metric] is None else float(start[point.metric]) * (1 + point.change)


def _fastest(records: pl.DataFrame, where: Mapping[str, str | int], study: str) -> dict[str, Any] | None:
    """The fastest record of the preferred provenance at a place, or None."""
    if unknown := sorted(set(where) - set(records.columns)):
        raise UserError(
            f"a reported point names the column {unknown[0]!r}, which records do not have",
            where=f"study {study}",
            remedy="Mend its `where` or `since`.",
        )
    there = records.filter(*(pl.col(name) == value for name, value in where.items()))
    found = best_layouts(there, by=()).head(1)
    return None if found.is_empty() else found.row(0, named=True)
