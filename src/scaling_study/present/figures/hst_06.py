"""HST figure 6: throughput and exposed communication as tensor or pipeline parallelism alone grows, on one hardware."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, doubling_axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, COLUMN_WIDTH, VERMILLION

TITLE = "Degree of model parallelism"
CLAIMS = ("mp-beats-dp-h100", "mp-beats-dp-a100", "mp-across-nodes")
VARYING = ("dp", "tp", "pp")
NOTE = "Each layout with its fastest micro-batch; dotted: data parallelism alone."
BOX = panels.Box(166, 66)
LINES = {"tp": ("tensor", BLUE), "pp": ("pipeline", VERMILLION)}
EXPOSED = "exposed_communication_s"
METRICS = ("words_per_second", EXPOSED)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Throughput above, exposed communication below; one line an axis of model parallelism."""
    frame = by_degree(rows.one_series(rows.chosen(records), VARYING, context))
    rate = value_axis("words_per_second", "words/s", from_zero(frame["words_per_second"]), tickCount=4)
    exposed = value_axis(EXPOSED, "s per iteration", from_zero(frame[EXPOSED]), tickCount=4, format=",f")
    parts = (
        _panel(frame, rate, "(a) Throughput", None),
        _panel(frame, exposed, "(b) Exposed communication", "degree of parallelism"),
    )
    body = alt.vconcat(*parts, spacing=36, bounds="flush")
    return panels.finished(body, TITLE, records, context, claims=CLAIMS, metrics=METRICS, width=COLUMN_WIDTH, note=NOTE)


def by_degree(frame: pl.DataFrame) -> pl.DataFrame:
    """The layouts of one axis alone, with that axis as `line` and its `degree`; the baseline starts both lines."""
    lines = [
        frame.filter(pl.col(other) == 1).with_columns(line=pl.lit(axis), degree=pl.col(axis))
        for axis, other in (("tp", "pp"), ("pp", "tp"))
    ]
    return pl.concat(lines)


def _panel(frame: pl.DataFrame, y: Axis, title: str, x_title: str | None) -> alt.LayerChart:
    x = doubling_axis("degree", frame["degree"], x_title)
    alone = panels.known(frame, y.column).filter(pl.col("degree") == 1)[y.column]
    layers = [panels.level(value, y, "y") for value in alone.head(1)] + _node_edge(frame, x)
    ends = []
    for axis, (name, color) in LINES.items():
        line = frame.filter(pl.col("line") == axis)
        if line["degree"].max() == 1:  # the sweep has the baseline alone
            continue
        layers += panels.marks(line, x, y, color)
        layers += panels.crosses(line, x, y, BOX, beside=frame, color=color)
        ends += [(name, value, color) for value in panels.last(line, "degree", y.column)]
    return panels.metric_panel([*layers, *panels.end_labels(ends, y, BOX)], frame, y.column, title, BOX)


def _node_edge(frame: pl.DataFrame, x: Axis) -> list[alt.Chart]:
    """A line between groups that fit into a node and those that do not, where a sweep has both."""
    node = max(int(gpus // nodes) for gpus, nodes in frame.select("gpus", "nodes").iter_rows())
    beyond = [degree for degree in frame["degree"] if degree > node]
    if node == 1 or not beyond:
        return []
    edge = (node * min(beyond)) ** 0.5
    place = round(x.span.fraction(edge) * BOX.width, 2)
    return [panels.level(edge, x, "x", dash=()), panels.words("one node", (place - 3, -3), align="right")]
