"""CR, a whole model: past some degree of tensor parallelism more GPUs give fewer tokens, sooner on a slower link."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels
from scaling_study.present.axes import doubling_axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.figures.cr_01 import COLORS, metadata, node_edge, note
from scaling_study.present.numbers.roofs import by_link
from scaling_study.present.roofs import DECODED, LINK_NAMES, PROMPT, fastest
from scaling_study.present.theme import PAGE_WIDTH

TITLE = "What tensor parallelism gives a whole model"
CLAIMS = ("roofline-tp", "roofline-decode")
RATE = "tokens_per_second"
BOX = panels.Box(172, 104)
NOTE = "Ringed: the fastest degree of a link, {prompt} for {tokens} tokens, {decoded} for one."


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Tokens/s of one replica against the degree: a short prompt on the left, one decoded token on the right."""
    node = context.hardware[records["hardware"][0]].gpus_per_node
    titles = {PROMPT: f"(a) A prompt of {PROMPT} tokens", DECODED: "(b) Decoding, one sequence"}
    parts = [_panel(records, tokens, title, node) for tokens, title in titles.items()]
    body = alt.hconcat(*parts, spacing=84, bounds="flush")
    best = {tokens: by_link(dict(fastest(records, tokens))) for tokens in titles}
    said = NOTE.format(tokens=PROMPT, prompt=best[PROMPT], decoded=best[DECODED])
    lead = note("all layers", node)
    return panels.titled(body, TITLE, [lead, said], metadata(records, context, CLAIMS), context, PAGE_WIDTH)


def _panel(records: pl.DataFrame, tokens: int, title: str, gpus_per_node: int) -> alt.LayerChart:
    frame = records.filter(tokens=tokens)
    x = doubling_axis("tp", frame["tp"], "tensor-parallel GPUs")
    y = value_axis(RATE, "tokens/s", from_zero(frame[RATE]), format=",f")
    layers, ends = node_edge(x, BOX, gpus_per_node), []
    best = fastest(records, tokens)
    for link, name in LINK_NAMES.items():
        line = frame.filter(link=link)
        if line.is_empty():
            continue
        color = COLORS[link]
        layers += panels.marks(line, x, y, color)
        top = panels.chart(line.filter(tp=best[link]), "tp", RATE).encode(x=x.x(), y=y.y())
        layers.append(top.mark_point(shape="circle", size=72, stroke=color, strokeWidth=0.9, opacity=1))
        ends.append((name, panels.last(line, "tp", RATE)[0], color))
    return panels.panel([*layers, *panels.end_labels(ends, y, BOX)], title, BOX)
