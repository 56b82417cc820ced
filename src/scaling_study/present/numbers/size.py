"""Of models of several sizes: times and rates of the least parallel layout, and whether another is faster."""

from __future__ import annotations

import polars as pl

from scaling_study.present.numbers.compare import gains, least_parallel, ran, rate_trend
from scaling_study.present.numbers.core import Number, Pad, in_order, joined, listed, percent, trend

#: What is said of the way from the smallest to the largest model.
WAYS = {
    "compute": "compute_s",
    "communication": "communication_s",
    "exposed": "exposed_communication_s",
}


def of_sizes(frame: pl.DataFrame) -> dict[str, Number]:
    """From the smallest to the largest model, whose names tell their sizes."""
    ok = ran(frame)
    models = in_order(ok["model"])
    if len(models) < 2:
        return {}
    line = pl.DataFrame([least_parallel(ok.filter(model=model)) for model in models], schema=ok.schema)
    pad = Pad("size", ok)
    pad.add("models", joined(models))
    pad.add("smallest", models[0])
    pad.add("largest", models[-1])
    pad.add("ranks", listed(ok["gpus"]))
    for name, column in WAYS.items():
        pad.add(f"{name}_moves", trend(line[column].to_list()), source=line)
    pad.add("rate_moves", rate_trend(line), source=line)
    for end, index in (("smallest", 0), ("largest", -1)):
        pad.add(f"exposed_share_{end}", line["exposed_fraction"][index], percent, line.filter(model=models[index]))
    pad.add("layouts", gains(ok, "model", "for", "models"))
    return pad.numbers
