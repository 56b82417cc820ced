"""HST figure 5: layouts of model parallelism at a fixed global batch, and what exposed communication costs them."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, around, from_zero, row_axis, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, GREEN, MARKS, MINUS_SIGN, PAGE_WIDTH, TIMES_SIGN, VERMILLION

TITLE = "Layouts of model parallelism"
CLAIMS = ("mp-beats-dp-h100", "mp-beats-dp-a100", "exposed-correlation", "mp-across-nodes")
VARYING = ("hardware", "nodes", "dp", "tp", "pp", "precision")
NOTE = (
    "Each layout with its fastest micro-batch; bars: 5th to 95th percentile of {kept} iterations; "
    f"dotted: data parallelism alone (1 {TIMES_SIGN} 1)."
)
WIDTH, ROW_HEIGHT, LEAST_HEIGHT = 122, 11.5, 90
EXPOSED = "exposed_communication_s"
METRICS = ("words_per_second", EXPOSED)


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
        metrics=METRICS,
        width=PAGE_WIDTH,
        note=NOTE.format(kept=rows.kept_iterations(records)),
    )


def _hardware(frame: pl.DataFrame, where: str) -> tuple[alt.LayerChart, ...]:
    layouts = frame.select("tp", "pp", total=pl.col("tp") * pl.col("pp")).unique().sort("total", "tp", "pp")
    names = [_name(*degrees) for degrees in layouts.select("tp", "pp").iter_rows()]
    frame = frame.join(layouts.with_row_index("row").drop("total"), on=["tp", "pp"], maintain_order="left")
    box = panels.Box(WIDTH, max(LEAST_HEIGHT, ROW_HEIGHT * len(names)))
    low, high = frame["words_per_second_low"], frame["words_per_second_high"]
    rate = value_axis("words_per_second", "words/s", around(low, high, frame["words_per_second"]))
    exposed = value_axis(EXPOSED, "s per iteration", from_zero(frame[EXPOSED]), format=",f")
    return (
        _by_layout(
            frame, rate, row_axis("row", names, f"tensor {TIMES_SIGN} pipeline"), BLUE, f"(a) Throughput{where}", box
        ),
        _by_layout(frame, exposed, row_axis("row", names, None), VERMILLION, f"(b) Exposed communication{where}", box),
        _scatter(frame, exposed, rate, box, f"(c) One against the other{where}"),
    )


def _name(tp: int, pp: int) -> str:
    return f"{tp} {TIMES_SIGN} {pp}"


def _by_layout(frame: pl.DataFrame, x: Axis, y: Axis, color: str, title: str, box: panels.Box) -> alt.LayerChart:
    layers = [panels.level(value, x, "x") for value in _baseline(frame, x.column)]
    if x.column == "words_per_second":
        layers += panels.spread(frame, x, y, "words_per_second_low", "words_per_second_high", color, along="x")
    layers += [*panels.marks(frame, x, y, color, line=False), *panels.crossed_rows(frame, y)]
    return panels.metric_panel(layers, frame, x.column, title, box)


def _scatter(frame: pl.DataFrame, x: Axis, y: Axis, box: panels.Box, title: str) -> alt.LayerChart:
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
    alone = own.filter((pl.col("tp") == 1) & (pl.col("pp") == 1))
    named = pl.concat([fastest, alone]).unique(["tp", "pp"], maintain_order=True)
    points = {
        _key(row): (x.span.fraction(row[x.column]) * box.width, (1 - y.span.fraction(row[y.column])) * box.height)
        for row in known.iter_rows(named=True)
    }
    return [
        panels.name_beside(_name(row["tp"], row["pp"]), points[_key(row)], list(points.values()), box)
        for row in named.iter_rows(named=True)
    ]


def _key(row: dict[str, Any]) -> tuple[str, str]:
    return row["run_id"], row["provenance"]


def _baseline(frame: pl.DataFrame, metric: str) -> list[float]:
    """The metric of data parallelism alone, of the preferred provenance."""
    alone = panels.known(frame, metric).filter((pl.col("tp") == 1) & (pl.col("pp") == 1))
    return alone[metric].head(1).to_list()
