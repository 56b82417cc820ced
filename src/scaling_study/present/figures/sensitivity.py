"""What the predicted fall of throughput hangs on: every constant through its interval, beside what is reported."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels
from scaling_study.present.axes import Axis, Range, row_axis, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.numbers.core import quantity
from scaling_study.present.theme import BLUE, COLUMN_WIDTH, GREY, INK, MARKS, MINUS_SIGN, VERMILLION
from scaling_study.spec import Provenance

TITLE = "What a predicted fall hangs on"
CLAIMS = ("dp-throughput-drop",)
SWEEP, ROWS = "data_parallel", 8
BOX = panels.Box(112, 96)
NOTE = (
    "Throughput per GPU from {since} to {where}. Bars: one constant of the model through the interval that holds it "
    "with 90%. Right: the value that would give the reported change, over the constant's own."
)
LOW, HIGH = "change_at_low", "change_at_high"


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """A row a constant, those that move the prediction most on top."""
    part = records.filter(sweep=SWEEP).head(ROWS).with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    first = part.row(0, named=True)
    scales = {name: f"{int(first[name].removeprefix('gpus ')):,}" for name in ("since", "where")}
    note = NOTE.format(since=scales["since"], where=f"{scales['where']} GPUs")
    marks = {Provenance.PREDICTED: first["predicted_change"], Provenance.REPORTED: first["reported_change"]}
    said = " ".join(f"{MARKS[kind].glyph} {kind.value} {value:+.1%}." for kind, value in marks.items()).replace(
        "-", MINUS_SIGN
    )
    body = alt.vconcat(_panel(part, marks))
    meta = {"study": context.study, "figure": context.figure, "claims": list(CLAIMS)}
    return panels.titled(body, TITLE, [note, said], meta, context, COLUMN_WIDTH)


def _panel(part: pl.DataFrame, marks: dict[Provenance, float]) -> alt.LayerChart:
    values = [*part[LOW], *part[HIGH], *marks.values()]
    x = value_axis("change", None, Range(min(values) * 1.08, 0.0), format="~%")
    y = row_axis("row", [name.replace("_", " ") for name in part["constant"]], None)
    layers = [panels.level(marks[Provenance.PREDICTED], x, "x")]
    base = panels.chart(part, "row", LOW, HIGH).encode(y=y.y(), x=x.x(LOW), x2=alt.X2(HIGH))
    layers.append(base.mark_rule(color=BLUE, strokeWidth=3))
    layers += [_mark(kind, value, len(part), x, y) for kind, value in marks.items()]
    layers += [_needed(row["needed"], row["value"], row["row"], y) for row in part.iter_rows(named=True)]
    layers.append(panels.words("needed / own", (BOX.width + 6, -7), baseline="bottom", color=GREY))
    return panels.panel(layers, "Change", BOX)


def _mark(kind: Provenance, value: float, rows: int, x: Axis, y: Axis) -> alt.Chart:
    """The change itself, in every row."""
    style = MARKS[kind]
    frame = pl.DataFrame({"change": [value] * rows, "row": range(rows)})
    color = INK if kind is Provenance.PREDICTED else VERMILLION
    base = panels.chart(frame, "change", "row").encode(x=x.x(), y=y.y())
    mark: alt.Chart = base.mark_point(
        shape=style.shape, size=style.size, stroke=color, fill="white" if style.hollow else color, opacity=1
    )
    return mark


def _needed(needed: float | None, value: float, row: int, y: Axis) -> alt.Chart:
    place = round(BOX.height * (1 - y.span.fraction(row)), 2)
    text = f"{quantity(needed) if needed is not None else 'none'} / {quantity(value)}"
    return panels.words(text, (BOX.width + 6, place), baseline="middle", color=GREY)
