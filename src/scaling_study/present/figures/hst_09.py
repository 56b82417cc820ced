"""HST figure 9: longer sequences give every rank more to compute for the same communication."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import doubling_axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.rows import HIGH, LOW, RATE
from scaling_study.present.theme import BLUE, GREEN, PAGE_WIDTH, PURPLE, VERMILLION

TITLE = "Scaling the sequence length"
CLAIMS = ("context-length",)
VARYING = ("sequence_length",)
METRICS = (RATE, "exposed_fraction", "mfu", "tokens_per_joule")
BOX = panels.Box(82, 94)
NOTE = "Bars in (a): {bars}."


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Throughput, exposed share, utilisation and tokens per joule against the tokens of a sequence."""
    frame = rows.one_series(rows.with_spread(rows.chosen(records)), VARYING, context)
    x = doubling_axis("sequence_length", frame["sequence_length"], "tokens a sequence")
    rate = value_axis(RATE, "words/s", from_zero(frame[RATE], frame[HIGH]))
    exposed = value_axis("exposed_fraction", "share of an iteration", from_zero(frame["exposed_fraction"]), format="~%")
    utilisation, mfu = panels.utilisation(frame, context)
    energy = value_axis("tokens_per_joule", "tokens per joule", from_zero(frame["tokens_per_joule"]), format=",~r")
    bars = panels.spread(frame, x, rate, LOW, HIGH, BLUE)
    parts = (
        panels.series(frame, x, rate, "(a) Throughput", BLUE, BOX, extra=bars),
        panels.series(frame, x, exposed, "(b) Exposed communication", VERMILLION, BOX),
        panels.series(frame, x, mfu, f"(c) {utilisation}", GREEN, BOX),
        panels.series(frame, x, energy, "(d) Power efficiency", PURPLE, BOX),
    )
    body = alt.hconcat(*parts, spacing=44, bounds="flush")
    note = f"{NOTE.format(bars=rows.bars(frame))} {panels.without_mfu(frame)}"
    return panels.finished(body, TITLE, records, context, claims=CLAIMS, metrics=METRICS, width=PAGE_WIDTH, note=note)
