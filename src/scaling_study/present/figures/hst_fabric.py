"""An extra figure: what a slower or another fabric and a larger node would change (HST section 5, appendix A)."""

from __future__ import annotations

from collections import Counter

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, doubling_axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, GREEN, ORANGE, PAGE_WIDTH, PURPLE, VERMILLION
from scaling_study.spec import Hardware

TITLE = "What another fabric would change"
CLAIMS = ("larger-nodes",)
VARYING = ("hardware", "nodes", "gpus", "dp", "global_batch")
COLORS = (VERMILLION, ORANGE, GREEN, PURPLE, BLUE)
RATE, TIME, ENERGY = "words_per_second_per_gpu", "communication_s", "tokens_per_joule"
METRICS = (RATE, TIME, ENERGY)
BOX = panels.Box(110, 104)
NOTE = "Fabrics by the bandwidth of a node of eight GPUs, GB/s in one direction."
GPUS_PER_NODE = 8


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Throughput, communication and power efficiency against the number of GPUs, one line a fabric."""
    frame = rows.one_series(rows.chosen(records), VARYING, context)
    names = {name: label(context.hardware[name]) for name in frame["hardware"].unique()}
    order = sorted(names, key=lambda name: _speed(context.hardware[name]))
    axes = {
        "(a) Throughput per GPU": value_axis(RATE, "words/s per GPU", from_zero(frame[RATE])),
        "(b) Power efficiency": value_axis(ENERGY, "tokens per joule", from_zero(frame[ENERGY]), format=",f"),
        "(c) Communication": value_axis(TIME, "s per iteration", from_zero(frame[TIME]), format=",f"),
    }
    x = doubling_axis("gpus", frame.filter(pl.col("hardware") == _usual(order, context))["gpus"], context.devices)
    lines = [(names[name], frame.filter(pl.col("hardware") == name)) for name in order]
    parts = [_panel(frame, lines, x, y, title) for title, y in axes.items()]
    body = alt.hconcat(*parts, spacing=46, bounds="flush")
    return panels.finished(
        body, TITLE, records, context, claims=CLAIMS, metrics=METRICS, width=PAGE_WIDTH, note=f"{NOTE} {_gains(lines)}"
    )


def label(hardware: Hardware) -> str:
    """What a fabric is called in the figure: its speed and kind, or the size of its nodes where that is unusual."""
    if hardware.gpus_per_node != GPUS_PER_NODE:
        return f"{hardware.gpus_per_node}-GPU nodes"
    speed = hardware.inter_node_gb_per_s
    return f"{'RoCE' if hardware.network_hop_us else 'InfiniBand'} {speed.value if speed else 0:.0f}"


def _speed(hardware: Hardware) -> tuple[float, float]:
    """From the slowest to the fastest fabric: bandwidth first, then latency."""
    speed, hop = hardware.inter_node_gb_per_s, hardware.network_hop_us
    return (speed.value if speed else 0.0, -(hop.value if hop else 0.0))


def _usual(order: list[str], context: FigureContext) -> str:
    """A hardware with nodes of the usual size, whose scales are the ticks."""
    usual = Counter(context.hardware[name].gpus_per_node for name in order).most_common(1)[0][0]
    return next(name for name in order if context.hardware[name].gpus_per_node == usual)


def _panel(frame: pl.DataFrame, lines: list[tuple[str, pl.DataFrame]], x: Axis, y: Axis, title: str) -> alt.LayerChart:
    layers, ends = [], []
    for (name, line), color in zip(lines, COLORS, strict=False):
        layers += panels.marks(line, x, y, color)
        ends += [(name, value, color) for value in panels.last(line, x.column, y.column)]
    named = panels.end_labels(ends, y, BOX) if y.column == TIME else []  # where lines are farthest apart
    return panels.metric_panel([*layers, *named], frame, y.column, title, BOX)


def _gains(lines: list[tuple[str, pl.DataFrame]]) -> str:
    """Throughput per GPU at the largest scale of every fabric over that of the slowest one."""
    ends = {name: panels.last(line, "gpus", RATE) for name, line in lines}
    base = next(iter(ends.values()))
    if not base:
        return ""
    said = [f"{name} {value / base[0] - 1:+.0%}" for name, values in list(ends.items())[1:] for value in values]
    return f"At the largest scale, against {next(iter(ends))}: {'; '.join(said)}." if said else ""
