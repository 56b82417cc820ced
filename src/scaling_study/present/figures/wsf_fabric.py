"""An extra figure: what pacing is predicted to change on several fabrics, beside what WSF table 1 prints."""

from __future__ import annotations

import itertools
from typing import cast

import altair as alt
import polars as pl

from scaling_study.present import panels, theme
from scaling_study.present.axes import Axis, around, from_zero, row_axis, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, MARKS, PAGE_WIDTH, VERMILLION
from scaling_study.spec import Outcome, Provenance

TITLE = "What pacing would change on a fabric"
CLAIMS = ("coordination-shape", "coordination-table")
TITLES = {"throughput_change": "(a) Throughput", "cv_off": "(b) CV without pacing", "cv_adaptive": "(c) CV with pacing"}
BOX, SCAN = panels.Box(112, 150), panels.Box(142, 84)
NOTE = (
    "(a) to (c): medians over {seeds} seeds, each of which draws every parameter from its range; bars hold four "
    "of five. (d), (e): the change of throughput at 16 nodes by two of them, others at their value. Closest to the "
    "printed numbers comes a cost of early ranks of {cost:g} with {jitter:.1%} of jitter, off by up to {miss:.2g} of "
    "their tolerances: shown, not used."
)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """A row a fabric and number of nodes; below, the scan over the two parameters that matter most."""
    found = records.with_columns(outcome=pl.lit(Outcome.OK.value))
    above = alt.hconcat(*_predictions(found), spacing=22, bounds="flush")
    below = alt.hconcat(*_scan(found), spacing=110, bounds="flush")
    body = alt.vconcat(above, below, spacing=24)
    closest = found.filter(pl.col("closest")).row(0, named=True)
    seeds = found.filter(kind="prediction")["seeds"].max()
    note = NOTE.format(
        seeds=seeds, cost=closest["early_cost"], jitter=closest["iteration_jitter"], miss=closest["miss"]
    )
    sources = found.filter(kind="reported")["source"].unique().sort().to_list()
    sentences = [
        note,
        f"{MARKS[Provenance.PREDICTED].glyph} Predicted by the performance model for H100 nodes.",
        f"{MARKS[Provenance.REPORTED].glyph} Reported: {'; '.join(sources)}.",
    ]
    said = {"study": context.study, "figure": context.figure, "claims": list(CLAIMS)}
    return panels.titled(body, TITLE, sentences, said, context, PAGE_WIDTH)


def _predictions(found: pl.DataFrame) -> list[alt.LayerChart]:
    own = found.filter(kind="prediction")
    order = own.select("fabric", "placement", "nodes").unique(maintain_order=True).with_row_index("row")
    labels = [f"{_name(row['fabric'], row['placement'])}, {row['nodes']}" for row in order.iter_rows(named=True)]
    own = own.join(order, on=["fabric", "placement", "nodes"], maintain_order="left")
    printed = found.filter(kind="reported").drop("fabric", "placement")
    printed = printed.join(order, on="nodes", maintain_order="left")
    frame = pl.concat([own, printed.select(own.columns)])
    parts = []
    for place, (metric, title) in enumerate(TITLES.items()):
        part = frame.filter(metric=metric)
        span = around if metric == "throughput_change" else from_zero
        ends = (part["low"], part["high"], part["value"])
        x = value_axis("value", None, span(*ends), format="+~%" if place == 0 else "~g")
        y = row_axis("row", labels if place == 0 else [""] * len(labels), None)
        layers = [panels.level(0.0, x, "x")] if place == 0 else []
        layers += panels.spread(part.filter(kind="prediction"), x, y, "low", "high", BLUE, along="x")
        layers += panels.marks(part, x, y, BLUE, line=False)
        parts.append(panels.panel(layers, title, BOX))
    return parts


def _name(fabric: str, placement: str) -> str:
    return f"{fabric}{'' if placement == 'packed' else f' ({placement})'}".replace("oversubscribed", "7:1")


def _scan(found: pl.DataFrame) -> list[alt.LayerChart]:
    """By the cost of early ranks, a line a jitter; and by jitter, a line a cost."""
    largest = cast(int, found["nodes"].max())
    scan = found.filter(kind="scan", nodes=largest, metric="throughput_change")
    printed = found.filter(kind="reported", nodes=largest, metric="throughput_change")
    y = value_axis(
        "value", "change of throughput", around(scan["value"], printed["value"], pl.Series([0.0])), format="+~%"
    )
    parts = []
    for (along, other), title in zip(
        itertools.permutations(("early_cost", "iteration_jitter")),
        ("(d) By what early ranks cost", "(e) By jitter of iterations"),
        strict=True,
    ):
        names = {"early_cost": "transfer seconds per second waited", "iteration_jitter": "jitter of a GPU's iteration"}
        x = value_axis(along, names[along], from_zero(scan[along]), format="~g" if along == "early_cost" else "~%")
        parts.append(_lines(scan, printed, x, y, other, title))
    return parts


def _lines(scan: pl.DataFrame, printed: pl.DataFrame, x: Axis, y: Axis, other: str, title: str) -> alt.LayerChart:
    values = scan[other].unique().sort().to_list()
    layers, ends = [panels.level(0.0, y, "y")], []
    for value, color in zip(values, theme.ramp(len(values)), strict=True):
        line = scan.filter(pl.col(other) == value)
        layers += panels.marks(line, x, y, color)
        name = f"jitter {value:.1%}" if other == "iteration_jitter" else f"cost {value:g}"
        ends += [(name, end, color) for end in panels.last(line, x.column, "value")]
    target = float(printed["value"].item())
    layers += [
        panels.level(target, y, "y", dash=()),
        panels.words(
            f"{MARKS[Provenance.REPORTED].glyph} printed {target:+.1%}",
            (SCAN.width - 4, round(SCAN.height * (1 - y.span.fraction(target)) + 6, 2)),
            align="right", color=VERMILLION,
        ),
        *panels.end_labels(ends, y, SCAN),
    ]  # fmt: skip
    return panels.panel(layers, title, SCAN)
