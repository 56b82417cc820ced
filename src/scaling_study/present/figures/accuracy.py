"""How well the performance model does on measurements of others that it was not fitted on, source by source."""

from __future__ import annotations

from itertools import cycle

import altair as alt
import polars as pl

from scaling_study.present import panels
from scaling_study.present.accuracy import LABELS, UNSEEN, errors_by_source
from scaling_study.present.axes import Axis, from_zero, log_axis, logarithmic, row_axis, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.rows import rounded, within_budget
from scaling_study.present.theme import BLUE, FAINT, GREEN, INK, ORANGE, PAGE_WIDTH, PURPLE, VERMILLION

TITLE = "Predicted against measured"
CLAIMS: tuple[str, ...] = ()
COLORS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE)
SHAPES = ("circle", "square", "triangle-up")
MEASURED = "measured_step_time_s"
SCATTER, RANKS = panels.Box(196, 160), panels.Box(120, 160)
NOTE = (
    "Time of an iteration in published measurements, every source predicted by constants that were fitted on the other "
    "ones. (b): mean absolute error, hollow with the source among those fitted on; behind it the number of rows."
)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Every row predicted against measured on logarithmic axes; the mean error of each source beside it."""
    timed = records.drop_nulls([MEASURED, UNSEEN]).sort("source", MEASURED, UNSEEN)
    errors = errors_by_source(records)
    styles = dict(zip(errors["source"], cycle((c, s) for s in SHAPES for c in COLORS), strict=False))
    parts = (_scatter(timed, styles), _errors(errors, styles))
    body = alt.hconcat(*parts, spacing=104, bounds="flush")
    said = {"study": context.study, "figure": context.figure, "claims": [], "rows": timed.height}
    return panels.titled(body, TITLE, [NOTE], said, context, PAGE_WIDTH)


def _scatter(timed: pl.DataFrame, styles: dict[str, tuple[str, str]]) -> alt.LayerChart:
    span = logarithmic(timed[MEASURED], timed[UNSEEN])
    x, y = log_axis(MEASURED, "measured, s", span, format=",~r"), log_axis(UNSEEN, "predicted, s", span, format=",~r")
    ends = pl.DataFrame({MEASURED: [span.low, span.high], UNSEEN: [span.low, span.high]})
    layers = [panels.chart(ends, MEASURED, UNSEEN).mark_line(color=FAINT, strokeWidth=0.8).encode(x=x.x(), y=y.y())]
    for source, (color, shape) in styles.items():
        base = alt.Chart(within_budget(rounded(timed.filter(source=source).select(MEASURED, UNSEEN))))
        layers.append(
            base.mark_point(shape=shape, size=9, stroke=color, fill=color, fillOpacity=0.35, strokeWidth=0.5).encode(
                x=x.x(), y=y.y()
            )
        )
    return panels.panel(layers, "(a) Every row", SCATTER)


def _errors(errors: pl.DataFrame, styles: dict[str, tuple[str, str]]) -> alt.LayerChart:
    frame = errors.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    x = value_axis("unseen_mape", "mean absolute error, %", from_zero(frame["unseen_mape"], frame["fitted_mape"]))
    y = row_axis("row", [LABELS.get(source, source) for source in frame["source"]], None)
    layers: list[alt.Chart] = [_count(row["rows"], row["row"], y) for row in frame.iter_rows(named=True)]
    for row in frame.iter_slices(1):
        color, shape = styles[row["source"][0]]
        base = panels.chart(row, "row", "unseen_mape", "fitted_mape")
        pair = base.mark_rule(color=color, strokeWidth=0.8).encode(
            y=y.y(), x=x.x("fitted_mape"), x2=alt.X2("unseen_mape")
        )
        hollow = base.mark_point(shape=shape, fill="white", stroke=color, opacity=1, size=17)
        full = base.mark_point(shape=shape, fill=color, stroke=color, opacity=1, size=17)
        layers += [pair, hollow.encode(y=y.y(), x=x.x("fitted_mape")), full.encode(y=y.y(), x=x.x("unseen_mape"))]
    mean = float(frame["unseen_mape"].mean() or 0.0)  # type: ignore[arg-type]
    layers.append(panels.level(mean, x, "x"))
    place = round(x.span.fraction(mean) * RANKS.width, 2)
    layers.append(panels.words(f"mean {mean:.1f}%", (place, -1), align="center", color=INK, baseline="bottom"))
    return panels.panel(layers, "(b) By source", RANKS)


def _count(rows: int, row: int, y: Axis) -> alt.Chart:
    place = round(RANKS.height * (1 - y.span.fraction(row)), 2)
    return panels.words(f"{rows}", (RANKS.width + 4, place), baseline="middle")
