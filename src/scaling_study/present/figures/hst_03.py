"""HST figure 3: bandwidth of one communication primitive by message size, a line a number of nodes."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, binary_size, log_axis, logarithmic, size_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.rows import BANDWIDTH, BANDWIDTH_HIGH, BANDWIDTH_LOW
from scaling_study.present.theme import COLUMN_WIDTH, GREY, ramp
from scaling_study.spec import Outcome, Provenance

CLAIMS = ("collective-scaling",)
SIZE = "message_bytes"
VARYING = ("nodes", "gpus", SIZE)
BOX = panels.Box(204, 122)
ROOM = 0.1
NOTE = "Bus bandwidth as in nccl-tests."


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Bus bandwidth against message size, both logarithmic; the op is in the title."""
    frame = rows.with_bandwidth_spread(rows.one_series(rows.chosen(records), VARYING, context))
    x = size_axis(SIZE, frame[SIZE], "message size", room=ROOM)
    barred = frame.filter(pl.col("provenance") == Provenance.MEASURED)
    span = logarithmic(frame[BANDWIDTH], barred[BANDWIDTH_LOW], barred[BANDWIDTH_HIGH])
    y = log_axis(BANDWIDTH, "GB/s", span, format=",~r")
    unit = "ranks" if context.device == "rank" else "nodes"
    layers = [*_lines(frame, x, y, unit), *_crosses(frame, x, y, unit)]
    title = f"{frame['op'][0].replace('_', '-').capitalize()} bandwidth"
    body = alt.vconcat(panels.metric_panel(layers, frame, BANDWIDTH, "Bus bandwidth", BOX))
    return panels.finished(
        body,
        title,
        records,
        context,
        claims=CLAIMS,
        metrics=(BANDWIDTH,),
        width=COLUMN_WIDTH,
        note=f"{NOTE} {_spreads(frame)}",
    )


def _spreads(frame: pl.DataFrame) -> str:
    """What bars span, where there are some, and how far predictions may be off."""
    measured, found = frame.filter(pl.col("provenance") == Provenance.MEASURED), []
    if not measured.is_empty():
        found.append(f"Bars: {rows.bars_of_calls(measured)}.")
    predicted = panels.known(frame, "call_s_high").sort(SIZE)
    spreads = predicted.group_by(
        ((pl.col("call_s_low") / pl.col("call_s")).round(3)).alias("low"),
        ((pl.col("call_s_high") / pl.col("call_s")).round(3)).alias("high"),
        maintain_order=True,
    ).agg(pl.col(SIZE).min())
    said = [
        f"{low:.2f} to {high:.2f} times as long from {binary_size(size)}" for low, high, size in spreads.iter_rows()
    ]
    if said:
        found.append(f"Four of five calls measured elsewhere took, against what is predicted, {', '.join(said)}.")
    return " ".join(found)


def _lines(frame: pl.DataFrame, x: Axis, y: Axis, unit: str) -> list[alt.Chart]:
    """A line a number of nodes, the darker the more; the numbers stand where the lines begin and differ most."""
    layers, starts = [], []
    counts = frame["nodes"].unique().sort().to_list()
    for nodes, color in zip(counts, ramp(len(counts)), strict=True):
        line = frame.filter(pl.col("nodes") == nodes)
        measured = line.filter(pl.col("provenance") == Provenance.MEASURED)
        layers += panels.spread(measured, x, y, BANDWIDTH_LOW, BANDWIDTH_HIGH, color)
        layers += panels.marks(line, x, y, color)
        first = panels.known(line, BANDWIDTH).sort(x.column, "provenance")[BANDWIDTH].head(1)
        starts += [(f"{nodes:,}", value, color) for value in first]
    if starts:
        starts.append((unit, max(value for _, value, _ in starts), GREY))
    place = x.span.fraction(x.options["values"][0]) * BOX.width - 6
    return [*layers, *panels.end_labels(starts, y, BOX, before=round(place, 2))]


def _crosses(frame: pl.DataFrame, x: Axis, y: Axis, unit: str) -> list[alt.Chart]:
    """One cross a message size, beside it the numbers of nodes that left no bandwidth and how they ended."""
    nodes = pl.col("nodes").cast(pl.String).unique(maintain_order=True).str.join(", ")
    ended = (
        frame.filter(pl.col("outcome") != Outcome.OK)
        .sort("nodes", "provenance")
        .group_by(x.column, "outcome", maintain_order=True)
        .agg("provenance", said=nodes + f" {unit}: " + pl.col("outcome").first().str.replace_all("_", " "))
        .group_by(x.column, maintain_order=True)
        .agg(pl.col("outcome", "provenance").first(), pl.col("said").str.join("; "))
    )
    return panels.crosses(ended, x, y, BOX, beside=frame, said="said")
