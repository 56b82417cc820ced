"""Setups predicted by the parameter sets of a library: time, memory, outcome, interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from scaling_study.predict.batch import Array, batch_of
from scaling_study.predict.fast import iteration
from scaling_study.predict.footprint import fits, memory_gib
from scaling_study.predict.library import Library
from scaling_study.predict.parameters import Constants
from scaling_study.predict.setup import Setup
from scaling_study.roofline import model_flops_per_token
from scaling_study.spec import Outcome


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a setup would take.

    Attributes:
        step_time_s: of an iteration; `low_s` and `high_s` hold the measured one in 80% of unseen sources' rows.
        mfu: fraction of the dense peak, recomputation not counted.
        memory_gib: peak that PyTorch reserves on the fullest GPU.
        outcome: `ok` or `out_of_memory`.
        extrapolated: the part's constants have no measured ground.
    """

    step_time_s: float
    low_s: float
    high_s: float
    mfu: float
    memory_gib: float
    outcome: Outcome
    extrapolated: bool


def families(setups: Sequence[Setup]) -> dict[str, list[int]]:
    """Indices of the setups of each family of parts."""
    found: dict[str, list[int]] = {}
    for index, setup in enumerate(setups):
        found.setdefault(setup.part.family, []).append(index)
    return found


def step_times(setups: Sequence[Setup], constants: Callable[[str], Constants]) -> Array:
    """Seconds of an iteration of each setup, by the constants of its family."""
    seconds = np.zeros(len(setups))
    for family, index in families(setups).items():
        seconds[index] = iteration(batch_of([setups[i] for i in index]), constants(family), family).total
    return seconds


def mfu(setup: Setup, seconds: float) -> float:
    """Fraction of the dense peak that an iteration of so many seconds makes use of."""
    flops = model_flops_per_token(setup.decoder, setup.sequence_length) * setup.tokens
    return flops / (seconds * setup.part.peak_tflops * 1e12 * setup.gpus)


def predict(setups: Sequence[Setup], library: Library) -> list[Prediction]:
    """Predict every setup, in order."""
    out: dict[int, Prediction] = {}
    for family, index in families(setups).items():
        known, mine = library.parameter_set(family), [setups[i] for i in index]
        batch = batch_of(mine)
        seconds = iteration(batch, known.values(), family).total
        reserved = memory_gib(batch)
        room = fits(batch, reserved)
        for place, setup, time, memory, ok in zip(index, mine, seconds, reserved, room, strict=True):
            out[place] = Prediction(
                step_time_s=float(time),
                low_s=float(time) * known.error_low,
                high_s=float(time) * known.error_high,
                mfu=mfu(setup, float(time)),
                memory_gib=float(memory),
                outcome=Outcome.OK if ok else Outcome.OUT_OF_MEMORY,
                extrapolated=known.extrapolated,
            )
    return [out[i] for i in range(len(setups))]
