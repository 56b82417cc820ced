"""HST figure 1: as training spreads over more GPUs, energy buys fewer tokens and more communication is exposed."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, doubling_axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import COLUMN_WIDTH, PURPLE, VERMILLION

TITLE = "Power efficiency and exposed communication"
CLAIMS = ("dp-power-linear", "dp-majority-exposed")
METRICS = ("tokens_per_joule", "exposed_fraction")
VARYING = ("nodes", "gpus", "dp", "global_batch")
BOX = panels.Box(202, 68)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Tokens per joule above, the exposed share of an iteration below, against the number of GPUs."""
    frame = rows.one_series(rows.chosen(records), VARYING, context)
    energy = value_axis("tokens_per_joule", "tokens per joule", from_zero(frame["tokens_per_joule"]), tickCount=4)
    exposed = value_axis(
        "exposed_fraction", "share of an iteration", from_zero(frame["exposed_fraction"]), tickCount=4, format="~%"
    )
    parts = (
        _panel(frame, energy, "(a) Power efficiency", PURPLE, None),
        _panel(frame, exposed, "(b) Exposed communication", VERMILLION, context.devices),
    )
    body = alt.vconcat(*parts, spacing=36, bounds="flush")
    return panels.finished(body, TITLE, records, context, claims=CLAIMS, metrics=METRICS, width=COLUMN_WIDTH)


def _panel(frame: pl.DataFrame, y: Axis, title: str, color: str, x_title: str | None) -> alt.LayerChart:
    x = doubling_axis("gpus", frame["gpus"], x_title)
    layers = [*panels.marks(frame, x, y, color), *panels.crosses(frame, x, y, BOX)]
    return panels.metric_panel(layers, frame, y.column, title, BOX)
