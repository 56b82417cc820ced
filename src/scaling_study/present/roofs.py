"""Tensor parallelism against its links as a table, computed from data sheets alone: what figures and the text show."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from scaling_study.roofline import links_of, memory_bytes_per_s, network_of, peak_flops, rate_of, shard_of
from scaling_study.spec import Catalogue, NumberFormat, Outcome, Provenance, Regime

#: Tokens of a pass: a short prompt, whose messages are as large as CR's example, and one decoded token.
PROMPT, DECODED = 512, 1
DEGREES = (1, 2, 4, 8, 16, 32, 64)
FORMAT = NumberFormat.BF16
#: How a link is called, and whether it is the one inside a node.
LINK_NAMES = {"nvlink": "NVLink", "pcie": "PCIe", "network": "network"}
SCHEMA = {
    "model": pl.String,
    "hardware": pl.String,
    "link": pl.String,
    "tokens": pl.Int64,
    "tp": pl.Int64,
    "message_bytes": pl.Int64,
    "local_us": pl.Float64,
    "all_reduces_us": pl.Float64,
    "tokens_per_second": pl.Float64,
    "peak_share": pl.Float64,
    "regime": pl.String,
    "provenance": pl.String,
    "outcome": pl.String,
}


def roof_rows(catalogue: Catalogue) -> pl.DataFrame:
    """A row a model, hardware, link, size of a pass and degree; times are of one block's forward pass.

    Returns:
        columns `SCHEMA`, `peak_share` of them what of the peak is reached while computing; hardware without a
        published peak, bandwidth or link is left out.
    """
    rows = [
        {
            "model": model.name,
            "hardware": hardware.name,
            "link": link,
            "tokens": tokens,
            "tp": tp,
            "message_bytes": int(tokens * model.hidden * FORMAT.element_bytes),
            "local_us": shard.local_s * 1e6,
            "all_reduces_us": (shard.block_s - shard.local_s) * 1e6,
            "tokens_per_second": rate_of(shard, model, tokens),
            "peak_share": 2 * tokens * network.blocks / network.layers / tp / shard.local_s / peak,
            "regime": shard.regime.value,
            "provenance": Provenance.PREDICTED.value,
            "outcome": Outcome.OK.value,
        }
        for model in catalogue.models.values()
        for network in [network_of(model)]
        for hardware in catalogue.hardware.values()
        if (peak := peak_flops(hardware, FORMAT)) and memory_bytes_per_s(hardware)
        for link, way in links_of(hardware).items()
        for tokens in (PROMPT, DECODED)
        for tp in DEGREES
        for shard in [shard_of(model, hardware, way, tp, tokens, FORMAT)]
    ]
    return pl.DataFrame(rows, schema=SCHEMA).sort("model", "hardware", "tokens", "link", "tp")


def overtaken(rows: pl.DataFrame, tokens: int) -> dict[str, int | None]:
    """By link, the least degree at which collectives take longer than what is computed; None where they never do."""
    bound = rows.filter(tokens=tokens, regime=Regime.COMMUNICATION.value)
    return {link: part["tp"].min() for link, part in _by_link(rows, bound).items()}  # type: ignore[misc]


def fastest(rows: pl.DataFrame, tokens: int) -> dict[str, int]:
    """By link, the degree with most tokens/s."""
    ranked = rows.filter(tokens=tokens).sort("tokens_per_second", "tp", descending=[True, False])
    return {link: int(part["tp"][0]) for link, part in _by_link(rows, ranked).items()}


def _by_link(rows: pl.DataFrame, part: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    """The rows of each link that there is, the fastest link first."""
    there = set(rows["link"])
    return {link: part.filter(link=link) for link in LINK_NAMES if link in there}
