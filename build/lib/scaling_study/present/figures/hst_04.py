"""HST figure 4: data-parallel scaling at a constant local batch, from throughput to its causes and its cost."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, doubling_axis, from_zero, log_axis, logarithmic, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, GREEN, ORANGE, PAGE_WIDTH, PURPLE, VERMILLION

CLAIMS = (
    "dp-throughput-drop",
    "dp-power-drop",
    "dp-compute-constant",
    "dp-power-linear",
    "dp-majority-exposed",
    "small-scale-extrapolation",
)
SERIES = ("model", "hardware", "tp", "pp", "sequence_length")
BOX = panels.Box(112, 88)
TIMES = {"compute_s": ("compute", BLUE), "communication_s": ("comm.", ORANGE), "exposed_communication_s": ("exposed", VERMILLION)}


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Six panels: global and local throughput, times of an iteration; utilisation, power, tokens per joule."""
    frame = rows.one_series(rows.with_ideal(rows.with_spread(rows.chosen(records))), SERIES, context)
    frame = frame.with_columns(total_power_w=pl.col("power_w_per_gpu") * pl.col("gpus"))
    x = doubling_axis("gpus", frame["gpus"], context.devices)
    above = (_throughput(frame, x), _per_device(frame, x, context), _times(frame, x))
    below = (_utilisation(frame, x, context), _total_power(frame, x), _efficiency(frame, x))
    body = alt.concat(*above, *below, columns=3, spacing={"row": 56, "column": 48}, bounds="flush")
    return panels.finished(body, records, context, CLAIMS, PAGE_WIDTH)


def _throughput(frame: pl.DataFrame, x: Axis) -> alt.LayerChart:
    columns = ("words_per_second", "words_per_second_low", "words_per_second_high", "ideal_words_per_second")
    y = log_axis("words_per_second", "words/s", logarithmic(*(frame[name] for name in columns)))
    layers = [
        *panels.guide(frame, x, y, "ideal_words_per_second"),
        *panels.spread(frame, x, y, "words_per_second_low", "words_per_second_high", BLUE),
        *panels.marks(frame, x, y, BLUE),
        *panels.crosses(frame, x, y, BOX),
        panels.words("grey: ideal", (4, 6)),
    ]
    return panels.metric_panel(layers, frame, "words_per_second", "(a) Global throughput", BOX)


def _simple(
    frame: pl.DataFrame, x: Axis, y: Axis, title: str, color: str, source: str | None = None
) -> alt.LayerChart:
    """One metric; `source` is the recorded one where the axis shows a multiple of it."""
    layers = [*panels.marks(frame, x, y, color), *panels.crosses(frame, x, y, BOX)]
    return panels.metric_panel(layers, frame, source or y.column, title, BOX)


def _per_device(frame: pl.DataFrame, x: Axis, context: FigureContext) -> alt.LayerChart:
    metric = "words_per_second_per_gpu"
    y = value_axis(metric, f"words/s per {context.device}", from_zero(frame[metric]))
    return _simple(frame, x, y, f"(b) Throughput per {context.device}", BLUE)


def _times(frame: pl.DataFrame, x: Axis) -> alt.LayerChart:
    y = value_axis("compute_s", "s per iteration", from_zero(*(frame[name] for name in TIMES)), format="~g")
    layers, ends = [], []
    for metric, (label, color) in TIMES.items():
        layers += panels.marks(frame, x, y, color, column=metric)
        preferred = panels.known(frame, metric).sort("gpus", "provenance", descending=[False, True])
        ends += [(label, value, color) for value in preferred[metric].tail(1)]
    layers += [*panels.crosses(frame, x, y, BOX), *panels.end_labels(ends, y, BOX)]
    return panels.metric_panel(layers, frame, "compute_s", "(c) Where the time goes", BOX)


def _utilisation(frame: pl.DataFrame, x: Axis, context: FigureContext) -> alt.LayerChart:
    """MFU; where it is not defined, the rate it is made of, and the reason."""
    if not panels.known(frame, "mfu").is_empty():
        return _simple(frame, x, value_axis("mfu", "MFU", from_zero(frame["mfu"]), format="~%"), "(d) Utilisation", GREEN)
    metric = "tflops_per_gpu"
    y = value_axis(metric, f"TFLOPS per {context.device}", from_zero(frame[metric]), format="~g")
    layers = [*panels.marks(frame, x, y, GREEN), *panels.crosses(frame, x, y, BOX)]
    return panels.panel(layers, "(d) Floating-point rate", BOX, note=f"MFU: {rows.why_null(frame, 'mfu')}")


def _total_power(frame: pl.DataFrame, x: Axis) -> alt.LayerChart:
    y = log_axis("total_power_w", "W", logarithmic(frame["total_power_w"]))
    return _simple(frame, x, y, "(e) Total power", PURPLE, source="power_w_per_gpu")


def _efficiency(frame: pl.DataFrame, x: Axis) -> alt.LayerChart:
    metric = "tokens_per_joule"
    y = value_axis(metric, "tokens per joule", from_zero(frame[metric]), format="~g")
    return _simple(frame, x, y, "(f) Power efficiency", PURPLE)
