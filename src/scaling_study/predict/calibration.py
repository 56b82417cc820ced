"""Calibration: fit the constants, each with its interval, and say what unseen sources cost.

Leaving one source out means: fit on all the others, from the same priors, then predict the one that was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import yaml

from scaling_study.errors import UserError, write_atomically
from scaling_study.predict.batch import Array, Flags, batch_of
from scaling_study.predict.fitting import Fit, Measured, fit, source_weights
from scaling_study.predict.footprint import fits, memory_gib
from scaling_study.predict.library import Estimate, Library, ParameterSet, Spread
from scaling_study.predict.parameters import KNOBS, Constants
from scaling_study.predict.predictions import families, step_times
from scaling_study.predict.rows import read_rows, setup_of
from scaling_study.predict.scores import balanced_accuracy
from scaling_study.predict.setup import Setup
from scaling_study.spec import Outcome
from scaling_study.tracking import Track, untracked

#: Families without measured rows, and the measured one whose shared constants and intervals they take, widened.
_UNMEASURED = {"v100": "a100", "h200": "h100"}
_WIDENED = 1.6
_DESCRIBED = ("gpus", "dp", "tp", "pp", "cp", "micro_batch", "global_batch", "sequence_length")
#: Columns of `validation_table`. `group`: rows of a source that differ in layout only.
VALIDATION: dict[str, type[pl.DataType]] = {
    "source": pl.String,
    "group": pl.String,
    "part": pl.String,
    "parameters": pl.Int64,
    **dict.fromkeys(_DESCRIBED, pl.Int64),
    "outcome": pl.String,
    "predicted_outcome": pl.String,
    "measured_step_time_s": pl.Float64,
    "fitted_step_time_s": pl.Float64,
    "unseen_step_time_s": pl.Float64,
}
#: Sources, and measured over predicted time.
Ratios = Sequence[tuple[str, float]]
#: Standard deviations that hold a value with 90% probability.
NINETY = 1.645


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A measured row. `group`: rows that differ in layout only; `seconds` is None where it ran out of memory."""

    source: str
    group: tuple[str, ...]
    setup: Setup
    seconds: float | None


def read_runs(path: Path, library: Library) -> list[Run]:
    """Rows that ran or ran out of memory.

    Raises:
        UserError: a row has no setup; a calibration leaves nothing out silently.
    """
    runs = []
    for number, row in enumerate(read_rows(path).iter_rows(named=True), start=2):
        setup = setup_of(row, library)
        if isinstance(setup, str):
            raise UserError(setup, where=f"{path}, line {number}", remedy="Mend or remove the row.")
        runs.append(_run(row, setup))
    return runs


def _run(row: dict[str, Any], setup: Setup) -> Run:
    timed = row.get("outcome") == Outcome.OK.value
    decoder = setup.decoder
    return Run(
        source=row.get("source_id") or "",
        group=(str(decoder.layers), str(decoder.hidden), str(setup.gpus), str(setup.sequence_length)),
        setup=setup,
        seconds=float(row["step_time_s"]) if timed else None,
    )


def fit_runs(runs: Sequence[Run]) -> Fit:
    """Fit all constants on the timed rows."""
    timed = [run for run in runs if run.seconds is not None]
    weights = source_weights([run.source for run in timed])
    parts = []
    for family, index in sorted(families([run.setup for run in timed]).items()):
        mine = [timed[i] for i in index]
        parts.append(
            Measured(
                family=family,
                batch=batch_of([run.setup for run in mine]),
                step_time_s=np.array([run.seconds for run in mine]),
                weight=weights[index],
            )
        )
    return fit(parts)


def predicted(runs: Sequence[Run], constants: Callable[[str], Constants]) -> tuple[Array, Array]:
    """Predicted and measured seconds of the timed rows."""
    timed = [run for run in runs if run.seconds is not None]
    return step_times([run.setup for run in timed], constants), np.array([run.seconds for run in timed])


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Predictions of the rows of each source, by the fit that has not seen it."""

    source: str
    rows: tuple[Run, ...]
    fitted: Array
    unseen: Array
    measured: Array


def leave_each_out(training: Sequence[Run], judged: Sequence[Run], whole: Fit, track: Track = untracked) -> list[Left]:
    """Predict each source of `judged` by the fit on all other sources of `training`."""
    found = []
    sources = sorted({run.source for run in judged if run.seconds is not None})
    for source in track(sources, len(sources)):
        own = [run for run in judged if run.source == source]
        without = fit_runs([run for run in training if run.source != source])
        fitted, measured = predicted(own, whole.constants)
        unseen, _ = predicted(own, without.constants)
        timed = tuple(run for run in own if run.seconds is not None)
        found.append(Left(source=source, rows=timed, fitted=fitted, unseen=unseen, measured=measured))
    return found


def memory_accuracy(runs: Sequence[Run]) -> float | None:
    """Balanced accuracy of fitting against running out of memory."""
    return balanced_accuracy(~_fitting(runs), np.array([run.seconds is None for run in runs]))


def _fitting(runs: Sequence[Run]) -> Flags:
    """Whether each run is predicted to fit into memory."""
    fit = np.zeros(len(runs), dtype=np.bool_)
    for index in families([run.setup for run in runs]).values():
        batch = batch_of([runs[i].setup for i in index])
        fit[index] = fits(batch, memory_gib(batch))
    return fit


def validation_table(judged: Sequence[Run], left: Sequence[Left]) -> pl.DataFrame:
    """Every judged row with what was measured, and what is predicted with its source fitted on and left out."""
    times = {
        id(run): (float(measured), float(fitted), float(unseen))
        for part in left
        for run, measured, fitted, unseen in zip(part.rows, part.measured, part.fitted, part.unseen, strict=True)
    }
    rows = []
    for run, fitting in zip(judged, _fitting(judged), strict=True):
        measured, fitted, unseen = times.get(id(run), (None, None, None))
        setup = run.setup
        rows.append(
            {
                "source": run.source,
                "group": " ".join(run.group),
                "part": setup.part.name,
                "parameters": setup.decoder.parameters,
                **{name: getattr(setup, name) for name in _DESCRIBED},
                "outcome": (Outcome.OUT_OF_MEMORY if run.seconds is None else Outcome.OK).value,
                "predicted_outcome": (Outcome.OK if fitting else Outcome.OUT_OF_MEMORY).value,
                "measured_step_time_s": measured,
                "fitted_step_time_s": fitted,
                "unseen_step_time_s": unseen,
            }
        )
    return pl.DataFrame(rows, schema=VALIDATION)


def parameter_sets(
    whole: Fit, left: Sequence[Left], small_calls: Mapping[str, Ratios], large_calls: Mapping[str, Ratios]
) -> list[ParameterSet]:
    """One set for every family that was measured, and for its neighbours without measurements.

    Args:
        whole: the fit on all sources.
        left: predictions of sources left out, whose errors are the interval.
        small_calls, large_calls: of collectives that nothing is fitted on, by family (`benchmarks.call_ratios`).
    """
    ratios: dict[str, list[tuple[str, float]]] = {}
    for part in left:
        for run, unseen, measured in zip(part.rows, part.unseen, part.measured, strict=True):
            ratios.setdefault(run.setup.part.family, []).append((part.source, float(measured / unseen)))

    def calls(family: str) -> tuple[Spread, Spread]:
        small, large = (_quantiles(table[family]) for table in (small_calls, large_calls))
        return small, large

    measured_sets = {family: _set(whole, family, pairs, calls(family)) for family, pairs in ratios.items()}
    others = [
        _neighbour(family, measured_sets[of], calls(family))
        for family, of in _UNMEASURED.items()
        if of in measured_sets
    ]
    return [*measured_sets.values(), *others]


def _set(whole: Fit, family: str, pairs: Ratios, calls: tuple[Spread, Spread]) -> ParameterSet:
    sources = sorted({source for source, _ in pairs})
    unseen = _quantiles(pairs)
    return ParameterSet(
        family=family,
        fitted_on=tuple(sources),
        extrapolated=False,
        error_low=unseen.low,
        error_high=unseen.high,
        small_calls=calls[0],
        large_calls=calls[1],
        constants=_estimates(whole, family),
    )


def _neighbour(family: str, measured: ParameterSet, calls: tuple[Spread, Spread]) -> ParameterSet:
    """A family without measured runs: its priors, moved as far as the measured neighbour's were; wider."""
    estimates = {}
    for name, knob in KNOBS.items():
        near = measured.constants[name]
        ratio = knob.by_family.get(family, knob.value) / knob.by_family.get(measured.family, knob.value)
        reach = float(np.exp(NINETY * knob.spread)) if knob.by_family else 1.0
        values = (ratio * near.low / reach, ratio * near.value, ratio * near.high * reach)
        estimates[name] = Estimate(**{k: _round(v) for k, v in zip(("low", "value", "high"), values, strict=True)})
    return ParameterSet(
        family=family,
        fitted_on=(),
        extrapolated=True,
        error_low=_round(measured.error_low**_WIDENED),
        error_high=_round(measured.error_high**_WIDENED),
        small_calls=calls[0],
        large_calls=calls[1],
        constants=estimates,
    )


def _quantiles(pairs: Ratios) -> Spread:
    """10% and 90% quantile of measured over predicted, every source weighing the same."""
    counts = {source: sum(1 for other, _ in pairs if other == source) for source, _ in pairs}
    ordered = sorted((ratio, 1 / counts[source]) for source, ratio in pairs)
    share = np.cumsum([weight for _, weight in ordered]) / len(counts)
    low, high = (ordered[min(int(np.searchsorted(share, q)), len(ordered) - 1)][0] for q in (0.1, 0.9))
    return Spread(low=_round(min(low, 0.97)), high=_round(max(high, 1.03)))


def _estimates(whole: Fit, family: str) -> dict[str, Estimate]:
    values = whole.constants(family)
    spreads = dict(zip(whole.names, np.sqrt(np.diag(whole.covariance)).tolist(), strict=True))
    estimates = {}
    for name, knob in KNOBS.items():
        spread = spreads.get(f"{name}@{family}", spreads.get(name, 2 * knob.spread))
        value = float(getattr(values, name))
        reach = float(np.exp(NINETY * spread))
        estimates[name] = Estimate(value=_round(value), low=_round(value / reach), high=_round(value * reach))
    return estimates


def _round(value: float) -> float:
    """Four significant digits, so that a file changes only when a fit does."""
    return float(f"{value:.4g}")


def write_sets(sets: Sequence[ParameterSet], folder: Path) -> None:
    """One YAML file a family, next to the tables that it was fitted on."""
    for one in sets:
        content = msgspec.to_builtins(one)
        text = "# Written by `scaling-study calibrate --write`; `low` and `high` hold the value with 90%.\n"
        text += yaml.safe_dump(content, sort_keys=False, width=120, default_flow_style=None)
        write_atomically(folder / f"{one.family}.yaml", text.encode())
