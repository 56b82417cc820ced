"""Of tensor parallelism against its links, by data sheets alone, and of the example that CR computes."""

from __future__ import annotations

import polars as pl

from scaling_study.present.numbers.core import Number, joined, percent, quantity
from scaling_study.present.roofs import DECODED, LINK_NAMES, PROMPT, fastest, overtaken
from scaling_study.spec import Provenance

#: CR's napkin: a message, what a link sustains, and the computation beside it.
EXAMPLE_BYTES, EXAMPLE_BYTES_PER_S = 8e6, 300e9


def of_roofs(rows: pl.DataFrame) -> dict[str, Number]:
    """From which degree a link limits, and at which it is fastest, for a prompt and for a decoded token."""
    found = {
        "message": f"{quantity(rows.filter(tokens=PROMPT)['message_bytes'][0] / 1e6)} MB",
        "prompt": str(PROMPT),
        "example": f"{quantity(EXAMPLE_BYTES / EXAMPLE_BYTES_PER_S * 1e6)} µs",
        "decoded_share": percent(rows.filter(tokens=DECODED)["peak_share"].max()),  # type: ignore[arg-type]
    }
    for name, tokens in (("prompt", PROMPT), ("decoded", DECODED)):
        found[f"{name}_overtaken"] = by_link(overtaken(rows, tokens))
        found[f"{name}_fastest"] = by_link(dict(fastest(rows, tokens)))
    return {
        f"roofs.{name}": Number(text=text, value=text, runs=(), provenance=(Provenance.PREDICTED.value,))
        for name, text in found.items()
    }


def by_link(degrees: dict[str, int | None]) -> str:
    """A degree by link as prose: `16 GPUs (NVLink) and 4 (PCIe)`."""
    known = [(LINK_NAMES[link], tp) for link, tp in degrees.items() if tp is not None]
    said = [f"{tp} {'GPUs ' if index == 0 else ''}({name})" for index, (name, tp) in enumerate(known)]
    return joined(said) or "no degree"
