"""A chart into files: SVG for the paper, PNG for reading, and the Vega-Lite JSON that tests and readers compare.

The same chart gives the same bytes in every folder and locale: data are sorted and rounded before they get here, and
whatever themes or limits a caller has enabled in Altair are neither used nor changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair as alt

from scaling_study.errors import write_atomically
from scaling_study.present import theme

PIXELS_PER_INCH = 200
LOCALE = "en-US"


def render(chart: alt.TopLevelMixin, folder: Path, name: str) -> list[Path]:
    """Write `<name>.svg`, `<name>.png` and `<name>.vl.json` into a folder, each complete or not at all.

    Returns:
        the files, in this order.

    Raises:
        UserError: the folder cannot be written, or the font is not there.
    """
    import vl_convert

    theme.register_fonts()
    spec = specification(chart)
    version = alt.SCHEMA_VERSION.rpartition(".")[0]
    options: dict[str, Any] = {"vl_version": version, "format_locale": LOCALE, "allowed_base_urls": []}
    svg = vl_convert.vegalite_to_svg(spec, **options)
    contents = {
        "svg": svg.encode(),
        "png": vl_convert.svg_to_png(svg, ppi=PIXELS_PER_INCH),  # as from the chart, without drawing it twice
        "vl.json": (json.dumps(spec, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(),
    }
    paths = [folder / f"{name}.{suffix}" for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomically(path, content)
    return paths


def specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The Vega-Lite specification of a chart with the project's theme, free of what is enabled in Altair."""
    with alt.theme.enable("none"), alt.data_transformers.enable("default"):
        spec: dict[str, Any] = chart.to_dict()
    return {**spec, "config": theme.config()}
