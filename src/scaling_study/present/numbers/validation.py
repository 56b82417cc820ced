"""Of how well the performance model does on measurements that it was not fitted on."""

from __future__ import annotations

import polars as pl

from scaling_study.present.accuracy import (
    LABELS,
    MEASURED,
    UNSEEN,
    choice_loss,
    errors_by_source,
    memory_accuracy,
)
from scaling_study.present.numbers.core import Number, Value, hundredths, percent
from scaling_study.spec import Provenance

#: The source with many layouts of one model, timed or out of memory.
LAYOUTS = "hagemann2023_layouts"


def of_validation(table: pl.DataFrame) -> dict[str, Number]:
    """Errors over sources, what choosing by prediction costs, and how well memory is told."""
    errors, timed = errors_by_source(table), table.drop_nulls([MEASURED, UNSEEN])
    mean = {name: float(errors[name].mean() or 0.0) / 100 for name in ("fitted_mape", "unseen_mape")}  # type: ignore[arg-type]
    worst, best = (errors.sort("unseen_mape").row(index, named=True) for index in (-1, 0))
    largest = max(timed["gpus"].to_list())
    near = timed.select(((pl.col(UNSEEN) / pl.col(MEASURED) - 1).abs() <= 0.1).mean()).item()
    found: dict[str, tuple[Value, str]] = {
        "rows": (timed.height, f"{timed.height:,}"),
        "sources": (errors.height, str(errors.height)),
        "fitted": (mean["fitted_mape"], percent(mean["fitted_mape"])),
        "unseen": (mean["unseen_mape"], percent(mean["unseen_mape"])),
        "worst": (worst["unseen_mape"], f"{percent(worst['unseen_mape'] / 100)} ({LABELS[worst['source']]})"),
        "best": (best["unseen_mape"], f"{percent(best['unseen_mape'] / 100)} ({LABELS[best['source']]})"),
        "largest": (largest, f"{largest:,}"),
        "near": (near, percent(near)),
    }
    loss, memory = choice_loss(table, LAYOUTS), memory_accuracy(table, LAYOUTS)
    if loss is not None:
        found["choice_loss"] = (loss, percent(loss))
    if memory is not None:
        found["memory"] = (memory, hundredths(memory))
    kinds = (Provenance.PREDICTED.value, Provenance.REPORTED.value)
    return {
        f"validation.{name}": Number(text=text, value=value, runs=(), provenance=kinds)
        for name, (value, text) in found.items()
    }
