"""The figures: one small module each, a pure function from records to a chart, and the claims that it supports.

Modules are imported when they are drawn, so that naming a figure costs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, cast

import msgspec
import polars as pl

from scaling_study.errors import UserError
from scaling_study.present.context import FigureContext, context_for
from scaling_study.present.coordination import controller_rows
from scaling_study.present.roofs import roof_rows
from scaling_study.present.rows import selected, without_invalid
from scaling_study.present.tables import hardware_rows
from scaling_study.spec import Catalogue, Study

if TYPE_CHECKING:
    import altair as alt

#: From the id of a figure to its module in this package.
MODULES = {
    "accuracy": "accuracy",
    "cr-01": "cr_01",
    "cr-02": "cr_02",
    "hst-01": "hst_01",
    "hst-02": "hst_02",
    "hst-03": "hst_03",
    "hst-04": "hst_04",
    "hst-05": "hst_05",
    "hst-06": "hst_06",
    "hst-07": "hst_07",
    "hst-08": "hst_08",
    "hst-09": "hst_09",
    "hst-10": "hst_10",
    "hst-11": "hst_11",
    "hst-12": "hst_12",
    "hst-13": "hst_13",
    "hst-14": "hst_14",
    "hst-fabric": "hst_fabric",
    "sensitivity": "sensitivity",
    "wsf-01": "wsf_01",
    "wsf-02": "wsf_02",
    "wsf-03": "wsf_03",
    "wsf-05": "wsf_05",
    "wsf-fabric": "wsf_fabric",
}

#: What a figure shows that follows from definitions alone, and the function that makes it.
OF_DEFINITIONS: dict[str, Callable[[Catalogue], pl.DataFrame]] = {
    "hardware": hardware_rows,
    "roofs": roof_rows,
    "system": lambda _: controller_rows(),
}


class FigureModule(Protocol):
    """What every module of a figure has."""

    CLAIMS: tuple[str, ...]

    def draw(self, records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
        """The chart of the records, or of the table or the definitions that the figure shows."""


def base_id(name: str) -> str:
    """The id under which a figure is registered: `hst-06` for `hst-06a`."""
    return name if name in MODULES or not name[-1:].isalpha() else name[:-1]


def figure_module(name: str) -> FigureModule:
    """The module that draws a figure, by its id or the id of one of its parts.

    Raises:
        UserError: no module draws it.
    """
    base = base_id(name)
    if base not in MODULES:
        raise UserError(f"no module draws {name!r}", where="figures", remedy=f"Known: {', '.join(MODULES)}.")
    return cast(FigureModule, importlib.import_module(f"{__name__}.{MODULES[base]}"))


def draw_figure(
    study: Study,
    name: str,
    records: pl.DataFrame | None,
    catalogue: Catalogue,
    timelines: Mapping[str, pl.DataFrame] | None = None,
) -> alt.TopLevelMixin:
    """One figure of a study, from the records of its sweep or from what else it shows.

    Args:
        study: the study that asks for the figure.
        name: id of the figure.
        records: rows of the sweep that the study names for it, or the table that it shows; None for definitions.
        catalogue: the hardware and the models that records may name.
        timelines: of single runs, by run id, where the figure shows some.

    Raises:
        UserError: the study has no such figure, no module draws it, or no record is there to draw.
    """
    from altair.utils.schemapi import debug_mode

    request = study.figure(name)
    module = figure_module(request.draw or name)
    if request.of in OF_DEFINITIONS:
        records = OF_DEFINITIONS[request.of](catalogue)
    assert records is not None
    drawn, invalid = without_invalid(selected(records, request.where, f"study {study.name}, figure {name}"))
    if drawn.is_empty():
        raise UserError(
            f"no record to draw in {name}",
            where=f"study {study.name}, sweep {request.sweep}",
            remedy="Measure or predict the sweep first.",
        )
    names = drawn["hardware"].unique().sort().to_list() if "hardware" in drawn.columns else []
    context = context_for(study, name, request, catalogue, names, timelines)
    with debug_mode(False):  # what is drawn is validated once, as a whole, not part by part as well
        return module.draw(drawn, msgspec.structs.replace(context, left_out=invalid))
