"""Verdicts as a table, for the paper, the report and whoever reads CSV; and what does not hold, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from scaling_study.present.claims.verdicts import Judged, Result
from scaling_study.present.claims.words import between, shown
from scaling_study.spec import Verdict

#: How many constants of the model a finding names.
NAMED = 2
_COLUMNS = (
    "id",
    "source",
    "says",
    "kind",
    "place",
    "provenance",
    "verdict",
    "value",
    "interval",
    "expected",
    "measured",
    "reason",
    "finding",
    "extrapolated",
    "figures",
    "assumptions",
)


def claims_table(judged: Sequence[Judged]) -> pl.DataFrame:
    """One row a claim and place.

    Returns:
        texts, as a reader sees them: `value` with `interval` and `expected` are of the check that decides, `measured`
        says what it measures; `finding` is empty where the claim holds or cannot be tested.
    """
    rows = [
        {
            "id": one.id,
            "source": one.source,
            "says": one.says,
            "kind": one.kind,
            "place": one.place.value,
            "provenance": one.provenance.value,
            "verdict": one.verdict.value,
            "value": "" if one.value is None else shown(one.value, one.unit),
            "interval": between(one.interval, one.unit),
            "expected": one.expected,
            "measured": one.measured,
            "reason": one.reason or "",
            "finding": finding(one),
            "extrapolated": "yes" if one.extrapolated else "",
            "figures": " ".join(one.figures),
            "assumptions": " ".join(one.assumptions),
        }
        for one in judged
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(_COLUMNS, pl.String))


def finding(one: Judged) -> str:
    """What came out in place of what a source says, and what would have to be true; empty where the claim holds."""
    if one.verdict in (Verdict.HOLDS, Verdict.UNTESTABLE):
        return ""
    missed = [result for result in one.checks if result.verdict in (Verdict.FAILS, Verdict.SHAPE)]
    return "; ".join(_missed(result) for result in missed)


def _missed(result: Result) -> str:
    assert result.value is not None
    ends = between(result.interval, result.unit)
    said = (
        f"{result.what}: {shown(result.value, result.unit)}{f' ({ends})' if ends else ''}, expected {result.expected}"
    )
    needed = " or ".join(result.needed[:NAMED])
    return f"{said}, which would need {needed}" if needed else said
