"""From a claim and its evidence to a verdict at every place.

A claim holds where all its checks do, and in shape where those that have a shape hold that. Where one fails, it does
not hold, whatever could not be looked at; else one that cannot be looked at leaves it untested.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

import msgspec
import polars as pl

from scaling_study.errors import UserError
from scaling_study.present.claims.checks import measure
from scaling_study.present.claims.evidence import COLUMNS, PROVENANCE, Evidence, UntestableError
from scaling_study.present.claims.words import asked_of, what
from scaling_study.spec import Claim, Claims, Place, Provenance, Verdict
from scaling_study.spec import claims as spec


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One check in one case.

    Attributes:
        what: is measured, in words.
        value: None where it could not be, for the `reason`.
        interval: of the value, where one is known.
        expected: in words; `unit` as in the check.
        needed: constants of the model with the values that would give what is expected, where it is not met.
        runs: ids of the runs behind the value.
    """

    what: str
    value: float | None
    interval: tuple[float, float] | None = None
    expected: str
    unit: str
    verdict: Verdict
    reason: str | None = None
    needed: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A claim at a place, as `scaling-study claims --json` prints it.

    Attributes:
        value: of the check that decides: the first that is not met, or the first; `measured` says what it is.
        reason: why the claim cannot be tested here.
        extrapolated: the verdict hangs on predictions for a part of which nobody has published training.
    """

    id: str
    provenance: Provenance
    place: Place
    verdict: Verdict
    value: float | None
    interval: tuple[float, float] | None
    unit: str
    expected: str
    measured: str
    reason: str | None
    kind: str
    source: str
    says: str
    figures: tuple[str, ...]
    assumptions: tuple[str, ...]
    extrapolated: bool
    checks: tuple[Result, ...]


def judge(claims: Claims, evidence: Evidence) -> list[Judged]:
    """Every claim at every place that it may be judged at.

    Raises:
        UserError: a claim names a column, a model or a hardware that is not there.
    """
    for name, claim in claims.claims.items():
        _check_columns(name, claim)
    return [
        _judged(name, claim, place, evidence)
        for name, claim in claims.claims.items()
        for place in _places(claim, evidence)
    ]


def _check_columns(name: str, claim: Claim) -> None:
    """Refuse a claim about records that names what no record has, whether there are records or not."""
    for check in claim.checks:
        named = check.columns if isinstance(check, spec.RowCheck) and check.sweep else set()
        if unknown := sorted(named - COLUMNS):
            close = difflib.get_close_matches(unknown[0], sorted(COLUMNS), n=1)
            raise UserError(
                f"records have no column {unknown[0]!r}",
                where=f"claim {name}",
                remedy=f"Did you mean {close[0]!r}?" if close else "Mend config/claims.yaml.",
            )


def _places(claim: Claim, evidence: Evidence) -> list[Place]:
    """Of a claim about runs where runs come from; of one about definitions alone, those."""
    if claim.sweeps:
        return [Place.CLUSTER, Place.LOCAL, Place.MODEL]
    return [Place.CLUSTER, Place.LOCAL, _place_of_definitions(claim, evidence)]


def _place_of_definitions(claim: Claim, evidence: Evidence) -> Place:
    """Sources where a table says that its numbers are reported, else the model: closed forms are predictions."""
    for name in claim.tables:
        try:
            table = evidence.table(name)
        except UntestableError:
            continue
        if set(table.get_column("provenance", default=pl.Series(["predicted"]))) == {Provenance.REPORTED.value}:
            return Place.SOURCES
    return Place.MODEL


def _judged(name: str, claim: Claim, place: Place, evidence: Evidence) -> Judged:
    results = tuple(result for check in claim.checks for result in _results(claim, check, place, evidence))
    verdict = overall(results, [bool(check.shape) for check in claim.checks for _ in _cases(check)])
    shown = next((one for one in results if one.verdict is not Verdict.HOLDS), results[0])
    if verdict is Verdict.UNTESTABLE:
        shown = next(one for one in results if one.verdict is Verdict.UNTESTABLE)
    return Judged(
        id=name,
        provenance=PROVENANCE[place],
        place=place,
        verdict=verdict,
        value=shown.value,
        interval=shown.interval,
        unit=shown.unit,
        expected=shown.expected,
        measured=shown.what,
        reason=shown.reason if verdict is Verdict.UNTESTABLE else None,
        kind=claim.kind,
        source=claim.source,
        says=claim.says,
        figures=claim.figures,
        assumptions=claim.assumptions,
        extrapolated=place is Place.MODEL and _extrapolated(claim, results, evidence),
        checks=results,
    )


def overall(results: Sequence[Result], shaped: Sequence[bool]) -> Verdict:
    """The verdict of all checks together.

    Args:
        shaped: of each result, whether its check has a shape.
    """
    found = {result.verdict for result in results}
    decisive = {result.verdict for result, has in zip(results, shaped, strict=True) if has or not any(shaped)}
    if Verdict.FAILS in decisive:
        return Verdict.FAILS
    if Verdict.UNTESTABLE in found:
        return Verdict.UNTESTABLE
    return Verdict.HOLDS if found == {Verdict.HOLDS} else Verdict.SHAPE


def _cases(check: spec.Check) -> Iterator[spec.Where]:
    if isinstance(check, spec.RowCheck):
        yield from check.cases()
    else:
        yield {}


def _results(claim: Claim, check: spec.Check, place: Place, evidence: Evidence) -> Iterator[Result]:
    for case in _cases(check):
        asked = Result(
            what=what(check, case),
            value=None,
            expected=asked_of(check),
            unit=check.unit,
            verdict=Verdict.UNTESTABLE,
        )
        try:
            found = measure(claim, check, case, place, evidence)
        except UntestableError as error:
            yield msgspec.structs.replace(asked, reason=str(error))
            continue
        verdict, hangs = _verdict(check, found.value), _hangs_on(check, place, evidence)
        yield msgspec.structs.replace(
            asked,
            value=found.value,
            interval=found.interval or _swept(hangs),
            verdict=verdict,
            needed=_needed(hangs) if verdict is not Verdict.HOLDS else (),
            runs=tuple(dict.fromkeys(found.runs)),
        )


def _verdict(check: spec.Check, value: float) -> Verdict:
    if check.expect.holds(value):
        return Verdict.HOLDS
    return Verdict.SHAPE if check.shape is not None and check.shape.holds(value) else Verdict.FAILS


def _extrapolated(claim: Claim, results: tuple[Result, ...], evidence: Evidence) -> bool:
    runs = {run for result in results for run in result.runs}
    frames = evidence.frames.get(Place.MODEL, {})
    return any(
        not frames[sweep].filter(pl.col("run_id").is_in(sorted(runs)) & pl.col("extrapolated")).is_empty()
        for sweep in claim.sweeps
        if sweep in frames
    )


def _hangs_on(check: spec.Check, place: Place, evidence: Evidence) -> pl.DataFrame | None:
    """What the model knows of a predicted change: which constants move it, the first of them most."""
    if place is not Place.MODEL or evidence.sensitivity is None or not isinstance(check, spec.ChangeCheck):
        return None
    found = evidence.sensitivity.filter(
        sweep=check.sweep, metric=check.of, since=_named(check.since), where=_named(check.at)
    )
    return None if found.is_empty() else found


def _named(conditions: spec.Where) -> str:
    """Conditions as the table of `sensitivity` has them."""
    return ", ".join(f"{name} {value}" for name, value in conditions.items())


def _swept(hangs: pl.DataFrame | None) -> tuple[float, float] | None:
    """The change at the ends of the interval of the constant that moves it most."""
    if hangs is None:
        return None
    first = hangs.row(0, named=True)
    low, high = sorted((float(first["change_at_low"]), float(first["change_at_high"])))
    return low, high


def _needed(hangs: pl.DataFrame | None) -> tuple[str, ...]:
    """The values of single constants that would give the reported change, beside their intervals."""
    if hangs is None:
        return ()
    return tuple(
        f"{row['meaning']}: {row['needed']:.3g} in place of {row['value']:.3g} ({row['low']:.3g} to {row['high']:.3g})"
        for row in hangs.drop_nulls("needed").iter_rows(named=True)
    )
