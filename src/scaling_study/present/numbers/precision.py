"""Of precisions, which stand for generations of hardware where one machine has but one."""

from __future__ import annotations

import polars as pl

from scaling_study.present.numbers.compare import gains, line_along, ran, ranges
from scaling_study.present.numbers.core import Number, Pad, joined, listed, one_of, percent, quantity
from scaling_study.present.rows import ALONE, RATE


def of_precisions(frame: pl.DataFrame) -> dict[str, Number]:
    """Data parallelism alone at every precision, and whether a layout outruns it there."""
    ok = ran(frame)
    line = line_along(ok.filter(ALONE), "precision")
    if line.height < 2:
        return {}
    alone = line.sort(RATE, "run_id", descending=[True, False]).to_dicts()
    pad, best = Pad("precision", ok), alone[0]
    pad.add("names", listed(ok["precision"]))
    pad.add("model", one_of(ok["model"]))
    pad.add("ranks", listed(ok["gpus"]))
    pad.add("fastest", best["precision"])
    pad.add("fastest_rate", best[RATE], quantity)
    others = [
        f"{row['precision']} reaches {percent(row[RATE] / best[RATE])} ({ranges(row, best)})" for row in alone[1:]
    ]
    pad.add("others", joined(others))
    pad.add("layouts", gains(ok, "precision", "in", "precisions"))
    exposed = zip(line["exposed_fraction"], line["precision"], strict=True)
    pad.add("exposed_shares", joined([f"{percent(share)} in {name}" for share, name in exposed]))
    return pad.numbers
