"""How well predictions meet measurements."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of predicted over measured step time.

    Attributes:
        mape: mean of the absolute relative error, percent; `median` of it; `bias`: median of the signed one.
        rank: Spearman's correlation; None below three rows.
    """

    rows: int
    mape: float
    median: float
    bias: float
    rank: float | None


def score(predicted: Numbers, measured: Numbers) -> Score:
    """The errors of some rows."""
    error = 100 * (predicted / measured - 1)
    return Score(
        rows=len(error),
        mape=float(np.mean(np.abs(error))),
        median=float(np.median(np.abs(error))),
        bias=float(np.median(error)),
        rank=spearman(predicted, measured),
    )


def spearman(first: Numbers, second: Numbers) -> float | None:
    """Correlation of ranks, ties averaged; None below three values or where all are equal."""
    if len(first) < 3 or min(np.ptp(first), np.ptp(second)) == 0:
        return None
    return float(pl.DataFrame({"a": first, "b": second}).select(pl.corr("a", "b", method="spearman")).item())


def choice_loss(groups: Sequence[Hashable], predicted: Numbers, measured: Numbers) -> float | None:
    """Mean over groups of the throughput lost by the predicted best instead of the measured best; a fraction.

    Groups of one row hold no choice and are left out.
    """
    losses = []
    for group in set(groups):
        index = [i for i, other in enumerate(groups) if other == group]
        if len(index) > 1:
            chosen = index[int(np.argmin(predicted[index]))]
            losses.append(1 - float(np.min(measured[index])) / float(measured[chosen]))
    return float(np.mean(losses)) if losses else None


def balanced_accuracy(predicted: NDArray[np.bool_], true: NDArray[np.bool_]) -> float | None:
    """Mean of the shares of both kinds that are told right; None where one kind is absent."""
    if true.all() or not true.any():
        return None
    return float((predicted[true].mean() + (~predicted[~true]).mean()) / 2)
