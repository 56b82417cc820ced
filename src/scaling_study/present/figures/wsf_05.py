"""WSF figure 5: throughput and steadiness against scale, without and with pacing."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, theme
from scaling_study.present.axes import Axis, around, doubling_axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.coordination import CV, PACINGS, RATE, by_scale, paired
from scaling_study.present.theme import BLUE, GREEN, PAGE_WIDTH, VERMILLION
from scaling_study.spec import Pacing

TITLE = "What pacing changes"
CLAIMS = ("coordination-shape", "coordination-table")
METRICS = (RATE, CV)
COLORS = {Pacing.OFF: VERMILLION, Pacing.ADAPTIVE: BLUE}
BOX = panels.Box(112, 104)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Throughput, what pacing changes of it in pairs of runs, and the variation of iterations."""
    frame, changes = by_scale(records, *METRICS), paired(records)
    x = doubling_axis("gpus", frame["gpus"], context.devices)
    rate = value_axis(RATE, "words/s", from_zero(frame[RATE]))
    change = value_axis(
        "change", "change of throughput", around(changes["change_low"], changes["change_high"], pl.Series([0.0])),
        format="+.2~%",
    )  # fmt: skip
    variation = value_axis(CV, "CV of iteration time", from_zero(frame[f"{CV}_high"]), format="~g")
    in_pairs = [
        panels.level(0.0, change, "y"),
        *panels.spread(changes, x, change, "change_low", "change_high", GREEN),
        *panels.marks(changes, x, change, GREEN),
    ]
    parts = (
        panels.metric_panel(_lines(frame, x, rate, named=True), frame, RATE, "(a) Throughput", BOX),
        panels.metric_panel(in_pairs, changes, "change", "(b) Change by pacing", BOX),
        panels.metric_panel(_lines(frame, x, variation), frame, CV, "(c) Unsteadiness", BOX),
    )
    body = alt.hconcat(*parts, spacing=52, bounds="flush")
    note = (
        f"Medians of up to {max(frame['repeats'].to_list())} repeats, bars in (c) their whole range. (b): means over "
        f"pairs of runs, 95% intervals; {_said(changes)}."
    )
    return panels.finished(body, TITLE, records, context, claims=CLAIMS, metrics=METRICS, width=PAGE_WIDTH, note=note)


def _lines(frame: pl.DataFrame, x: Axis, y: Axis, *, named: bool = False) -> list[alt.Chart]:
    """A line without pacing and one with; names stand in the lower right corner, since the lines may coincide."""
    layers: list[alt.Chart] = []
    for place, (pacing, name) in enumerate(PACINGS.items()):
        part, color = frame.filter(pl.col("pacing") == pacing), COLORS[pacing]
        if y.column == CV:
            layers += panels.spread(part, x, y, f"{CV}_low", f"{CV}_high", color)
        layers += panels.marks(part, x, y, color)
        if named:
            corner = (BOX.width - 4, BOX.height - 17 + place * (theme.NOTE_SIZE + 2))
            layers.append(panels.words(name, corner, color=color, align="right"))
    return layers


def _said(changes: pl.DataFrame) -> str:
    """At how many scales the interval lies above zero, holds it, or lies below it."""
    helps = changes.filter(pl.col("change_low") > 0).height
    harms = changes.filter(pl.col("change_high") < 0).height
    return (
        f"pacing helps at {helps} of {changes.height} scales, costs at {harms}, "
        f"and makes no clear difference at {changes.height - helps - harms}"
    )
