"""What a predicted change hangs on: each constant moved through its interval, and until the change is the printed one.

Nothing is fitted here. Where no constant brings the change to the reported one inside its interval, the model and the
source disagree; the value that would do it says what would have to be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import polars as pl

from scaling_study.predict.library import Library
from scaling_study.predict.ours import setup_of_run
from scaling_study.predict.parameters import KNOBS, Constants
from scaling_study.predict.predictions import step_times
from scaling_study.predict.setup import Setup
from scaling_study.spec import Catalogue, ReportedPoint, Study, TrainingRun, expand
from scaling_study.tracking import Track, untracked

#: Metrics that follow from the time of an iteration alone, with whether they are of one GPU.
RATES = {"words_per_second": False, "words_per_second_per_gpu": True}
#: How far a constant is moved in search of the reported change, as a factor.
REACH = 20.0
_STEPS = 40

SCHEMA: dict[str, type[pl.DataType]] = {
    "sweep": pl.String,
    "metric": pl.String,
    "since": pl.String,
    "where": pl.String,
    "reported_change": pl.Float64,
    "predicted_change": pl.Float64,
    "constant": pl.String,
    "meaning": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "change_at_low": pl.Float64,
    "change_at_high": pl.Float64,
    "needed": pl.Float64,
}


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    """The runs between which a rate changes: the fastest of each side stands for it."""

    before: tuple[Setup, ...]
    after: tuple[Setup, ...]
    per_gpu: bool

    def by(self, constants: Constants) -> float:
        """The relative change under these constants."""
        rates = []
        for setups in (self.before, self.after):
            seconds = step_times(setups, lambda _: constants)
            shares = [one.tokens / (one.gpus if self.per_gpu else 1) for one in setups]
            rates.append(max(share / time for share, time in zip(shares, seconds.tolist(), strict=True)))
        return float(rates[1] / rates[0] - 1)


def sensitivity(study: Study, catalogue: Catalogue, library: Library, track: Track = untracked) -> pl.DataFrame:
    """One row a reported change of a rate and constant, sorted by how far the constant moves it; see `SCHEMA`.

    `needed` is the value of the constant that would give the reported change, all others as they are; null where no
    value within a factor of `REACH` does.
    """
    rows = []
    changes = [point for point in study.reported if point.change is not None and point.metric in RATES]
    for point in track(changes, len(changes)):
        rows += _rows(point, _change(point, study, catalogue, library), library)
    frame = pl.DataFrame(rows, schema=SCHEMA)
    span = (pl.col("change_at_high") - pl.col("change_at_low")).abs()
    return frame.sort("sweep", "metric", span, "constant", descending=[False, False, True, False])


def _change(point: ReportedPoint, study: Study, catalogue: Catalogue, library: Library) -> _Change:
    runs = [run for run in expand(study, point.sweep, catalogue) if isinstance(run, TrainingRun)]

    def setups(where: dict[str, str | int]) -> tuple[Setup, ...]:
        chosen = [run for run in runs if _is_at(run, where)]
        return tuple(
            setup_of_run(run, catalogue.models[run.model], catalogue.hardware[run.hardware], library) for run in chosen
        )

    return _Change(before=setups(point.since), after=setups(point.where), per_gpu=RATES[point.metric])


def _is_at(run: TrainingRun, where: dict[str, str | int]) -> bool:
    fields = {**msgspec.to_builtins(run), "gpus": run.ranks}
    return all(fields.get(name) == value for name, value in where.items())


def _rows(point: ReportedPoint, change: _Change, library: Library) -> list[dict[str, Any]]:
    known = library.parameter_set(change.after[0].part.family)
    constants = known.values()
    common = {
        "sweep": point.sweep,
        "metric": point.metric,
        "since": _said(point.since),
        "where": _said(point.where),
        "reported_change": point.change,
        "predicted_change": change.by(constants),
    }
    rows = []
    for name, estimate in known.constants.items():
        low, high = (change.by(_moved(constants, name, value)) for value in (estimate.low, estimate.high))
        assert point.change is not None
        rows.append(
            {
                **common,
                "constant": name,
                "meaning": KNOBS[name].meaning,
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "change_at_low": low,
                "change_at_high": high,
                "needed": _needed(change, constants, name, estimate.value, point.change),
            }
        )
    return rows


def _needed(change: _Change, constants: Constants, name: str, value: float, wanted: float) -> float | None:
    """The value nearest to its own that gives the wanted change, by bisection on either side."""
    found = [
        crossing
        for end in (value / REACH, value * REACH)
        if (crossing := _crossing(change, constants, name, (value, end), wanted)) is not None
    ]
    return min(found, key=lambda one: abs(one / value - 1), default=None)


def _crossing(change: _Change, constants: Constants, name: str, ends: Sequence[float], wanted: float) -> float | None:
    """Where between two values the change is the wanted one, by halving their ratio; None where it never is."""
    near, far = ends
    above = change.by(_moved(constants, name, near)) > wanted
    if (change.by(_moved(constants, name, far)) > wanted) == above:
        return None
    for _ in range(_STEPS):
        middle = (near * far) ** 0.5
        if (change.by(_moved(constants, name, middle)) > wanted) == above:
            near = middle
        else:
            far = middle
    return float((near * far) ** 0.5)


def _moved(constants: Constants, name: str, value: float) -> Constants:
    return msgspec.structs.replace(constants, **{name: value})


def _said(where: dict[str, str | int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in where.items())
