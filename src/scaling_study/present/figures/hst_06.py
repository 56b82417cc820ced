"""HST figure 6: throughput and exposed communication as tensor or pipeline parallelism alone grows, on one hardware."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, around, doubling_axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, COLUMN_WIDTH, VERMILLION

TITLE = "Degree of model parallelism"
CLAIMS = ("mp-beats-dp-h100", "mp-beats-dp-a100", "mp-across-nodes")
SERIES = ("model", "hardware", "gpus", "sequence_length")
NOTE = "One axis at a time, each layout with its fastest micro-batch; dotted: data parallelism alone."
BOX = panels.Box(166, 74)
LINES = {"tp": ("pp", "tensor", BLUE), "pp": ("tp", "pipeline", VERMILLION)}


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Throughput above, exposed communication below; one line an axis of model parallelism."""
    frame = rows.one_series(rows.chosen(records), SERIES, context)
    lines = {axis: frame.filter(pl.col(other) == 1) for axis, (other, _, _) in LINES.items()}
    both = pl.concat(lines.values())
    rate = value_axis("words_per_second", "words/s", around(both["words_per_second"]), tickCount=4)
    exposed = value_axis(
        "exposed_communication_s", "s per iteration", from_zero(both["exposed_communication_s"]), format="~g"
    )
    parts = (
        _panel(lines, both, rate, "(a) Throughput", None),
        _panel(lines, both, exposed, "(b) Exposed communication", "degree of parallelism"),
    )
    body = alt.vconcat(*parts, spacing=34 + panels.headroom(parts[1:]), bounds="flush")
    return panels.finished(body, TITLE, records, context, claims=CLAIMS, width=COLUMN_WIDTH, note=NOTE)


def _panel(
    lines: dict[str, pl.DataFrame], both: pl.DataFrame, y: Axis, title: str, x_title: str | None
) -> alt.LayerChart:
    degrees = pl.concat([line[axis] for axis, line in lines.items()])
    layers, ends = [], []
    for axis, line in lines.items():
        _, name, color = LINES[axis]
        drawn = line.rename({axis: "degree"})
        x = doubling_axis("degree", degrees, x_title)
        layers += [*panels.marks(drawn, x, y, color), *panels.crosses(drawn, x, y, BOX)]
        ends += [(name, value, color) for value in panels.last(drawn, "degree", y.column)]
    alone = panels.known(both, y.column).filter((pl.col("tp") == 1) & (pl.col("pp") == 1))[y.column]
    under = [panels.level(value, y, "y") for value in alone.head(1)] + _node_edge(both, degrees, x, BOX)
    return panels.metric_panel([*under, *layers, *panels.end_labels(ends, y, BOX)], both, y.column, title, BOX)


def _node_edge(frame: pl.DataFrame, degrees: pl.Series, x: Axis, box: panels.Box) -> list[alt.Chart]:
    """A line between groups that fit into a node and those that do not, where a sweep has both."""
    node = int((frame["gpus"] // frame["nodes"]).max() or 1)
    beyond = degrees.filter(degrees > node)
    if node == 1 or beyond.is_empty():
        return []
    edge = (node * float(beyond.min())) ** 0.5  # type: ignore[arg-type]
    place = x.span.fraction(edge) * box.width
    return [panels.level(edge, x, "x", dash=()), panels.words("one node", (place - 3, 4), align="right")]
