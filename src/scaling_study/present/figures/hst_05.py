"""HST figure 5: layouts of model parallelism at a fixed global batch, and what exposed communication costs them."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, around, from_zero, row_axis, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, GREEN, MARKS, PAGE_WIDTH, VERMILLION

TITLE = "Layouts of model parallelism"
CLAIMS = ("mp-beats-dp-h100", "mp-beats-dp-a100", "exposed-correlation", "mp-across-nodes")
SERIES = ("model", "gpus", "sequence_length")
NOTE = (
    "Each layout with its fastest micro-batch; bars: 5th to 95th percentile of iterations; "
    "dotted: data parallelism alone (1 × 1)."
)
WIDTH, ROW_HEIGHT, LEAST_HEIGHT = 132, 11.5, 96
EXPOSED = "exposed_communication_s"


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """One row of three panels a hardware: throughput and exposed communication by layout, one against the other."""
    frame = rows.one_series(rows.with_spread(rows.chosen(records)), SERIES, context)
    parts = frame.partition_by("hardware", maintain_order=True)
    many = len(parts) > 1
    body = alt.vconcat(*(_hardware(part, f", {part['hardware'][0].upper()}" if many else "") for part in parts))
    return panels.finished(body, TITLE, records, context, claims=CLAIMS, width=PAGE_WIDTH, note=NOTE)


def _hardware(frame: pl.DataFrame, where: str) -> alt.HConcatChart:
    layouts = frame.select("tp", "pp", total=pl.col("tp") * pl.col("pp")).unique().sort("total", "tp", "pp")
    frame = frame.join(layouts.with_row_index("row").drop("total"), on=["tp", "pp"], maintain_order="left")
    names = [f"{tp} × {pp}" for tp, pp in layouts.select("tp", "pp").iter_rows()]
    box = panels.Box(WIDTH, max(LEAST_HEIGHT, ROW_HEIGHT * len(names)))
    y = row_axis("row", names, "tensor × pipeline degree")
    bare = row_axis("row", ["" for _ in names], None)
    rate = value_axis(
        "words_per_second",
        "words/s",
        around(frame["words_per_second_low"], frame["words_per_second_high"], frame["words_per_second"]),
    )
    exposed = value_axis(EXPOSED, "s per iteration", from_zero(frame[EXPOSED]), format="~g")
    left = alt.hconcat(
        _by_layout(frame, rate, y, BLUE, f"(a) Throughput{where}", box),
        _by_layout(frame, exposed, bare, VERMILLION, f"(b) Exposed communication{where}", box),
        spacing=14,
        bounds="flush",
    )
    return alt.hconcat(left, _scatter(frame, exposed, rate, box, f"(c) One against the other{where}"), bounds="flush")


def _by_layout(frame: pl.DataFrame, x: Axis, y: Axis, color: str, title: str, box: panels.Box) -> alt.LayerChart:
    layers = [panels.level(value, x, "x") for value in _baseline(frame, x.column)]
    if x.column == "words_per_second":
        layers += panels.spread(frame, x, y, "words_per_second_low", "words_per_second_high", color, along="x")
    layers += [*panels.marks(frame, x, y, color, line=False), *panels.crossed_rows(frame, y)]
    return panels.metric_panel(layers, frame, x.column, title, box)


def _scatter(frame: pl.DataFrame, x: Axis, y: Axis, box: panels.Box, title: str) -> alt.LayerChart:
    layers = panels.marks(frame, x, y, GREEN, line=False)
    correlations = rank_correlations(frame)
    if correlations:
        shown = "  ".join(f"{MARKS[one].glyph} {value:.2f}".replace("-", "−") for one, value in correlations.items())
        layers.append(panels.words(f"Spearman  {shown}", (box.width, 3), align="right"))
    return panels.metric_panel(layers, frame, x.column, title, box)


def rank_correlations(frame: pl.DataFrame) -> dict[str, float]:
    """Spearman's coefficient of exposed communication and throughput, a provenance; needs three layouts."""
    known = panels.known(frame, EXPOSED, "words_per_second")
    found = {}
    for one in rows.provenances(known):
        part = known.filter(pl.col("provenance") == one)
        value = part.select(pl.corr(EXPOSED, "words_per_second", method="spearman")).item()
        if part.height >= 3 and value is not None and value == value:
            found[one] = float(value)
    return found


def _baseline(frame: pl.DataFrame, metric: str) -> list[float]:
    """The metric of data parallelism alone, of the preferred provenance."""
    alone = panels.known(frame, metric).filter((pl.col("tp") == 1) & (pl.col("pp") == 1))
    return alone[metric].head(1).to_list()
