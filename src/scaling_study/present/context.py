"""What a figure may know beside its records: where they belong, and how to name a rank of their hardware."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import polars as pl

from scaling_study.errors import UserError
from scaling_study.spec import Catalogue, FigureRequest, Hardware, Study


class FigureContext(msgspec.Struct, frozen=True, kw_only=True):
    """The study and the sweep that a figure or a table presents.

    Attributes:
        study: name of the study.
        sweep: name of the sweep whose records are drawn; empty where something else is.
        figure: id of the figure or table, such as `hst-04`.
        hardware_title: of the hardware drawn, several joined by "; ".
        device: what a rank is called in labels: `rank` on a CPU, `GPU` elsewhere.
        shown: which part of the sweep's records is drawn, in words such as `A100`; empty where all of them are.
        assumptions: what the source leaves open and the sweep or the hardware decides.
        parameters: of each model of the catalogue, by name.
        hardware: of the catalogue, by name.
        left_out: what is said of records that cannot be true and are not drawn.
        timelines: span tables of single runs, by run id, in the order in which they are drawn.
    """

    study: str
    study_title: str
    sweep: str
    sweep_title: str
    figure: str
    hardware_title: str
    device: str = "GPU"
    shown: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    parameters: Mapping[str, int] = {}
    hardware: Mapping[str, Hardware] = {}
    left_out: tuple[str, ...] = ()
    timelines: Mapping[str, pl.DataFrame] = {}

    @property
    def devices(self) -> str:
        """Plural of `device`."""
        return f"{self.device}s"

    def title_of(self, title: str) -> str:
        """A title that says which part of a sweep is drawn, unless it does so already."""
        missing = [words for words in self.shown if words.lower() not in title.lower()]
        return f"{title}: {', '.join(missing)}" if missing else title


def context_for(
    study: Study,
    name: str,
    request: FigureRequest,
    catalogue: Catalogue,
    drawn: list[str],
    timelines: Mapping[str, pl.DataFrame] | None = None,
) -> FigureContext:
    """The context of one figure or table.

    Args:
        study: the study that asks for it.
        name: id of the figure or table.
        request: its entry in the study.
        catalogue: the hardware and the models that records may name.
        drawn: names of the hardware among the records.
        timelines: of single runs, by run id.

    Raises:
        UserError: the records name hardware that the catalogue does not have.
    """
    if unknown := sorted(set(drawn) - set(catalogue.hardware)):
        raise UserError(
            f"records of unknown hardware {', '.join(unknown)}", where=name, remedy="Add it to config/hardware."
        )
    parts = [catalogue.hardware[one] for one in drawn]
    sweep = study.sweeps[request.sweep] if request.sweep else None
    return FigureContext(
        study=study.name,
        study_title=study.title,
        sweep=request.sweep or "",
        sweep_title=sweep.title if sweep else "",
        figure=name,
        hardware_title="; ".join(part.title for part in parts),
        device="GPU" if any(part.part for part in parts) else "rank",
        shown=tuple(_in_words(column, value) for column, value in request.where.items()),
        assumptions=(*(sweep.assumptions if sweep else ()), *(line for part in parts for line in part.assumptions)),
        parameters={model: definition.parameters for model, definition in catalogue.models.items()},
        hardware=catalogue.hardware,
        timelines=timelines or {},
    )


def _in_words(column: str, value: str | int) -> str:
    """One condition of a figure on its records, as a title says it."""
    if column == "hardware":
        return str(value).upper()
    text = str(value).replace("_", "-")
    return text if isinstance(value, str) else f"{column.replace('_', ' ')} {text}"
