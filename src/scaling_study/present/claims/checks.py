"""From a check to the measure that it names, over the rows that its place has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import polars as pl

from scaling_study.present.claims import bounds, measures
from scaling_study.present.claims.evidence import Evidence, UntestableError
from scaling_study.present.claims.measures import Measured
from scaling_study.spec import Claim, Place
from scaling_study.spec import claims as spec


def measure(claim: Claim, check: spec.Check, case: spec.Where, place: Place, evidence: Evidence) -> Measured:
    """The number that a check is about, in one combination of its `each`.

    Raises:
        UntestableError: it cannot be had at this place; the message says why.
        UserError: the check names what is not there.
    """
    if not isinstance(check, spec.RowCheck):
        if place is not Place.MODEL:
            raise UntestableError("it is about a closed form, not about runs")
        return bounds.measure(check, evidence.catalogue)
    if check.table is not None:
        if place in (Place.CLUSTER, Place.LOCAL):
            raise UntestableError("it is about definitions, not about runs")
        rows = evidence.table(check.table)
    else:
        rows = evidence.rows(claim, check.sweep or "", place)
    return _MEASURES[type(check)](measures.where(rows, {**check.where, **case}), check, Others(claim, place, evidence))


class Others(msgspec.Struct, frozen=True):
    """Where a measure finds the rows of another sweep."""

    claim: Claim
    place: Place
    evidence: Evidence

    def rows(self, sweep: str) -> pl.DataFrame:
        """The rows of a sweep, as `Evidence.rows` has them."""
        return self.evidence.rows(self.claim, sweep, self.place)


def _change(rows: pl.DataFrame, check: spec.ChangeCheck, others: Others) -> Measured:
    before = others.rows(check.since_sweep) if check.since_sweep else rows
    if check.least:
        smallest = pl.col(measures.require(before, check.least))
        before = before.filter(smallest == smallest.min())
    return measures.change(measures.point(before, check.since), measures.point(rows, check.at), check.of)


def _count(rows: pl.DataFrame, check: spec.CountCheck, others: Others) -> Measured:
    counted = _counted(rows, check)
    less = 0
    if check.beyond:
        less = _counted(measures.where(others.rows(check.beyond), check.beyond_where), check).height
    return Measured(
        value=counted.height - less, runs=tuple(counted.get_column("run_id", default=pl.Series([], dtype=pl.String)))
    )


def _counted(rows: pl.DataFrame, check: spec.CountCheck) -> pl.DataFrame:
    """The rows that count; where none is of those, there is none to count."""
    base = measures.point(rows, check.than) if check.than else None
    try:
        those = measures.where(rows, check.at)
    except UntestableError:
        if base is not None:
            raise
        return rows.clear()
    return those if base is None else measures.outdoing(those, base, check.more, check.less)


def _gain(rows: pl.DataFrame, check: spec.GainCheck, _: Others) -> Measured:
    ends = [measures.line(measures.where(rows, one), check.along) for one in (check.since, check.at)]
    return measures.gain(ends[0], ends[1], check.of, check.direction)


_Of = Callable[[pl.DataFrame, Any, Others], Measured]
_MEASURES: dict[type[spec.Check], _Of] = {
    spec.ValueCheck: lambda rows, check, _: measures.value(rows, check.of, check.at),
    spec.ChangeCheck: _change,
    spec.DifferenceCheck: lambda rows, check, _: measures.difference(
        measures.point(rows, check.since), measures.point(rows, check.at), check.of
    ),
    spec.SpreadCheck: lambda rows, check, _: measures.spread(measures.line(rows, check.along), check.of),
    spec.TrendCheck: lambda rows, check, _: measures.trend(
        measures.line(rows, check.along, check.order), check.of, check.direction
    ),
    spec.GainCheck: _gain,
    spec.TurningCheck: lambda rows, check, _: measures.turning(measures.line(rows, check.along), check.of, check.along),
    spec.FitCheck: lambda rows, check, _: measures.fit(measures.line(rows, check.along), check.of, check.along),
    spec.ExtrapolationCheck: lambda rows, check, _: measures.extrapolation(
        measures.line(measures.where(rows, check.since), check.along),
        measures.point(rows, check.at),
        check.of,
        check.along,
    ),
    spec.CorrelationCheck: lambda rows, check, _: measures.correlation(rows, check.of, check.against),
    spec.MarginCheck: lambda rows, check, _: measures.margin(
        measures.where(rows, check.at), measures.where(rows, check.since), check.of
    ),
    spec.CountCheck: _count,
}
