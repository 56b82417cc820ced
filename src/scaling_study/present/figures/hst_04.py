"""HST figure 4: data-parallel scaling at a constant local batch, from throughput to its causes and its cost."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, doubling_axis, from_zero, log_axis, logarithmic, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, GREEN, ORANGE, PAGE_WIDTH, PURPLE, VERMILLION

TITLE = "Scaling data parallelism"
CLAIMS = (
    "dp-throughput-drop",
    "dp-power-drop",
    "dp-compute-constant",
    "dp-power-linear",
    "dp-majority-exposed",
    "small-scale-extrapolation",
)
VARYING = ("nodes", "gpus", "dp", "global_batch")
TIMES = {
    "compute_s": ("compute", BLUE),
    "communication_s": ("comm.", ORANGE),
    "exposed_communication_s": ("exposed", VERMILLION),
}
METRICS = ("words_per_second", "mfu", *TIMES, "power_w_per_gpu", "tokens_per_joule")
BOX = panels.Box(112, 82)
NOTE = "Bars in (a): 5th to 95th percentile of {kept} iterations. Times in (c): means over ranks."


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Six panels: global and local throughput, times of an iteration; utilisation, power, tokens per joule."""
    frame = rows.one_series(rows.with_ideal(rows.with_spread(rows.chosen(records))), VARYING, context)
    frame = frame.with_columns(total_power_w=pl.col("power_w_per_gpu") * pl.col("gpus"))
    x = doubling_axis("gpus", frame["gpus"], context.devices)
    rate = value_axis(
        "words_per_second_per_gpu", f"words/s per {context.device}", from_zero(frame["words_per_second_per_gpu"])
    )
    power = log_axis("total_power_w", "W", logarithmic(frame["total_power_w"]))
    energy = value_axis("tokens_per_joule", "tokens per joule", from_zero(frame["tokens_per_joule"]), format=",f")
    above = (
        _throughput(frame, x),
        _one(frame, x, rate, f"(b) Throughput per {context.device}", BLUE),
        _times(frame, x),
    )
    below = (
        _utilisation(frame, x, context),
        _one(frame, x, power, "(e) Total power", PURPLE, source="power_w_per_gpu"),
        _one(frame, x, energy, "(f) Power efficiency", PURPLE),
    )
    spacing = {"row": 52, "column": 48}
    body = alt.concat(*above, *below, columns=3, spacing=spacing, bounds="flush")
    note = NOTE.format(kept=rows.kept_iterations(frame))
    note = note if not _without_mfu(frame) else f"{note} No MFU: {rows.why_null(frame, 'mfu')}."
    return panels.finished(body, TITLE, records, context, claims=CLAIMS, metrics=METRICS, width=PAGE_WIDTH, note=note)


def _one(frame: pl.DataFrame, x: Axis, y: Axis, title: str, color: str, source: str | None = None) -> alt.LayerChart:
    """One metric; `source` is the recorded one where the axis shows a multiple of it."""
    layers = [*panels.marks(frame, x, y, color), *panels.crosses(frame, x, y, BOX)]
    return panels.metric_panel(layers, frame, source or y.column, title, BOX)


def _throughput(frame: pl.DataFrame, x: Axis) -> alt.LayerChart:
    low, high, ideal = "words_per_second_low", "words_per_second_high", "ideal_words_per_second"
    span = logarithmic(*(frame[name] for name in ("words_per_second", low, high, ideal)))
    y = log_axis("words_per_second", "words/s", span)
    layers = [
        *panels.guide(frame, x, y, ideal, "ideal", BOX),
        *panels.spread(frame, x, y, low, high, BLUE),
        *panels.marks(frame, x, y, BLUE),
        *panels.crosses(frame, x, y, BOX),
    ]
    return panels.metric_panel(layers, frame, "words_per_second", "(a) Global throughput", BOX)


def _times(frame: pl.DataFrame, x: Axis) -> alt.LayerChart:
    y = value_axis("compute_s", "s per iteration", from_zero(*(frame[name] for name in TIMES)), format=",f")
    layers, ends = [], []
    for metric, (label, color) in TIMES.items():
        layers += panels.marks(frame, x, y, color, column=metric)
        ends += [(label, value, color) for value in panels.last(frame, x.column, metric)]
    layers += [
        *panels.crosses(frame, x, y, BOX, columns=tuple(TIMES)[1:], label=False),
        *panels.end_labels(ends, y, BOX),
    ]
    return panels.metric_panel(layers, frame, "compute_s", "(c) Where the time goes", BOX)


def _utilisation(frame: pl.DataFrame, x: Axis, context: FigureContext) -> alt.LayerChart:
    """MFU; where it is not defined, the rate it is made of."""
    if not _without_mfu(frame):
        mfu = value_axis("mfu", "MFU", from_zero(frame["mfu"]), format="~%")
        return _one(frame, x, mfu, "(d) Utilisation", GREEN)
    rate = value_axis("tflops_per_gpu", f"TFLOPS per {context.device}", from_zero(frame["tflops_per_gpu"]), format=",f")
    return _one(frame, x, rate, "(d) Floating-point rate", GREEN)


def _without_mfu(frame: pl.DataFrame) -> bool:
    """Whether MFU is defined for no record, but the floating-point rate for some."""
    return panels.known(frame, "mfu").is_empty() and not panels.known(frame, "tflops_per_gpu").is_empty()
