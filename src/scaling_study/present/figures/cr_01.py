"""CR, a layer: the all-reduces of tensor parallelism against what a rank computes, by degree and link."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, theme
from scaling_study.present.axes import Axis, doubling_axis, log_axis, logarithmic
from scaling_study.present.context import FigureContext
from scaling_study.present.numbers.core import quantity
from scaling_study.present.numbers.roofs import by_link
from scaling_study.present.roofs import DECODED, LINK_NAMES, PROMPT, overtaken
from scaling_study.present.theme import BLUE, GREEN, INK, MARKS, ORANGE, PAGE_WIDTH
from scaling_study.spec import Provenance

TITLE = "A layer's all-reduces against its computation"
CLAIMS = ("roofline-example", "roofline-tp")
COLORS = {"nvlink": ORANGE, "pcie": GREEN, "network": BLUE}
LOCAL, COLLECTIVES = "local_us", "all_reduces_us"
BOX = panels.Box(172, 118)
NOTE = (
    "Forward pass of {what}; rings at the full rate of their link. {glyph} Predicted from data sheets alone. "
    "NVLink beyond a node of {node} GPUs is hypothetical."
)
CROSSED = "All-reduces take longer from {prompt} with {tokens} tokens, from {decoded} with one."
REPORTED = (
    f"{MARKS[Provenance.REPORTED].glyph} Reported by CR: 8 MB over 300 GB/s take 27 µs, more than 20 µs of compute."
)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Time of a layer on one rank against the degree: a short prompt on the left, one decoded token on the right."""
    node = context.hardware[records["hardware"][0]].gpus_per_node
    parts = [_panel(records, tokens, letter, node) for tokens, letter in ((PROMPT, "a"), (DECODED, "b"))]
    body = alt.hconcat(*parts, spacing=84, bounds="flush")
    crossed = CROSSED.format(
        tokens=PROMPT, prompt=by_link(overtaken(records, PROMPT)), decoded=by_link(overtaken(records, DECODED))
    )
    sentences = [note("one layer", node), crossed, REPORTED]
    return panels.titled(body, TITLE, sentences, metadata(records, context, CLAIMS), context, PAGE_WIDTH)


def note(what: str, gpus_per_node: int) -> str:
    """What is drawn, and where it comes from."""
    return NOTE.format(what=what, node=gpus_per_node, glyph=MARKS[Provenance.PREDICTED].glyph)


def metadata(records: pl.DataFrame, context: FigureContext, claims: tuple[str, ...]) -> dict[str, object]:
    """What the chart's JSON says of itself: whose roofs they are, and the sources of the numbers."""
    part = context.hardware[records["hardware"][0]]
    return {
        "study": context.study,
        "figure": context.figure,
        "claims": list(claims),
        "provenance": Provenance.PREDICTED.value,
        "model": records["model"][0],
        "sources": dict(part.sources),
    }


def _panel(records: pl.DataFrame, tokens: int, letter: str, gpus_per_node: int) -> alt.LayerChart:
    frame = records.filter(tokens=tokens)
    x = doubling_axis("tp", frame["tp"], "tensor-parallel GPUs")
    several = frame.filter(pl.col("tp") > 1)
    y = log_axis(LOCAL, "µs per layer", logarithmic(frame[LOCAL], several[COLLECTIVES]), format=",~r")
    one = frame.filter(link=frame["link"][0])
    layers = panels.marks(one, x, y, INK)
    ends = [("compute", panels.last(one, "tp", LOCAL)[0], INK)]
    for link, name in LINK_NAMES.items():
        line = several.filter(link=link)
        if not line.is_empty():
            layers += panels.marks(line, x, y, COLORS[link], column=COLLECTIVES)
            ends.append((name, panels.last(line, "tp", COLLECTIVES)[0], COLORS[link]))
    size = frame["message_bytes"][0]
    message = f"{quantity(size / 1e6)} MB" if size >= 1e6 else f"{quantity(size / 1e3)} kB"
    title = f"({letter}) {tokens} token{'s' if tokens > 1 else ''}: messages of {message}"
    layers += [*panels.end_labels(ends, y, BOX), *node_edge(x, BOX, gpus_per_node)]
    return panels.panel(layers, title, BOX)


def node_edge(x: Axis, box: panels.Box, gpus: int) -> list[alt.Chart]:
    """A line between degrees that fit into a node and those that do not."""
    edge = gpus * 2**0.5
    place = round(x.span.fraction(edge) * box.width, 2)
    return [
        panels.level(edge, x, "x", dash=()),
        panels.words("one node", (place - 3, box.height - 5), align="right", color=theme.GREY),
    ]
