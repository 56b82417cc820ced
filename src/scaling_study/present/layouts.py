"""Panels with one row a layout of model parallelism, and what they have in common: rows, names, axes, baseline."""

from __future__ import annotations

import altair as alt
import msgspec
import polars as pl

from scaling_study.present import panels
from scaling_study.present.axes import Axis, around, from_zero, row_axis, value_axis
from scaling_study.present.rows import ALONE, HIGH, LOW, RATE
from scaling_study.present.theme import BLUE, TIMES_SIGN, VERMILLION

EXPOSED = "exposed_communication_s"
METRICS = (RATE, EXPOSED)
NOTE = f"Each layout with its fastest micro-batch; bars: {{bars}}; dotted: data parallelism alone (1 {TIMES_SIGN} 1)."
#: Of a record, throughput as a ratio to that of data parallelism alone, with its spread.
RELATIVE = {"relative": RATE, "relative_low": LOW, "relative_high": HIGH}
ROW_HEIGHT, LEAST_HEIGHT = 11.5, 90
TICK_WIDTH = 24  # points that a tick with its label needs


class Layouts(msgspec.Struct, frozen=True, kw_only=True):
    """Layouts in the order of their total degree.

    Attributes:
        frame: one record a layout and provenance; `row` is the number of the layout's row.
        names: of the rows.
        height: of a panel, in points.
        rate: axis of the throughput.
        exposed: axis of the exposed communication.
    """

    frame: pl.DataFrame
    names: list[str]
    height: float
    rate: Axis
    exposed: Axis


def ordered(frame: pl.DataFrame) -> Layouts:
    """The layouts of records with the spread of their throughput (`rows.with_spread`)."""
    degrees = frame.select("tp", "pp", total=pl.col("tp") * pl.col("pp")).unique().sort("total", "tp", "pp")
    names = [name_of(*pair) for pair in degrees.select("tp", "pp").iter_rows()]
    return Layouts(
        frame=frame.join(degrees.with_row_index("row").drop("total"), on=["tp", "pp"], maintain_order="left"),
        names=names,
        height=max(LEAST_HEIGHT, ROW_HEIGHT * len(names)),
        rate=value_axis(RATE, "words/s", around(frame[LOW], frame[HIGH], frame[RATE])),
        exposed=value_axis(EXPOSED, "s per iteration", from_zero(frame[EXPOSED]), format=",f"),
    )


def with_relative(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds the columns `RELATIVE`, and whether a layout is `faster` than data parallelism alone.

    The baseline is of the same provenance; the columns are null where there is none.
    """
    alone = panels.known(frame, RATE).filter(ALONE).select("provenance", alone=RATE)
    joined = frame.join(alone, on="provenance", how="left", maintain_order="left")
    ratios = {name: pl.col(column) / pl.col("alone") for name, column in RELATIVE.items()}
    return joined.with_columns(**ratios, faster=pl.col(RATE) > pl.col("alone")).drop("alone")


def name_of(tp: int, pp: int) -> str:
    """Tensor by pipeline degree."""
    return f"{tp} {TIMES_SIGN} {pp}"


def axis(layouts: Layouts, *, labelled: bool = True) -> Axis:
    """The axis of rows; without labels, where a panel beside has them."""
    if labelled:
        return row_axis("row", layouts.names, f"tensor {TIMES_SIGN} pipeline")
    silent = row_axis("row", layouts.names, None)
    return msgspec.structs.replace(silent, options={**silent.options, "labels": False})


def throughput(layouts: Layouts, title: str, width: float) -> alt.LayerChart:
    """Words per second with their spread; the axis of rows says what the names are."""
    rows, x = axis(layouts), _few_ticks(layouts.rate, width)
    bars = panels.spread(layouts.frame, x, rows, LOW, HIGH, BLUE, along="x")
    return _panel(layouts, x, rows, BLUE, title, width, bars)


def exposed(layouts: Layouts, title: str, width: float) -> alt.LayerChart:
    """Exposed communication in seconds per iteration."""
    x = _few_ticks(layouts.exposed, width)
    return _panel(layouts, x, row_axis("row", layouts.names, None), VERMILLION, title, width, [])


def _few_ticks(x: Axis, width: float) -> Axis:
    """No more than their labels have room for."""
    options = {"tickCount": int(width / TICK_WIDTH), "labelSeparation": 4}
    return msgspec.structs.replace(x, options={**x.options, **options})


def _panel(
    layouts: Layouts, x: Axis, y: Axis, color: str, title: str, width: float, bars: list[alt.Chart]
) -> alt.LayerChart:
    alone = panels.known(layouts.frame, x.column).filter(ALONE)
    layers = [
        *(panels.level(value, x, "x") for value in alone[x.column].head(1)),
        *bars,
        *panels.marks(layouts.frame, x, y, color, line=False),
        *panels.crossed_rows(layouts.frame, y),
    ]
    return panels.metric_panel(layers, layouts.frame, x.column, title, panels.Box(width, layouts.height))
