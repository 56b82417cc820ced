"""WSF figures 3 and 4: where the coordination layer sits in this system, as one diagram."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels, theme
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, GREEN, ORANGE, PAGE_WIDTH, VERMILLION
from scaling_study.synchronisation.controller import EXCHANGE_EVERY

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
OUTLINE, STROKE = 0.8, 1.0
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
        f"ranks share maxima every {EXCHANGE_EVERY} iterations; the controller of an early rank holds it back before "
        "its next gradient synchronisation, within a bound, and turns itself off where trials show no help.",
        f"Constants of the controller: {shown}. A drawing of this system; it shows no measurement.",
    ]
    said = {"study": context.study, "figure": context.figure, "claims": [], "constants": constants}
    return panels.titled(alt.hconcat(panels.panel(layers, "", BOX)), TITLE, sentences, said, context, PAGE_WIDTH)


def _rank(left: float, name: str) -> list[alt.Chart]:
    """The layers of one rank, with arrows down between them, and the fabric below."""
    middle = left + WIDE / 2
    drawn = [panels.words(name, (middle, 4), align="center", fontWeight=600, color=theme.INK)]
    for index, (title, what, color, ours) in enumerate(LAYERS):
        top = 12 + index * STEP
        drawn.append(
            panels.rectangle(
                (left, top), (WIDE, HIGH), ORANGE if ours else "white", color, 0.25 if ours else 1.0, OUTLINE
            )
        )
        drawn.append(panels.words(title, (middle, top + 8), align="center", baseline="middle", color=theme.INK))
        drawn.append(panels.words(what, (middle, top + 17), align="center", baseline="middle", fontSize=6))
        drawn.append(panels.straight((middle, top + HIGH), (middle, top + STEP), color=theme.GREY, strokeWidth=STROKE))
    return drawn


def _shared() -> list[alt.Chart]:
    """The observer, the exchange and the controller between two ranks, and the fabric under both."""
    x, y = MIDDLE
    width = RIGHT - LEFT - WIDE - 36
    fabric = 12 + len(LAYERS) * STEP
    drawn = [panels.rectangle((LEFT, fabric), (RIGHT + WIDE - LEFT, 18), theme.PAPER, theme.FAINT, width=OUTLINE)]
    drawn.append(panels.words("fabric", ((LEFT + RIGHT + WIDE) / 2, fabric + 9), align="center", baseline="middle"))
    for place, (title, what) in enumerate(
        (
            ("observer", "arrivals on one clock"),
            ("exchange", "the last arrivals, a maximum"),
            ("controller", "a hold for the early rank"),
        )
    ):
        top = y - 78 + place * 34
        drawn.append(panels.rectangle((x - 10, top), (width + 4, 25), ORANGE, VERMILLION, 0.25, OUTLINE))
        drawn.append(
            panels.words(title, (x - 8 + width / 2, top + 8), align="center", baseline="middle", color=theme.INK)
        )
        drawn.append(panels.words(what, (x - 8 + width / 2, top + 18), align="center", baseline="middle", fontSize=6))
    group = 12 + 2 * STEP + HIGH / 2
    drawn += [
        panels.straight((LEFT + WIDE, group), (x - 10, group), color=VERMILLION, strokeWidth=STROKE, strokeDash=[2, 2]),
        panels.straight(
            (x - 6 + width, group), (RIGHT, group), color=VERMILLION, strokeWidth=STROKE, strokeDash=[2, 2]
        ),
    ]
    return drawn
