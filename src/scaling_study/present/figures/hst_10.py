"""HST figure 10: two iterations, one whose computation hides its communication, one whose does not."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.errors import UserError
from scaling_study.present import panels
from scaling_study.present.axes import Axis, Range, row_axis, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, ORANGE, PAGE_WIDTH, VERMILLION

TITLE = "Communication hidden and exposed"
CLAIMS = ("context-length",)
METRICS = ("exposed_fraction", "exposed_communication_s")
ROWS = {"compute": ("compute", BLUE), "communication": ("communication", ORANGE), "exposed": ("exposed", VERMILLION)}
BOX = panels.Box(430, 44)
NOTE = "One iteration of one GPU; every bar is a group of a layer's operations, or a collective."


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """One panel a timeline: what computes, what communicates, and what of that nothing hides."""
    if not context.timelines:
        raise UserError("it shows timelines, and none is given", where=context.figure, remedy="Name runs in the study.")
    parts = []
    for letter, (run, spans) in zip("abcdefgh", context.timelines.items(), strict=False):
        parts.append(_panel(spans, f"({letter}) {_said(records.filter(pl.col('run_id') == run), context)}"))
    body = alt.vconcat(*parts, spacing=44, bounds="flush")
    shown = records.filter(pl.col("run_id").is_in(list(context.timelines)))
    return panels.finished(body, TITLE, shown, context, claims=CLAIMS, metrics=METRICS, width=PAGE_WIDTH, note=NOTE)


def _said(record: pl.DataFrame, context: FigureContext) -> str:
    """Model, scale, and how much of an iteration is exposed."""
    row = record.row(0, named=True)
    size = row["model"].rpartition("-")[2].upper()
    tokens = row["global_batch"] // row["dp"] * row["sequence_length"]
    said = f"{size} on {row['gpus']:,} {context.devices}, {tokens:,} tokens each"
    share = row["exposed_fraction"]
    return said if share is None else f"{said}: {share:.1%} of the iteration is exposed"


def _panel(spans: pl.DataFrame, title: str) -> alt.LayerChart:
    first = spans.filter(pl.col("rank") == spans["rank"].min())
    milliseconds = (pl.col("start_ns", "end_ns") / 1e6).name.map(lambda name: name.replace("_ns", "_ms"))
    frame = first.with_columns(milliseconds).sort("start_ns", "end_ns", "stream")
    end = float(frame["end_ms"].max() or 1.0)  # type: ignore[arg-type]
    x = value_axis("start_ms", "ms", Range(0.0, end), format=",d", tickCount=8)
    y = row_axis("row", [name for name, _ in ROWS.values()], None)
    layers = [_bars(frame, kind, index, color, x, y) for index, (kind, (_, color)) in enumerate(ROWS.items())]
    return panels.panel(layers, title, BOX)


def _bars(frame: pl.DataFrame, kind: str, index: int, color: str, x: Axis, y: Axis) -> alt.Chart:
    part = frame.filter(pl.col("kind") == kind).with_columns(low=pl.lit(index - 0.36), high=pl.lit(index + 0.36))
    base = panels.chart(part, "start_ms", "end_ms", "low", "high", "op")
    edge = 0 if kind == "exposed" else 0.25
    bars: alt.Chart = base.mark_rect(color=color, stroke="white", strokeWidth=edge)
    return bars.encode(x=x.x(), x2=alt.X2("end_ms"), y=y.y("low"), y2=alt.Y2("high"))
