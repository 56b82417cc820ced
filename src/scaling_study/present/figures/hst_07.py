"""HST figure 7: a fixed global batch over more and more GPUs, each scale with its fastest layout."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows, scaling
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import PAGE_WIDTH, TIMES_SIGN

TITLE = "Scaling at a fixed global batch"
CLAIMS = ("fixed-batch-mfu", "fixed-batch-power")
VARYING = ("nodes", "gpus", "dp", "tp", "pp")
NOTE = f"Each scale with its fastest layout, in (b) tensor {TIMES_SIGN} pipeline"


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """The six panels of data-parallel scaling, of the fastest layout at each scale, which is named."""
    frame = rows.one_series(rows.chosen(records, rows.ACROSS_LAYOUTS), VARYING, context)
    return panels.finished(
        scaling.six_panels(rows.with_layout(frame), context, "layout"),
        TITLE,
        records,
        context,
        claims=CLAIMS,
        metrics=scaling.METRICS,
        width=PAGE_WIDTH,
        note=f"{NOTE}{rows.preference(frame)}. {scaling.note(frame)} {last_step(frame, context)}",
    )


def last_step(frame: pl.DataFrame, context: FigureContext) -> str:
    """What the last step in scale adds to throughput and to the power of all GPUs, of each provenance."""
    columns = {"throughput": "words_per_second", "power": "total_power_w"}
    frame = frame.with_columns(total_power_w=pl.col("power_w_per_gpu") * pl.col("gpus"))
    found = []
    for provenance in rows.provenances(frame):
        part = panels.known(frame, "words_per_second").filter(pl.col("provenance") == provenance)
        found.append(scaling.changes(part.sort("gpus").tail(2), context, columns, provenance))
    return " ".join(found)
