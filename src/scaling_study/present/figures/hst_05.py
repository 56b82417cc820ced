"""HST figure 5: layouts of model parallelism at a fixed global batch, and what exposed communication costs them."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from scaling_study.present import layouts, panels, rows
from scaling_study.present.axes import Axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import GREEN, MARKS, MINUS_SIGN, PAGE_WIDTH

TITLE = "Layouts of model parallelism"
CLAIMS = ("mp-beats-dp-h100", "mp-beats-dp-a100", "exposed-correlation", "mp-across-nodes")
VARYING = ("hardware", "nodes", "dp", "tp", "pp", "precision")
WIDTH = 122


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """One row of three panels a hardware: throughput and exposed communication by layout, one against the other."""
    frame = rows.one_series(rows.with_spread(rows.chosen(records)), VARYING, context)
    parts = frame.partition_by("hardware", maintain_order=True)
    many = len(parts) > 1
    drawn = [one for part in parts for one in _hardware(part, f", {part['hardware'][0].upper()}" if many else "")]
    body = alt.concat(*drawn, columns=3, spacing={"row": 52, "column": 46}, bounds="flush")
    return panels.finished(
        body,
        TITLE,
        records,
        context,
        claims=CLAIMS,
        metrics=layouts.METRICS,
        width=PAGE_WIDTH,
        note=layouts.NOTE.format(bars=rows.bars(records)),
    )


def _hardware(frame: pl.DataFrame, where: str) -> tuple[alt.LayerChart, ...]:
    drawn = layouts.ordered(frame)
    return (
        layouts.throughput(drawn, f"(a) Throughput{where}", WIDTH),
        layouts.exposed(drawn, f"(b) Exposed communication{where}", WIDTH),
        _scatter(drawn, f"(c) One against the other{where}"),
    )


def _scatter(drawn: layouts.Layouts, title: str) -> alt.LayerChart:
    frame, x, y, box = drawn.frame, drawn.exposed, drawn.rate, panels.Box(WIDTH, drawn.height)
    layers = [*panels.marks(frame, x, y, GREEN, line=False), *_landmarks(frame, x, y, box)]
    correlations = rows.rank_correlations(frame)
    if correlations:
        shown = "  ".join(
            f"{MARKS[one].glyph} {value:.2f}".replace("-", MINUS_SIGN) for one, value in correlations.items()
        )
        layers.append(panels.words(f"Spearman  {shown}", (box.width, 3), align="right"))
    return panels.metric_panel(layers, frame, x.column, title, box)


def _landmarks(frame: pl.DataFrame, x: Axis, y: Axis, box: panels.Box) -> list[alt.Chart]:
    """Names of the fastest layout and of data parallelism alone, of the preferred provenance."""
    known = panels.known(frame, x.column, y.column)
    own = known.filter(pl.col("provenance") == next(iter(rows.provenances(known)), ""))
    fastest = own.sort(y.column, "run_id", descending=[True, False]).head(1)
    alone = own.filter(rows.ALONE)
    named = pl.concat([fastest, alone]).unique(["tp", "pp"], maintain_order=True)
    points = {
        _key(row): (x.span.fraction(row[x.column]) * box.width, (1 - y.span.fraction(row[y.column])) * box.height)
        for row in known.iter_rows(named=True)
    }
    return [
        panels.name_beside(layouts.name_of(row["tp"], row["pp"]), points[_key(row)], list(points.values()), box)
        for row in named.iter_rows(named=True)
    ]


def _key(row: dict[str, Any]) -> tuple[str, str]:
    return row["run_id"], row["provenance"]
