"""Of longer and longer sequences: what they do to throughput and to the share of exposed communication."""

from __future__ import annotations

import polars as pl

from scaling_study.present.numbers.compare import line_along, ran, rate_trend
from scaling_study.present.numbers.core import Number, Pad, listed, one_of, percent, quantity, trend
from scaling_study.present.rows import RATE

#: What is said of the way from the shortest to the longest sequence.
WAYS = {
    "compute": "compute_s",
    "communication": "communication_s",
    "exposed_share": "exposed_fraction",
}
ENDS = {"rate": (RATE, quantity), "exposed_share": ("exposed_fraction", percent)}


def of_sequences(frame: pl.DataFrame) -> dict[str, Number]:
    """From the shortest to the longest sequence."""
    line = line_along(ran(frame), "sequence_length")
    if line.height < 2:
        return {}
    pad, first, last = Pad("context", line), line.row(0, named=True), line.row(-1, named=True)
    pad.add("lengths", listed(line["sequence_length"]))
    pad.add("ranks", listed(line["gpus"]))
    pad.add("global_batch", one_of(line["global_batch"]))
    pad.add("rate_moves", rate_trend(line))
    for name, column in WAYS.items():
        pad.add(f"{name}_moves", trend(line[column].to_list()))
    for end, row in (("shortest", first), ("longest", last)):
        source = line.filter(run_id=row["run_id"])
        pad.add(end, row["sequence_length"], source=source)
        for name, (column, show) in ENDS.items():
            pad.add(f"{name}_{end}", row[column], show, source)
    return pad.numbers
