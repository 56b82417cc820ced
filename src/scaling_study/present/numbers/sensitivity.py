"""Of what a predicted change hangs on, and what would have to be true for it to be the printed one."""

from __future__ import annotations

import polars as pl

from scaling_study.present.numbers.core import Number, joined, quantity
from scaling_study.present.numbers.predicted import signed
from scaling_study.spec import Provenance

#: How many constants are named.
NAMED = 3


def of_sensitivity(table: pl.DataFrame) -> dict[str, Number]:
    """Of each sweep: the constants that move its change most, and the values that would give the printed one."""
    found: dict[str, Number] = {}
    for (sweep, _), part in table.group_by("sweep", "metric", maintain_order=True):
        first = part.row(0, named=True)
        ends = [first["change_at_low"], first["change_at_high"]]
        needed = part.drop_nulls("needed").head(NAMED).iter_rows(named=True)
        said = [f"{quantity(row['needed'])} in place of {quantity(row['value'])} ({row['meaning']})" for row in needed]
        texts = {
            "most": str(first["meaning"]),
            "range": f"{signed(max(ends))} to {signed(min(ends))}",
            "needed": "; ".join(said) or "no value of a single constant within a factor of twenty",
            "interval": _inside(part),
        }
        for name, text in texts.items():
            key = f"sensitivity.{sweep}.{name}"
            found[key] = Number(text=text, value=text, runs=(), provenance=(Provenance.PREDICTED.value,))
    return found


def _inside(part: pl.DataFrame) -> str:
    """Which constants reach the printed change inside their interval."""
    reach = part.filter((pl.col("needed") >= pl.col("low")) & (pl.col("needed") <= pl.col("high")))
    return joined([str(meaning) for meaning in reach["meaning"]]) or "none"
