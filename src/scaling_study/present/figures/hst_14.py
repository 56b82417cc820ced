"""HST figure 14: layouts of model parallelism on the oldest generation of hardware."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import layouts, panels, rows
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import COLUMN_WIDTH

TITLE = "Layouts on the oldest generation"
CLAIMS = ("generation-v100",)
VARYING = ("dp", "tp", "pp")
WIDTHS = (74, 92)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Throughput and exposed communication side by side, one row a layout."""
    drawn = layouts.ordered(rows.one_series(rows.with_spread(rows.chosen(records)), VARYING, context))
    parts = (
        layouts.throughput(drawn, "(a) Throughput", WIDTHS[0]),
        layouts.exposed(drawn, "(b) Exposed communication", WIDTHS[1]),
    )
    body = alt.hconcat(*parts, spacing=38, bounds="flush")
    note = layouts.NOTE.format(bars=rows.bars(records))
    return panels.finished(
        body, TITLE, records, context, claims=CLAIMS, metrics=layouts.METRICS, width=COLUMN_WIDTH, note=note
    )
