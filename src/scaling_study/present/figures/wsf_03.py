"""WSF figures 3 and 4: where the coordination layer sits in this system, as one diagram."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, theme
from scaling_study.present.context import FigureContext
from scaling_study.present.rows import within_budget
from scaling_study.present.theme import BLUE, GREEN, ORANGE, PAGE_WIDTH, VERMILLION

TITLE = "Where the coordination layer sits"
CLAIMS = ()
BOX = panels.Box(496, 172)
#: The layers of a rank from above to below: name, what it is, its colour, and whether it is the coordination layer.
LAYERS = (
    ("training step", "Llama-2, AdamW; unchanged", GREEN, False),
    ("FSDP2, tensor and pipeline parallelism", "PyTorch's own; unchanged", GREEN, False),
    ("watched process group", "tells of every call, passes it on", VERMILLION, True),
    ("gloo", "the real process group", BLUE, False),
)
WIDE, HIGH, STEP, LEFT, RIGHT = 172.0, 24.0, 32.0, 2.0, 322.0
MIDDLE = (202.0, 92.0)
CONSTANTS = ("gain", "margin", "bound", "block", "pairs")


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """Two ranks, each with its observer and controller, and what they share.

    Args:
        records: constants of the controller, columns `constant` and `value`.
    """
    constants = dict(records.select("constant", "value").iter_rows())
    layers = [*_rank(LEFT, "a rank that keeps arriving early"), *_rank(RIGHT, "the rank that is last")]
    layers += _shared()
    shown = ", ".join(f"{name} {constants[name]:g}" for name in CONSTANTS)
    sentences = [
        "Orange: the coordination layer; all else is the same without it. The observer keeps when a rank arrives; "
        "ranks share one maximum an iteration; the controller of an early rank holds it back before its next gradient "
        "synchronisation, within a bound, and turns itself off where trials show no help.",
        f"Constants of the controller: {shown}. A drawing of this system; it shows no measurement.",
    ]
    said = {"study": context.study, "figure": context.figure, "claims": [], "constants": constants}
    return panels.titled(alt.hconcat(panels.panel(layers, "", BOX)), TITLE, sentences, said, context, PAGE_WIDTH)


def _rank(left: float, name: str) -> list[alt.Chart]:
    """The layers of one rank, with arrows down between them, and the fabric below."""
    drawn = [panels.words(name, (left + WIDE / 2, 4), align="center", fontWeight=600, color=theme.INK)]
    for index, (title, what, color, ours) in enumerate(LAYERS):
        top = 12 + index * STEP
        drawn.append(_box((left, top), (WIDE, HIGH), ORANGE if ours else "white", color, 0.25 if ours else 1.0))
        drawn.append(
            panels.words(title, (left + WIDE / 2, top + 8), align="center", baseline="middle", color=theme.INK)
        )
        drawn.append(panels.words(what, (left + WIDE / 2, top + 17), align="center", baseline="middle", fontSize=6))
        drawn.append(_line((left + WIDE / 2, top + HIGH), (left + WIDE / 2, top + STEP), theme.GREY))
    return drawn


def _shared() -> list[alt.Chart]:
    """The observer, the exchange and the controller between two ranks, and the fabric under both."""
    x, y = MIDDLE
    width = RIGHT - LEFT - WIDE - 36
    fabric = 12 + len(LAYERS) * STEP
    drawn = [_box((LEFT, fabric), (RIGHT + WIDE - LEFT, 18), theme.PAPER, theme.FAINT)]
    drawn.append(panels.words("fabric", ((LEFT + RIGHT + WIDE) / 2, fabric + 9), align="center", baseline="middle"))
    for place, (title, what) in enumerate(
        (
            ("observer", "arrivals on one clock"),
            ("exchange", "the last arrivals, a maximum"),
            ("controller", "a hold for the early rank"),
        )
    ):
        top = y - 78 + place * 34
        drawn.append(_box((x - 10, top), (width + 4, 25), ORANGE, VERMILLION, 0.25))
        drawn.append(
            panels.words(title, (x - 8 + width / 2, top + 8), align="center", baseline="middle", color=theme.INK)
        )
        drawn.append(panels.words(what, (x - 8 + width / 2, top + 18), align="center", baseline="middle", fontSize=6))
    group = 12 + 2 * STEP + HIGH / 2
    drawn += [
        _line((LEFT + WIDE, group), (x - 10, group), VERMILLION, dash=[2, 2]),
        _line((x - 6 + width, group), (RIGHT, group), VERMILLION, dash=[2, 2]),
    ]
    return drawn


def _box(at: tuple[float, float], size: tuple[float, float], fill: str, stroke: str, opacity: float = 1.0) -> alt.Chart:
    base: alt.Chart = alt.Chart(within_budget(pl.DataFrame({"one": [1]}))).mark_rect(
        fill=fill, stroke=stroke, strokeWidth=0.8, fillOpacity=opacity
    )
    return base.encode(
        x=alt.value(at[0]), x2=alt.value(at[0] + size[0]), y=alt.value(at[1]), y2=alt.value(at[1] + size[1])
    )


def _line(
    start: tuple[float, float], end: tuple[float, float], color: str, dash: list[float] | None = None
) -> alt.Chart:
    base: alt.Chart = alt.Chart(within_budget(pl.DataFrame({"one": [1]}))).mark_rule(
        color=color, strokeWidth=1.0, strokeDash=dash or [1, 0]
    )
    return base.encode(x=alt.value(start[0]), x2=alt.value(end[0]), y=alt.value(start[1]), y2=alt.value(end[1]))
