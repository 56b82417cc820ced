"""Tables that a source prints, as data: what it says of hardware, beside which our own numbers are put."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[float, Meta(gt=0)]
#: Fields of `Hardware` that a source may print.
HardwareField = Literal["peak_tflops", "memory_gb_per_s", "intra_node_gb_per_s", "inter_node_gb_per_s"]


class ReportedRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One quantity of several parts.

    Attributes:
        quantity: what it is, in words.
        unit: of the printed numbers and of the field.
        field: of `Hardware` that it is compared with; of peaks, that of bf16, or of fp16 where a part has no bf16.
        printed: the number by hardware.
        notes: what a reader must know of single numbers, by hardware.
    """

    quantity: str
    unit: str
    field: HardwareField
    printed: dict[str, Positive]
    notes: dict[str, str] = {}

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.notes) - set(self.printed)):
            raise ValueError(f"notes name {', '.join(unknown)}, of which nothing is printed")


class ReportedTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a source.

    Attributes:
        source: that prints it.
        tolerance: relative difference up to which a number of ours agrees, because the source rounds.
    """

    name: str
    title: str
    source: str
    tolerance: Annotated[float, Meta(ge=0, lt=1)]
    rows: tuple[ReportedRow, ...]
