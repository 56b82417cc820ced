"""`scaling-study calibrate`: fit the constants, print each with its interval, and say what unseen sources cost.

Leaving one source out means: fit on all the others, from the same priors, then predict the one that was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
import yaml

from scaling_study.errors import UserError, write_atomically
from scaling_study.predict.batch import Array, batch_of
from scaling_study.predict.benchmarks import Comparison, compare
from scaling_study.predict.fitting import Fit, Measured, fit, source_weights
from scaling_study.predict.footprint import fits, memory_gib
from scaling_study.predict.library import Estimate, Library, ParameterSet
from scaling_study.predict.parameters import KNOBS, Constants
from scaling_study.predict.predictions import families, step_times
from scaling_study.predict.rows import read_rows, setup_of
from scaling_study.predict.scores import balanced_accuracy, choice_loss, score
from scaling_study.predict.setup import Setup
from scaling_study.spec import Outcome

#: Families without measured rows, and the measured one whose shared constants and intervals they take, widened.
_UNMEASURED = {"v100": "a100", "h200": "h100"}
_WIDENED = 1.6
_NINETY = 1.645


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
        reach = float(np.exp(_NINETY * knob.spread)) if knob.by_family else 1.0
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
        reach = float(np.exp(_NINETY * spread))
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


def run_calibrate(library: Library, judged_path: Path | None, leave_one_out: bool, write: bool) -> None:
    """The verb: print constants and errors; write the parameter sets if asked to."""
    training = read_runs(library.folder / "runs.csv", library)
    judged = read_runs(judged_path, library) if judged_path else training
    whole = fit_runs(training)
    for line in constant_lines(whole, sorted({run.setup.part.family for run in training})):
        click.echo(line)
    for line in benchmark_lines(compare(library, whole.constants)):
        click.echo(line)
    if not (leave_one_out or write):
        _print_fitted(judged, whole)
        return
    left = leave_each_out(training, judged, whole)
    for line in left_lines(left, judged):
        click.echo(line)
    if write:
        write_sets(parameter_sets(whole, left), library.folder)


def constant_lines(whole: Fit, measured: Sequence[str]) -> list[str]:
    """Every constant with its interval, its prior, what it means and where the prior comes from."""
    spreads = np.sqrt(np.diag(whole.covariance))
    lines = [f"{'constant':30}{'value':>10}{'90% interval':>22}{'prior':>9}  meaning [source of the prior]"]
    for name, logarithm, spread in zip(whole.names, whole.logarithms, spreads, strict=True):
        base, _, family = name.partition("@")
        knob, value, reach = KNOBS[base], float(np.exp(logarithm)), float(np.exp(_NINETY * spread))
        before = knob.by_family.get(family, knob.value)
        interval = f"{value / reach:.4g} .. {value * reach:.4g}"
        unit = f" ({knob.unit})" if knob.unit else ""
        lines.append(f"{name:30}{value:10.4g}{interval:>22}{before:9.4g}  {knob.meaning}{unit} [{knob.source}]")
    lines.append(f"fitted on the rows of {', '.join(measured)} in config/calibration/runs.csv")
    return lines


def benchmark_lines(found: Sequence[Comparison]) -> list[str]:
    """How the fitted constants meet micro-benchmarks."""
    lines = ["", f"{'micro-benchmark (not fitted on)':64}{'rows':>6}{'predicted / measured':>22}{'spread %':>10}"]
    return lines + [f"{one.what:64}{one.rows:6}{one.ratio:22.2f}{one.spread_percent:10.1f}" for one in found]


def _print_fitted(judged: Sequence[Run], whole: Fit) -> None:
    click.echo(f"\n{'source':32}{'rows':>6}{'fitted MAPE %':>15}")
    for source in sorted({run.source for run in judged if run.seconds is not None}):
        found = score(*predicted([run for run in judged if run.source == source], whole.constants))
        click.echo(f"{source:32}{found.rows:6}{found.mape:15.1f}")


def left_lines(left: Sequence[Left], judged: Sequence[Run]) -> list[str]:
    """Errors per source, fitted and left out; what choosing a layout costs; running out of memory."""
    titles = f"{'rows':>6}{'fitted MAPE %':>15}{'left-out MAPE %':>17}{'bias %':>8}{'rank':>7}"
    lines = ["", f"{'source':32}{titles}{'choice loss %, fitted/left out':>32}"]
    fitted_errors, unseen_errors = [], []
    for part in left:
        fitted, unseen = score(part.fitted, part.measured), score(part.unseen, part.measured)
        fitted_errors.append(fitted.mape)
        unseen_errors.append(unseen.mape)
        groups = [run.group for run in part.rows]
        costs = [choice_loss(groups, prediction, part.measured) for prediction in (part.fitted, part.unseen)]
        cost = "" if None in costs else " / ".join(f"{100 * float(value or 0):.1f}" for value in costs)
        rank = "" if unseen.rank is None else f"{unseen.rank:.3f}"
        errors = f"{fitted.rows:6}{fitted.mape:15.1f}{unseen.mape:17.1f}{unseen.bias:+8.1f}"
        lines.append(f"{part.source:32}{errors}{rank:>7}{cost:>32}")
    lines.append(f"{'mean over sources':38}{np.mean(fitted_errors):15.1f}{np.mean(unseen_errors):17.1f}")
    for source in sorted({run.source for run in judged}):
        accuracy = memory_accuracy([run for run in judged if run.source == source])
        if accuracy is not None:
            lines.append(f"{source}: balanced accuracy of ok against out of memory {accuracy:.3f} (nothing fitted)")
    return lines
