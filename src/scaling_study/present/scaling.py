"""Panels of one series against its scale: the same six for every sweep over the number of GPUs."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import Axis, doubling_axis, from_zero, log_axis, logarithmic, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, GREEN, MARKS, ORANGE, PURPLE, VERMILLION
from scaling_study.spec import Provenance

TIMES = {
    "compute_s": ("compute", BLUE),
    "communication_s": ("comm.", ORANGE),
    "exposed_communication_s": ("exposed", VERMILLION),
}
METRICS = ("words_per_second", "words_per_second_per_gpu", "mfu", *TIMES, "power_w_per_gpu", "tokens_per_joule")
BOX = panels.Box(112, 82)
NOTE = "Bars in (a): {bars}. Times in (c): means over ranks."


def six_panels(frame: pl.DataFrame, context: FigureContext, names: str | None = None) -> alt.ConcatChart:
    """Global and local throughput and times of an iteration above; utilisation, power, tokens per joule below.

    Args:
        frame: one row a scale and provenance.
        names: a column of what each mark of the local throughput is called.
    """
    frame = rows.with_ideal(rows.with_spread(frame))
    frame = frame.with_columns(total_power_w=pl.col("power_w_per_gpu") * pl.col("gpus"))
    x = doubling_axis("gpus", frame["gpus"], context.devices)
    rate = value_axis(
        "words_per_second_per_gpu", f"words/s per {context.device}", from_zero(frame["words_per_second_per_gpu"])
    )
    power = log_axis("total_power_w", "W", logarithmic(frame["total_power_w"]))
    energy = value_axis("tokens_per_joule", "tokens per joule", from_zero(frame["tokens_per_joule"]), format=",f")
    utilisation, mfu = panels.utilisation(frame, context)
    called = panels.names_along(frame, x, rate, names, BLUE) if names else []
    above = (
        _throughput(frame, x),
        panels.series(frame, x, rate, f"(b) Throughput per {context.device}", BLUE, BOX, extra=called),
        _times(frame, x),
    )
    below = (
        panels.series(frame, x, mfu, f"(d) {utilisation}", GREEN, BOX),
        panels.series(frame, x, power, "(e) Total power", PURPLE, BOX, source="power_w_per_gpu"),
        panels.series(frame, x, energy, "(f) Power efficiency", PURPLE, BOX),
    )
    return alt.concat(*above, *below, columns=3, spacing={"row": 52, "column": 48}, bounds="flush")


def note(frame: pl.DataFrame) -> str:
    """What a reader of the six panels must know."""
    return f"{NOTE.format(bars=rows.bars(frame))} {panels.without_mfu(frame)}"


def changes(
    line: pl.DataFrame, context: FigureContext, columns: Mapping[str, str], provenance: str, which: str = ""
) -> str:
    """By how much metrics change from the first to the last scale of a line, as a sentence; empty for one scale.

    Args:
        line: records of one line, by rising scale.
        columns: from what a metric is called to its column; one that is not known at both ends is left out.
        provenance: of the line.
        which: what else tells the line from others.
    """
    found = {name: rows.change(line[column]) for name, column in columns.items()}
    said = ", ".join(f"{name} {change}" for name, change in found.items() if change)
    scales = " to ".join(f"{gpus:,}" for gpus in (line["gpus"][:1].to_list() + line["gpus"][-1:].to_list()))
    return f"{scales} {context.devices}: {said} ({MARKS[Provenance(provenance)].glyph}{which})." if said else ""


def _throughput(frame: pl.DataFrame, x: Axis) -> alt.LayerChart:
    ideal = "ideal_words_per_second"
    span = logarithmic(*(frame[name] for name in (rows.RATE, rows.LOW, rows.HIGH, ideal)))
    y = log_axis(rows.RATE, "words/s", span)
    layers = [
        *panels.guide(frame, x, y, ideal, "ideal", BOX),
        *panels.spread(frame, x, y, rows.LOW, rows.HIGH, BLUE),
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
