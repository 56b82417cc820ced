"""How everything that is drawn looks: one font, one palette, one mark for each provenance, sizes made for print.

A Vega pixel is a point of the printed page: a figure as wide as a column or the page is put there unscaled, so the
sizes below are the sizes read on paper. Colours are Okabe and Ito's, which remain apart for colour-blind readers.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from scaling_study.errors import UserError
from scaling_study.spec import Provenance

#: A family name without digits: with one, the renderer finds the face but measures its text by a guess.
FONT = "Source Sans Pro"
#: The generic family is for viewers of the SVG that lack the font; the renderer has it.
FONT_FAMILY = f"{FONT}, sans-serif"
FONT_FOLDER = Path(__file__).with_name("fonts")
FONT_FILES = ("SourceSansPro-Regular.otf", "SourceSansPro-It.otf", "SourceSansPro-Semibold.otf")

#: Widths of a figure in points: one column, and both columns with their gutter.
COLUMN_WIDTH = 241
PAGE_WIDTH = 504

TITLE_SIZE, PANEL_TITLE_SIZE, TEXT_SIZE, NOTE_SIZE = 9.5, 8, 7.5, 7

BLUE, VERMILLION, GREEN, ORANGE, PURPLE = "#0072B2", "#D55E00", "#009E73", "#B87A00", "#A8558A"
#: Stops from the least to the most of a quantity: the darker part of viridis, whose lightness falls steadily, so that
#: the order is seen in grey print and by colour-blind readers, and whose lightest colour can still be read as text.
RAMP = ("#27AD81", "#1F958B", "#277F8E", "#31668E", "#3E4A89", "#472D7B", "#440154")
INK, GREY, FAINT, GRID, PAPER = "#222222", "#666666", "#9A9A9A", "#E7E7E7", "#F6F6F4"


class MarkStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How the marks of one provenance look.

    Attributes:
        glyph: the mark as a character of `FONT`, for captions.
        shape: Vega symbol.
        hollow: whether the symbol is filled with the background.
        size: of the symbol, in square points.
        dash: of lines, in points; None where no line joins the marks.
    """

    glyph: str
    shape: str
    hollow: bool = False
    size: float = 17
    dash: tuple[float, ...] | None = ()


MARKS = {
    Provenance.MEASURED: MarkStyle(glyph="●", shape="circle"),
    Provenance.PREDICTED: MarkStyle(glyph="○", shape="circle", hollow=True, dash=(3, 2)),
    Provenance.REPORTED: MarkStyle(glyph="◆", shape="diamond", size=12, dash=None),
}

#: Signs of the printed page.
TIMES_SIGN, MINUS_SIGN = "\N{MULTIPLICATION SIGN}", "\N{MINUS SIGN}"

#: A run that left no numbers: a saltire, drawn as a stroke.
CROSS = "M-1,-1L1,1M-1,1L1,-1"


def config() -> dict[str, Any]:
    """The Vega-Lite configuration that goes into every figure."""
    return {
        "font": FONT_FAMILY,
        "background": "white",
        "padding": 3,
        "view": {"stroke": None},
        "axis": {
            "translate": 0,
            "labelFontSize": NOTE_SIZE,
            "titleFontSize": TEXT_SIZE,
            "titleFontWeight": 400,
            "labelColor": INK,
            "titleColor": INK,
            "titlePadding": 4,
            "labelPadding": 2,
            "gridColor": GRID,
            "gridWidth": 0.6,
            "domainColor": FAINT,
            "domainWidth": 0.6,
            "tickColor": FAINT,
            "tickWidth": 0.6,
            "tickSize": 3,
        },
        "axisX": {"titlePadding": 2, "labelFlush": False},
        "title": {
            "anchor": "start",
            "frame": "bounds",
            "color": INK,
            "fontSize": TITLE_SIZE,
            "fontWeight": 600,
            "offset": 10,
            "subtitleColor": GREY,
            "subtitleFontSize": NOTE_SIZE,
            "subtitlePadding": 2,
        },
        "text": {"fontSize": NOTE_SIZE, "color": INK},
        "line": {"strokeWidth": 1.3},
        "point": {"strokeWidth": 1.1},
    }


def ramp(count: int) -> list[str]:
    """As many colours, evenly spaced along `RAMP`; a single one is its middle."""
    last = len(RAMP) - 1
    places = [last * index / (count - 1) for index in range(count)] if count > 1 else [last / 2] * count
    return [_between(place) for place in places]


def _between(place: float) -> str:
    before = min(int(place), len(RAMP) - 2)
    pair = [[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in RAMP[before : before + 2]]
    mixed = [round(low + (high - low) * (place - before)) for low, high in zip(*pair, strict=True)]
    return "#" + "".join(f"{part:02X}" for part in mixed)


@cache
def register_fonts() -> None:
    """Make the shipped font known to the renderer, once a process.

    Raises:
        UserError: a face is missing, so that text would be drawn in another font.
    """
    import vl_convert

    if missing := [name for name in FONT_FILES if not (FONT_FOLDER / name).is_file()]:
        raise UserError(f"the font face {missing[0]} is missing", where=str(FONT_FOLDER), remedy="Install again.")
    vl_convert.register_font_directory(str(FONT_FOLDER))
