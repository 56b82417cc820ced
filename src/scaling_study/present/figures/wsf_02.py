"""WSF figure 2: one iteration as ranks see it, and what the time that they wait is due to."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels
from scaling_study.present.axes import Axis, doubling_axis, from_zero, row_axis, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, FAINT, GREEN, MARKS, ORANGE, PAGE_WIDTH, PURPLE, VERMILLION
from scaling_study.spec import Pacing, Provenance

TITLE = "Who waits for whom"
CLAIMS = ("coordination-shape",)
CAUSES = {
    "lost_compute_imbalance_s": ("compute imbalance", BLUE),
    "lost_host_s": ("host", VERMILLION),
    "lost_network_s": ("network", GREEN),
    "lost_topology_s": ("topology", ORANGE),
    "lost_locality_s": ("locality", PURPLE),
}
LANES, COLUMNS = panels.Box(246, 96), panels.Box(112, 96)
NOTE = (
    "(a): an iteration without pacing, that with the median lost time; a bar is a rank's wait for the last one, the "
    "mark the last arrival, a line work and transfers. (b): time lost at synchronisations, medians over up to "
    "{repeats} runs: lateness of the last rank over the median rank, and transfers over the quickest. Topology and "
    "locality need groups to compare, of which one machine has none. Observing took {off:.2%} of an iteration at most, "
    "pacing with its exchange {adaptive:.2%} in the median run and {most:.2%} at most."
)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """The lanes of the ranks of the largest run, and lost time by cause against ranks."""
    runs = records.filter(kind="axis", axis="dp", pacing=Pacing.OFF.value)
    paced = records.filter(kind="axis", axis="dp", pacing=Pacing.ADAPTIVE.value)
    sample = records.filter(kind="sample", pacing=Pacing.OFF.value)
    sample = sample.filter(pl.col("gpus") == pl.col("gpus").max())
    parts = (_lanes(sample), _causes(runs))
    body = alt.hconcat(*parts, spacing=58, bounds="flush")
    device = ", ".join(records["device"].unique().sort().to_list())
    sentences = [
        NOTE.format(
            repeats=runs["repeat"].n_unique(),
            off=runs["overhead"].max(),
            adaptive=paced["overhead"].median(),
            most=paced["overhead"].max(),
        ),
        f"{MARKS[Provenance.MEASURED].glyph} Measured on {device}, {max(records['host_cores'].to_list())} cores, which "
        "ranks share.",
    ]
    said = {
        "study": context.study,
        "figure": context.figure,
        "claims": list(CLAIMS),
        "runs": records.select("run_id", "provenance").unique().sort("run_id").to_dicts(),
    }
    return panels.titled(body, TITLE, sentences, said, context, PAGE_WIDTH)


def _lanes(sample: pl.DataFrame) -> alt.LayerChart:
    """A lane a rank: when it entered each synchronisation, and until when it waited for the last one."""
    last = pl.col("entered_s").max().over("place")
    frame = sample.with_columns(last_ms=last * 1e3, entered_ms=pl.col("entered_s") * 1e3, row=pl.col("rank"))
    frame = frame.with_columns(is_last=pl.col("entered_ms") == pl.col("last_ms"))
    x = value_axis("entered_ms", "ms from the first arrival", from_zero(frame["last_ms"]), format=",~r")
    y = row_axis("row", [f"rank {rank}" for rank in frame["rank"].unique().sort()], None)
    lane = frame.group_by("row", maintain_order=True).agg(
        entered_ms=pl.col("entered_ms").min(), last_ms=pl.col("last_ms").max()
    )
    base = panels.chart(lane, "row", "entered_ms", "last_ms")
    layers = [
        base.mark_rule(color=FAINT, strokeWidth=0.8).encode(y=y.y(), x=x.x(), x2=alt.X2("last_ms")),
        *_waits(frame.filter(~pl.col("is_last")), x, y),
    ]
    marked = panels.chart(frame.filter("is_last"), "row", "entered_ms")
    layers.append(
        marked.mark_point(shape="circle", size=17, fill=VERMILLION, stroke=VERMILLION, opacity=1).encode(
            x=x.x(), y=y.y()
        )
    )
    return panels.panel(layers, "(a) Arrivals at synchronisations", LANES)


def _waits(frame: pl.DataFrame, x: Axis, y: Axis) -> list[alt.Chart]:
    base = panels.chart(frame, "row", "entered_ms", "last_ms")
    return [base.mark_rule(color=BLUE, strokeWidth=5).encode(y=y.y(), x=x.x(), x2=alt.X2("last_ms"))]


def _causes(runs: pl.DataFrame) -> alt.LayerChart:
    """Lost time of an iteration against ranks, a line a cause."""
    frame = runs.group_by("gpus", "provenance", maintain_order=True).agg(
        outcome=pl.lit("ok"), **{name: pl.col(name).median() * 1e3 for name in CAUSES}
    ).sort("gpus")  # fmt: skip
    shown = [name for name in CAUSES if (frame[name].max() or 0) > 0]  # type: ignore[operator]
    x = doubling_axis("gpus", frame["gpus"], "ranks")
    y = value_axis("lost", "ms an iteration", from_zero(*(frame[name] for name in shown)), format=",~r")
    layers, ends = [], []
    for name in shown:
        label, color = CAUSES[name]
        layers += panels.marks(frame, x, y, color, column=name)
        ends += [(label, value, color) for value in panels.last(frame, "gpus", name)]
    return panels.panel([*layers, *panels.end_labels(ends, y, COLUMNS)], "(b) Time lost, by cause", COLUMNS)
