"""WSF figure 1: throughput and steadiness of data-parallel training against scale, nobody held back."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, rows
from scaling_study.present.axes import doubling_axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.coordination import CV, RATE, by_scale
from scaling_study.present.theme import BLUE, PAGE_WIDTH, PURPLE, VERMILLION
from scaling_study.spec import Pacing

TITLE = "Scaling, and how steady it is"
CLAIMS = ("coordination-shape",)
LOCAL = "words_per_second_per_gpu"
METRICS = (RATE, LOCAL, CV)
BOX = panels.Box(122, 104)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Throughput beside ideal scaling, throughput a rank, and the variation of iterations, medians over repeats."""
    base = records.filter(pl.col("pacing") == Pacing.OFF)
    frame = rows.with_ideal(by_scale(base, *METRICS))
    x = doubling_axis("gpus", frame["gpus"], context.devices)
    ideal = "ideal_words_per_second"
    rate = value_axis(RATE, "words/s", from_zero(frame[RATE], frame[ideal]))
    local = value_axis(LOCAL, f"words/s per {context.device}", from_zero(frame[f"{LOCAL}_high"]))
    variation = value_axis(CV, "CV of iteration time", from_zero(frame[f"{CV}_high"]), format="~g")
    parts = (
        panels.series(
            frame, x, rate, "(a) Throughput", BLUE, BOX, extra=panels.guide(frame, x, rate, ideal, "ideal", BOX)
        ),
        panels.series(
            frame, x, local, f"(b) Per {context.device}", PURPLE, BOX,
            extra=panels.spread(frame, x, local, f"{LOCAL}_low", f"{LOCAL}_high", PURPLE),
        ),
        panels.series(
            frame, x, variation, "(c) Unsteadiness", VERMILLION, BOX,
            extra=panels.spread(frame, x, variation, f"{CV}_low", f"{CV}_high", VERMILLION),
        ),
    )  # fmt: skip
    body = alt.hconcat(*parts, spacing=46, bounds="flush")
    note = f"Without pacing; medians of up to {max(frame['repeats'].to_list())} repeats, bars their whole range."
    return panels.finished(body, TITLE, base, context, claims=CLAIMS, metrics=METRICS, width=PAGE_WIDTH, note=note)
