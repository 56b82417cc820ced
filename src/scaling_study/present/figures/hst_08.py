"""HST figure 8: computation and communication as models grow, with the least and with the best model parallelism."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, log_axis, logarithmic
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, ORANGE, PAGE_WIDTH, TIMES_SIGN
from scaling_study.spec import Outcome

TITLE = "Communication and computation by model size"
CLAIMS = ("size-exposed",)
VARYING = ("model", "dp", "tp", "pp")
LINES = {"baseline": ORANGE, "fastest": BLUE}
TIMES = {
    "compute_s": "(a) Computation",
    "communication_s": "(b) Communication",
    "exposed_communication_s": "(c) Exposed communication",
}
METRICS = (*TIMES, "mfu")
BOX = panels.Box(184, 74)
NOTE = (
    "Baseline: the least model parallelism that ran; fastest: the best layout; "
    f"in (d) tensor {TIMES_SIGN} pipeline{{preference}}. Times: means over ranks."
)
#: A logarithmic axis has no place for it.
ZERO = "What stands on the lower edge is zero."


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Three times of an iteration on one scale, and utilisation: a line of baselines and one of fastest layouts."""
    chosen = rows.one_series(rows.chosen(records), VARYING, context)
    frame = rows.with_layout(rows.with_parameters(baseline_and_fastest(chosen), context))
    span = logarithmic(*(frame[metric] for metric in TIMES))
    zero = ZERO if any((frame[metric] <= 0).any() for metric in TIMES) else ""
    frame = frame.with_columns(pl.col(*TIMES).clip(span.low))
    times = [(title, log_axis(metric, "s per iteration", span, format="~g")) for metric, title in TIMES.items()]
    utilisation, mfu = panels.utilisation(frame, context)
    drawn = [_panel(frame, y, title) for title, y in [*times, (f"(d) {utilisation}", mfu)]]
    body = alt.concat(*drawn, columns=2, spacing={"row": 50, "column": 62}, bounds="flush")
    note = f"{NOTE.format(preference=rows.preference(frame))} {zero} {panels.without_mfu(frame)}"
    return panels.finished(body, TITLE, records, context, claims=CLAIMS, metrics=METRICS, width=PAGE_WIDTH, note=note)


def baseline_and_fastest(frame: pl.DataFrame) -> pl.DataFrame:
    """The least parallel and the fastest layout of each model and provenance, told apart by `line`.

    Of several least parallel layouts the fastest is the baseline. Where a model ran in no layout, one record says how
    it ended, in the place of the fastest.
    """
    degree = pl.col("tp") * pl.col("pp")
    ran = frame.filter(pl.col("outcome") == Outcome.OK)
    least = ran.filter(degree == degree.min().over("model", "provenance"))
    parts = {"baseline": least, "fastest": frame}
    return pl.concat([rows.chosen(part, ("model",)).with_columns(line=pl.lit(name)) for name, part in parts.items()])


def _sizes(frame: pl.DataFrame) -> Axis:
    """Parameters on a logarithmic axis, each model under the part of its name that tells its size."""
    models = frame.select("parameters", "model").unique().sort("parameters", "model")
    names = [name.rpartition("-")[2].upper() for name in models["model"]]
    ticks, span = models["parameters"].to_list(), logarithmic(models["parameters"], margin=1.6)
    options = {"values": ticks, "labelExpr": f"{names}[indexof({ticks},datum.value)]", "grid": False}
    return Axis(column="parameters", title="parameters", span=span, options=options)


def _panel(frame: pl.DataFrame, y: Axis, title: str) -> alt.LayerChart:
    x, layers, ends = _sizes(frame), [], []
    for name, color in LINES.items():
        line = frame.filter(pl.col("line") == name)
        layers += [*panels.marks(line, x, y, color), *panels.crosses(line, x, y, BOX, beside=frame)]
        if y.column not in TIMES:
            layers += panels.names_along(line, x, y, "layout", color, below=name == "baseline", stay=True)
        ends += [(name, value, color) for value in panels.last(line, x.column, y.column)]
    return panels.metric_panel([*layers, *panels.end_labels(ends, y, BOX)], frame, y.column, title, BOX)
