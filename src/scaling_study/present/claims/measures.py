"""The measures of claims: from rows to the number that a source says something of.

One function a measure, over frames of `Evidence.rows`; with the number goes its interval where one is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import polars as pl

from scaling_study.errors import UserError
from scaling_study.present.claims.evidence import UntestableError
from scaling_study.present.claims.words import say
from scaling_study.present.numbers.compare import fastest, missed_by_line
from scaling_study.present.rows import BANDWIDTH, LOCAL_RATE, RATE
from scaling_study.spec import Provenance
from scaling_study.spec.claims import Expected, Where

#: Columns in proportion to the inverse of a time, with the name of that time.
RATES = {RATE: "iteration_s", LOCAL_RATE: "iteration_s", "tflops_per_gpu": "iteration_s", "mfu": "iteration_s"}
TIMED = {**RATES, BANDWIDTH: "call_s"}
Row = Mapping[str, Any]
Ends = tuple[float, float]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A number with the rows behind it.

    Attributes:
        interval: of a measured rate from the 5th to the 95th percentile of iterations, of a predicted one the model's.
        runs: ids of the runs that it comes from.
    """

    value: float
    interval: Ends | None = None
    runs: tuple[str, ...] = ()


def where(frame: pl.DataFrame, conditions: Where) -> pl.DataFrame:
    """The rows that meet conditions on columns.

    Raises:
        UserError: there is no such column.
        UntestableError: no row meets them.
    """
    found = frame
    for name, condition in conditions.items():
        found = found.filter(_condition(require(frame, name), condition))
        if found.is_empty():
            raise UntestableError(f"no run has {say({name: condition})}")
    return found


def require(frame: pl.DataFrame, name: str) -> str:
    """The name of a column that the frame has.

    Raises:
        UserError: it has not.
    """
    if name not in frame.columns:
        raise UserError(
            f"a claim names the column {name!r}, which records do not have", remedy="Mend config/claims.yaml."
        )
    return name


def _condition(name: str, condition: Any) -> pl.Expr:
    column = pl.col(name)
    if isinstance(condition, Expected):
        return column.map_elements(condition.holds, return_dtype=pl.Boolean)
    return column.is_in(condition) if isinstance(condition, list) else column == condition


def point(frame: pl.DataFrame, conditions: Where) -> Row:
    """The row that stands for a point: the fastest.

    Raises:
        UntestableError: there is none.
        UserError: several rows without a rate are there.
    """
    found = where(frame, conditions)
    if found.height == 1:
        return found.row(0, named=True)
    rate = next((name for name in (RATE, "tokens_per_second") if name in found.columns), None)
    if rate is None or found[rate].null_count():
        raise UserError(f"{found.height} runs are at {say(conditions)}", where="claims", remedy="Name one of them.")
    return fastest(found) if rate == RATE else found.sort(rate, descending=True).row(0, named=True)


def number(row: Row, column: str) -> float:
    """A number of a row.

    Raises:
        UntestableError: it is not defined there.
    """
    if row[column] is None:
        raise UntestableError(f"{column} is not defined for {row.get('run_id', 'a row of the table')}")
    return float(row[column])


def value(frame: pl.DataFrame, of: str, at: Where) -> Measured:
    """A column at a point."""
    row = point(frame, at)
    return Measured(value=number(row, require(frame, of)), interval=interval(row, of), runs=_ids(row))


def interval(row: Row, column: str) -> Ends | None:
    """Between what a rate lies, if its time lies between its percentiles or the ends of its prediction."""
    if column not in TIMED:
        return None
    time = TIMED[column]
    ends = [row[f"{time}_p95"] or row[f"{time}_high"], row[f"{time}_p05"] or row[f"{time}_low"]]
    if None in ends:
        return None
    low, high = (float(row[column]) * float(row[time]) / float(end) for end in ends)
    return low, high


def change(before: Row, after: Row, of: str) -> Measured:
    """The relative change of a column; its interval is of two measured points, whose noise has nothing in common."""
    found = number(after, of) / number(before, of) - 1
    ends = None
    if before.get("provenance") == after.get("provenance") == Provenance.MEASURED:
        one, other = interval(before, of), interval(after, of)
        ends = (other[0] / one[1] - 1, other[1] / one[0] - 1) if one and other else None
    return Measured(value=found, interval=ends, runs=_ids(before, after))


def difference(before: Row, after: Row, of: str) -> Measured:
    """The difference of a column between two points."""
    return Measured(value=number(after, of) - number(before, of), runs=_ids(before, after))


def line(frame: pl.DataFrame, along: str, order: list[str | int] | None = None) -> pl.DataFrame:
    """One row a value of a column, the fastest there, in the order given or by size.

    Raises:
        UntestableError: fewer than two of them are there, not all of the order, or runs of several models or hardware.
    """
    values = order or frame[require(frame, along)].unique().sort().to_list()
    if len(values) < 2:
        raise UntestableError(f"there is but one value of {along}")
    for name in ("hardware", "model"):
        others = frame[name].unique().sort().to_list() if name in frame.columns and name != along else []
        if len(others) > 1:
            raise UntestableError(f"one line cannot join runs of {', '.join(map(str, others))}")
    return pl.DataFrame([point(frame, {along: one}) for one in values], schema=frame.schema)


def column(rows: pl.DataFrame, of: str) -> list[float]:
    """The numbers of a column, all defined."""
    require(rows, of)
    return [number(row, of) for row in rows.iter_rows(named=True)]


def _runs(rows: pl.DataFrame) -> tuple[str, ...]:
    return tuple(rows["run_id"]) if "run_id" in rows.columns else ()


def _ids(*rows: Row) -> tuple[str, ...]:
    """The runs of rows; a table of definitions has none."""
    return tuple(row["run_id"] for row in rows if "run_id" in row)


def spread(rows: pl.DataFrame, of: str) -> Measured:
    """The largest over the smallest value, less one."""
    values = column(rows, of)
    return Measured(value=max(values) / min(values) - 1, runs=_runs(rows))


def _worst(steps: Iterable[float], direction: str) -> float:
    """The step that goes most against a direction."""
    return float(min(steps) if direction == "rising" else max(steps))


def trend(rows: pl.DataFrame, of: str, direction: str) -> Measured:
    """The relative change at the step that goes most against a direction."""
    values = column(rows, of)
    steps = [after / before - 1 for before, after in itertools.pairwise(values)]
    return Measured(value=_worst(steps, direction), runs=_runs(rows))


def gain(before: pl.DataFrame, after: pl.DataFrame, of: str, direction: str) -> Measured:
    """Of the relative changes from one line to another, the step along it that goes most against a direction."""
    changes = [late / early - 1 for early, late in zip(column(before, of), column(after, of), strict=True)]
    return Measured(value=_worst(np.diff(changes), direction), runs=_runs(before) + _runs(after))


def turning(rows: pl.DataFrame, of: str, along: str) -> Measured:
    """The least by which a slope grows from step to step, over the steepest slope; below zero it is not convex.

    Raises:
        UntestableError: there are fewer than three points.
    """
    if rows.height < 3:
        raise UntestableError(f"there are but {rows.height} values of {along}")
    slopes = np.diff(column(rows, of)) / np.diff(column(rows, along))
    return Measured(value=float(np.diff(slopes).min() / np.abs(slopes).max()), runs=_runs(rows))


def fit(rows: pl.DataFrame, of: str, along: str) -> Measured:
    """R2 of a straight line."""
    x, y = np.array(column(rows, along)), np.array(column(rows, of))
    return Measured(value=float(np.corrcoef(x, y)[0, 1] ** 2), runs=_runs(rows))


def extrapolation(small: pl.DataFrame, large: Row, of: str, along: str) -> Measured:
    """By how much a line through small scales misses a large one, as a share of its value, whatever the sign."""
    there = (number(large, along), number(large, of))
    missed = missed_by_line(column(small, along), column(small, of), there)
    return Measured(value=abs(missed), runs=_runs(small) + _ids(large))


def correlation(rows: pl.DataFrame, of: str, against: str) -> Measured:
    """Spearman's coefficient of two columns over rows.

    Raises:
        UntestableError: there are fewer than three rows, or one column is the same everywhere.
    """
    found = rows.select(pl.corr(require(rows, of), require(rows, against), method="spearman")).item()
    if rows.height < 3 or found is None or not np.isfinite(found):
        raise UntestableError(f"{rows.height} layouts have no correlation")
    return Measured(value=float(found), runs=_runs(rows))


def margin(rows: pl.DataFrame, others: pl.DataFrame, of: str) -> Measured:
    """The smallest value among some rows over the smallest among others."""
    return Measured(value=min(column(rows, of)) / min(column(others, of)), runs=_runs(rows) + _runs(others))


def outdoing(rows: pl.DataFrame, base: Row, more: list[str], less: list[str]) -> pl.DataFrame:
    """The rows that outdo a baseline in every column."""
    better = [pl.col(require(rows, name)) > number(base, name) for name in more]
    better += [pl.col(require(rows, name)) < number(base, name) for name in less]
    return rows.filter(pl.col("run_id") != base["run_id"], *better)
