"""HST figure 4: data-parallel scaling at a constant local batch, from throughput to its causes and its cost."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows, scaling
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import PAGE_WIDTH

TITLE = "Scaling data parallelism"
CLAIMS = (
    "dp-throughput-drop",
    "dp-power-drop",
    "dp-compute-constant",
    "dp-power-linear",
    "dp-majority-exposed",
    "small-scale-extrapolation",
)
VARYING = ("nodes", "gpus", "dp", "global_batch")


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Six panels: global and local throughput, times of an iteration; utilisation, power, tokens per joule."""
    frame = rows.one_series(rows.chosen(records), VARYING, context)
    return panels.finished(
        scaling.six_panels(frame, context),
        TITLE,
        records,
        context,
        claims=CLAIMS,
        metrics=scaling.METRICS,
        width=PAGE_WIDTH,
        note=scaling.note(frame),
    )
