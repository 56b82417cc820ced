"""HST figure 1: as training spreads over more GPUs, energy buys fewer tokens and more communication is exposed."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import doubling_axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import COLUMN_WIDTH, PURPLE, VERMILLION

CLAIMS = ("dp-power-linear", "dp-majority-exposed")
SERIES = ("model", "hardware", "tp", "pp", "sequence_length")
BOX = panels.Box(198, 74)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Tokens per joule above, the exposed share of an iteration below, against the number of GPUs."""
    frame = rows.one_series(rows.chosen(records), SERIES, context)
    body = alt.vconcat(
        _panel(frame, "tokens_per_joule", "Power efficiency", "tokens per joule", PURPLE, "~s", None),
        _panel(frame, "exposed_fraction", "Exposed communication", "share of an iteration", VERMILLION, "~%", context),
        spacing=34,
        bounds="flush",
    )
    return panels.finished(body, records, context, CLAIMS, COLUMN_WIDTH)


def _panel(
    frame: pl.DataFrame, metric: str, title: str, unit: str, color: str, form: str, context: FigureContext | None
) -> alt.LayerChart:
    """One panel; the lower one, which gets the context, carries the axis title."""
    x = doubling_axis("gpus", frame["gpus"], context.devices if context else None)
    y = value_axis(metric, unit, from_zero(frame[metric]), format=form, tickCount=4)
    layers = [*panels.marks(frame, x, y, color), *panels.crosses(frame, x, y, BOX)]
    return panels.metric_panel(layers, frame, metric, title, BOX)
