"""HST figure 13: a fixed global batch at the scale of pretraining, one model, each scale with its fastest layout."""

from __future__ import annotations

from itertools import cycle

import altair as alt
import msgspec
import polars as pl

from scaling_study.present import panels, rows, scaling
from scaling_study.present.axes import Axis, doubling_axis, from_zero, log_axis, logarithmic, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, GREEN, ORANGE, PAGE_WIDTH, PURPLE, TIMES_SIGN, VERMILLION

TITLE = "Scaling {model} at a fixed global batch"
CLAIMS = ("pretraining-mfu",)
VARYING = ("nodes", "gpus", "dp", "tp", "pp", "global_batch")
COLORS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE)
RATE, LOCAL_RATE, IDEAL = "words_per_second", "words_per_second_per_gpu", "ideal_words_per_second"
METRICS = (RATE, LOCAL_RATE, "mfu", "exposed_fraction")
BOX = panels.Box(74, 82)
#: Of the width, left of the first scale, where the name of its lower mark stands.
ROOM = 0.1
NOTE = f"Each scale with its fastest layout, in (b) tensor {TIMES_SIGN} pipeline"


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Global and local throughput, utilisation and exposed communication; one line a global batch."""
    frame = rows.with_layout(rows.one_series(rows.chosen(records, rows.ACROSS_LAYOUTS), VARYING, context))
    frame = pl.concat([rows.with_ideal(part) for part in frame.sort("global_batch").partition_by("global_batch")])
    exposed = from_zero(frame["exposed_fraction"])
    utilisation, mfu = panels.utilisation(frame, context)
    axes = {
        "(a) Global throughput": log_axis(RATE, "words/s", logarithmic(frame[RATE], frame[IDEAL])),
        f"(b) Throughput per {context.device}": value_axis(LOCAL_RATE, "words/s", from_zero(frame[LOCAL_RATE])),
        f"(c) {utilisation}": mfu,
        "(d) Exposed communication": value_axis("exposed_fraction", "share of an iteration", exposed, format="~%"),
    }
    scales = doubling_axis("gpus", frame["gpus"], context.devices)
    x = msgspec.structs.replace(scales, span=scales.span.with_room(ROOM))
    body = alt.hconcat(*(_panel(frame, x, y, title) for title, y in axes.items()), spacing=46, bounds="flush")
    note = f"{NOTE}{rows.preference(frame)}. {_changes(frame, mfu.column, context)} {panels.without_mfu(frame)}"
    title = TITLE.format(model=frame["model"][0])
    return panels.finished(body, title, records, context, claims=CLAIMS, metrics=METRICS, width=PAGE_WIDTH, note=note)


def _panel(frame: pl.DataFrame, x: Axis, y: Axis, title: str) -> alt.LayerChart:
    lines = frame.partition_by("global_batch", maintain_order=True)
    layers, ends = [], []
    for index, (line, color) in enumerate(zip(lines, cycle(COLORS), strict=False)):
        aside = 9 * (index - (len(lines) - 1) / 2)
        last = index == len(lines) - 1
        if y.column == RATE:
            layers += panels.guide(line, x, y, IDEAL, "ideal" if last else "", BOX)
        layers += panels.marks(line, x, y, color)
        layers += panels.crosses(line, x, y, BOX, beside=frame, color=color, aside=aside)
        if y.column == LOCAL_RATE:
            layers += panels.names_along(line, x, y, "layout", color, below=not last, stay=len(lines) > 1)
        name = f"batch {line['global_batch'][0]:,}"
        ends += [(name, value, color) for value in panels.last(line, x.column, y.column)]
    if y.column == "exposed_fraction":
        layers += panels.end_labels(ends, y, BOX)
    return panels.metric_panel(layers, frame, y.column, title, BOX)


def _changes(frame: pl.DataFrame, utilisation: str, context: FigureContext) -> str:
    """How throughput and utilisation change over the scales, of each batch and provenance."""
    columns = {"throughput": RATE, "MFU" if utilisation == "mfu" else "TFLOPS": utilisation}
    parts = panels.known(frame, RATE).sort("gpus").partition_by("global_batch", "provenance", as_dict=True)
    return " ".join(
        scaling.changes(part, context, columns, provenance, f", batch {batch:,}")
        for (batch, provenance), part in sorted(parts.items())
    )
