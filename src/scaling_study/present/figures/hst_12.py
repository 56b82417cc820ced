"""HST figure 12: what a larger data-parallel size saves of each GPU's memory."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import doubling_axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, COLUMN_WIDTH

TITLE = "Memory and the data-parallel size"
CLAIMS = ("memory-sharding",)
VARYING = ("nodes", "gpus", "dp", "global_batch")
BOX = panels.Box(202, 84)
NOTE = (
    "Peak of the fullest rank; grey: a perfect split, in inverse proportion to the size. At size 1 nothing is sharded."
)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Peak memory of the fullest rank against the data-parallel size, with the line of a perfect split."""
    frame = with_split(rows.one_series(rows.chosen(records), VARYING, context))
    x = doubling_axis("dp", frame["dp"], f"data-parallel size ({context.devices})")
    y = value_axis("peak_memory_gib", f"GiB per {context.device}", from_zero(frame["peak_memory_gib"]), format=",f")
    layers = [
        *panels.guide(frame, x, y, "split_gib"),
        *panels.marks(frame, x, y, BLUE),
        *panels.crosses(frame, x, y, BOX),
    ]
    body = alt.vconcat(panels.metric_panel(layers, frame, "peak_memory_gib", "Peak memory", BOX))
    return panels.finished(
        body, TITLE, records, context, claims=CLAIMS, metrics=("peak_memory_gib",), width=COLUMN_WIDTH, note=NOTE
    )


def with_split(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds `split_gib`: the memory at the smallest size of a provenance, divided by how much larger the size is."""
    first = (
        panels.known(frame, "peak_memory_gib")
        .sort("dp")
        .group_by("provenance", maintain_order=True)
        .agg(whole=pl.col("peak_memory_gib").first() * pl.col("dp").first(), smallest=pl.col("dp").first())
    )
    joined = frame.join(first, on="provenance", how="left", maintain_order="left")
    split = pl.when(pl.col("dp") >= pl.col("smallest")).then(pl.col("whole") / pl.col("dp"))
    return joined.with_columns(split_gib=split).drop("whole", "smallest")
