"""HST figure 11: where data parallelism alone computes little or communicates much, more layouts are viable."""

from __future__ import annotations

import altair as alt
import msgspec
import polars as pl

from scaling_study.present import layouts, panels, rows
from scaling_study.present.axes import Axis, around, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, FAINT, GREEN, MARKS, PAGE_WIDTH, PURPLE, VERMILLION
from scaling_study.spec import Outcome

TITLE = "Viable layouts of model parallelism"
CLAIMS = ("mp-more-viable",)
VARYING = ("dp", "tp", "pp")
METRICS = (*layouts.METRICS, "mfu", "tokens_per_joule")
WIDTH = 94
NOTE = "Each layout with its fastest micro-batch; bars: {bars}."


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Four panels with one row a layout; layouts that beat data parallelism alone are in colour."""
    frame = layouts.with_relative(rows.one_series(rows.with_spread(rows.chosen(records)), VARYING, context))
    drawn = layouts.ordered(frame)
    utilisation, mfu = panels.utilisation(frame, context)
    energy = value_axis("tokens_per_joule", "tokens per joule", from_zero(frame["tokens_per_joule"]), format=",~r")
    parts = (
        _panel(drawn, _rate(drawn), BLUE, "(a) Throughput"),
        _panel(drawn, drawn.exposed, VERMILLION, "(b) Exposed communication"),
        _panel(drawn, mfu, GREEN, f"(c) {utilisation}"),
        _panel(drawn, energy, PURPLE, "(d) Power efficiency"),
    )
    body = alt.hconcat(*parts, spacing=28, bounds="flush")
    note = f"{NOTE.format(bars=rows.bars(records))} {counts(frame)} {panels.without_mfu(frame)}"
    return panels.finished(body, TITLE, records, context, claims=CLAIMS, metrics=METRICS, width=PAGE_WIDTH, note=note)


def counts(frame: pl.DataFrame) -> str:
    """How many layouts beat data parallelism alone, of each provenance, or why that is not known."""
    found, missing = [], []
    for provenance in rows.provenances(frame):
        part, glyph = frame.filter(pl.col("provenance") == provenance), MARKS[provenance].glyph
        others, ends = part.filter(~rows.ALONE), part.filter(rows.ALONE)["outcome"].to_list()
        if ends == [Outcome.OK]:
            found.append(f"{others['faster'].sum()} of {others.height} other layouts ({glyph})")
        else:
            why = f"ended {rows.outcome_words(ends[0])}" if ends else "is not among the runs"
            missing.append(f"No baseline ({glyph}): data parallelism alone {why}.")
    beaten = f"Faster than data parallelism alone (dotted), in colour: {', '.join(found)}."
    return " ".join([beaten] * bool(found) + missing)


def _rate(drawn: layouts.Layouts) -> Axis:
    """Throughput relative to the baseline; absolute where no provenance has one."""
    ratios = [drawn.frame[name] for name in layouts.RELATIVE]
    if not ratios[0].count():
        return drawn.rate
    title = f"words/s relative to {layouts.name_of(1, 1)}"
    return value_axis("relative", title, around(*ratios, pl.Series([1.0])), format="~%")


def _panel(drawn: layouts.Layouts, x: Axis, color: str, title: str) -> alt.LayerChart:
    first = x.column in ("relative", rows.RATE)
    x = msgspec.structs.replace(x, options={**x.options, "tickCount": 4, "labelSeparation": 4})
    y = layouts.axis(drawn, labelled=first)
    low, high = (rows.LOW, rows.HIGH) if x.column == rows.RATE else tuple(layouts.RELATIVE)[1:]
    alone = panels.known(drawn.frame, x.column).filter(rows.ALONE)[x.column]
    layers = [panels.level(value, x, "x") for value in alone.head(1)]
    faster = pl.col("faster").fill_null(not drawn.frame["faster"].count())
    for part, shade in ((drawn.frame.filter(~faster), FAINT), (drawn.frame.filter(faster), color)):
        layers += panels.spread(part, x, y, low, high, shade, along="x") if first else []
        layers += panels.marks(part, x, y, shade, line=False)
    layers += panels.crossed_rows(drawn.frame, y, label=first)
    source = rows.RATE if first else x.column
    return panels.metric_panel(layers, drawn.frame, source, title, panels.Box(WIDTH, drawn.height))
