"""Calibration: fit the constants, each with its interval, and say what unseen sources cost.

Leaving one source out means: fit on all the others, from the same priors, then predict the one that was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml

from scaling_study.errors import UserError, write_atomically
from scaling_study.predict.batch import Array, batch_of
from scaling_study.predict.fitting import Fit, Measured, fit, source_weights
from scaling_study.predict.footprint import fits, memory_gib
from scaling_study.predict.library import Estimate, Library, ParameterSet
from scaling_study.predict.parameters import KNOBS, Constants
from scaling_study.predict.predictions import families, step_times
from scaling_study.predict.rows import read_rows, setup_of
from scaling_study.predict.scores import balanced_accuracy
from scaling_study.predict.setup import Setup
from scaling_study.spec import Outcome

#: Families without measured rows, and the measured one whose shared constants and intervals they take, widened.
_UNMEASURED = {"v100": "a100", "h200": "h100"}
_WIDENED = 1.6
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


def leave_each_out(training: Sequence[Run], judged: Sequence[Run], whole: Fit) -> list[Left]:
    """Predict each source of `judged` by the fit on all other sources of `training`."""
    found = []
    for source in sorted({run.source for run in judged if run.seconds is not None}):
        own = [run for run in judged if run.source == source]
        without = fit_runs([run for run in training if run.source != source])
        fitted, measured = predicted(own, whole.constants)
        unseen, _ = predicted(own, without.constants)
        timed = tuple(run for run in own if run.seconds is not None)
        found.append(Left(source=source, rows=timed, fitted=fitted, unseen=unseen, measured=measured))
    return found


def memory_accuracy(runs: Sequence[Run]) -> float | None:
    """Balanced accuracy of fitting against running out of memory."""
    right, true = [], []
    for index in families([run.setup for run in runs]).values():
        mine = [runs[i] for i in index]
        batch = batch_of([run.setup for run in mine])
        right += (~fits(batch, memory_gib(batch))).tolist()
        true += [run.seconds is None for run in mine]
    return balanced_accuracy(np.array(right), np.array(true))


def parameter_sets(whole: Fit, left: Sequence[Left]) -> list[ParameterSet]:
    """One set for every family that was measured, and for its neighbours without measurements."""
    ratios: dict[str, list[tuple[str, float]]] = {}
    for part in left:
        for run, unseen, measured in zip(part.rows, part.unseen, part.measured, strict=True):
            ratios.setdefault(run.setup.part.family, []).append((part.source, float(measured / unseen)))
    measured_sets = {family: _set(whole, family, pairs) for family, pairs in ratios.items()}
    others = [_neighbour(family, measured_sets[of]) for family, of in _UNMEASURED.items() if of in measured_sets]
    return [*measured_sets.values(), *others]


def _set(whole: Fit, family: str, pairs: Sequence[tuple[str, float]]) -> ParameterSet:
    sources = sorted({source for source, _ in pairs})
    low, high = _quantiles(pairs)
    return ParameterSet(
        family=family,
        fitted_on=tuple(sources),
        extrapolated=False,
        error_low=low,
        error_high=high,
        constants=_estimates(whole, family),
    )


def _neighbour(family: str, measured: ParameterSet) -> ParameterSet:
    """A family without measurements: its priors, moved as far as the measured neighbour's were; wider."""
    estimates = {}
    for name, knob in KNOBS.items():
        near = measured.constants[name]
        ratio = knob.by_family.get(family, knob.value) / knob.by_family.get(measured.family, knob.value)
        reach = float(np.exp(NINETY * knob.spread)) if knob.by_family else 1.0
        low, value, high = ratio * near.low / reach, ratio * near.value, ratio * near.high * reach
        estimates[name] = Estimate(value=_round(value), low=_round(low), high=_round(high))
    return ParameterSet(
        family=family,
        fitted_on=(),
        extrapolated=True,
        error_low=_round(measured.error_low**_WIDENED),
        error_high=_round(measured.error_high**_WIDENED),
        constants=estimates,
    )


def _quantiles(pairs: Sequence[tuple[str, float]]) -> tuple[float, float]:
    """10% and 90% quantile of measured over predicted, every source weighing the same."""
    counts = {source: sum(1 for other, _ in pairs if other == source) for source, _ in pairs}
    ordered = sorted((ratio, 1 / counts[source]) for source, ratio in pairs)
    share = np.cumsum([weight for _, weight in ordered]) / len(counts)
    low, high = (ordered[min(int(np.searchsorted(share, q)), len(ordered) - 1)][0] for q in (0.1, 0.9))
    return _round(min(low, 0.97)), _round(max(high, 1.03))


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
