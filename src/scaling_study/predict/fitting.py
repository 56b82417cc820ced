"""Fitting constants: least squares on the logarithm of step times, robust to outliers, held by priors.

The unknowns are logarithms of the constants; a constant that differs by family is an unknown for each. Residuals are
Cauchy's, so a row that is far off hardly pulls; every source weighs the same whatever its number of rows (up to a
cap), and each unknown has a residual of its own that pulls it to its prior. Gauss-Newton with Levenberg's damping;
numpy only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from scaling_study.predict.batch import Array, Batch
from scaling_study.predict.fast import iteration
from scaling_study.predict.parameters import KNOBS, Constants

_NOISE = 0.06  # scale of a row's logarithm: beyond it a residual counts less and less
_ROWS_OF_A_SOURCE = 60  # a source with more rows weighs as much as this many
_STEP = 1e-4
_ROUNDS = 40
_CONVERGED = 1e-5


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Setups of one family with what was measured.

    Attributes:
        step_time_s: of each setup.
        weight: of each row's residual.
    """

    family: str
    batch: Batch
    step_time_s: Array
    weight: Array


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """Fitted unknowns: their names (`constant` or `constant@family`), logarithms, and their covariance."""

    names: tuple[str, ...]
    logarithms: Array
    covariance: Array

    def constants(self, family: str) -> Constants:
        """The constants of a family; one whose rates were not fitted takes its priors for them."""
        return constants_of(self.names, self.logarithms, family)


def source_weights(sources: Sequence[str]) -> Array:
    """Weight of each row's residual, so that sources weigh the same."""
    counts = {source: sources.count(source) for source in set(sources)}
    return np.array([(min(counts[s], _ROWS_OF_A_SOURCE) / counts[s]) ** 0.5 for s in sources])


def unknowns(families: Sequence[str]) -> tuple[tuple[str, ...], Array, Array]:
    """Names, prior means and prior spreads of the logarithms of the unknowns."""
    names, means, spreads = [], [], []
    for name, knob in KNOBS.items():
        for family in families if knob.by_family else ("",):
            names.append(f"{name}@{family}" if family else name)
            means.append(np.log(knob.by_family.get(family, knob.value)))
            spreads.append(knob.spread)
    return tuple(names), np.array(means), np.array(spreads)


def constants_of(names: Sequence[str], logarithms: Array, family: str) -> Constants:
    """The constants of a family from the unknowns."""
    known = dict(zip(names, np.exp(logarithms).tolist(), strict=True))

    def value(name: str) -> float:
        knob = KNOBS[name]
        before = knob.by_family.get(family, knob.value)
        return float(known.get(f"{name}@{family}", known.get(name, before)))

    return Constants(**{name: value(name) for name in KNOBS})


def fit(parts: Sequence[Measured]) -> Fit:
    """Fit all constants to measured step times."""
    names, means, spreads = unknowns([part.family for part in parts])

    def residuals(unknown: Array) -> Array:
        errors = [_errors(part, constants_of(names, unknown, part.family)) for part in parts]
        return np.concatenate([*errors, (unknown - means) / spreads])

    best, jacobian = _minimise(residuals, means, spreads)
    covariance: Array = np.linalg.inv(jacobian.T @ jacobian).astype(np.float64)
    return Fit(names=names, logarithms=best, covariance=covariance)


def _errors(part: Measured, constants: Constants) -> Array:
    """Square roots of Cauchy's loss of the logarithm of the step time, weighted."""
    error = np.log(iteration(part.batch, constants, part.family).total / part.step_time_s) / _NOISE
    robust: Array = np.sign(error) * np.sqrt(np.log1p(error**2)) * part.weight
    return robust


def _minimise(residuals: Callable[[Array], Array], start: Array, scale: Array) -> tuple[Array, Array]:
    """The point of least squares and the Jacobian there."""
    point, value, damping = start, residuals(start), 1e-2
    jacobian = _jacobian(residuals, point, value)
    for _ in range(_ROUNDS):
        normal = jacobian.T @ jacobian
        step = np.linalg.solve(normal + damping * np.diag(1 / scale**2), -jacobian.T @ value)
        trial = residuals(point + step)
        gain = value @ value - trial @ trial
        if gain <= 0:
            damping *= 4
            if damping > 1e6:
                break
            continue
        point, value, damping = point + step, trial, max(damping / 3, 1e-6)
        jacobian = _jacobian(residuals, point, value)
        if gain < _CONVERGED * (value @ value):
            break
    return point, jacobian


def _jacobian(residuals: Callable[[Array], Array], point: Array, value: Array) -> Array:
    columns = []
    for index in range(len(point)):
        moved = point.copy()
        moved[index] += _STEP
        columns.append((residuals(moved) - value) / _STEP)
    return np.array(columns).T
