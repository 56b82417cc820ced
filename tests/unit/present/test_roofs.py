"""The table of tensor parallelism against its links: one row by hand, and what is read off it."""

from __future__ import annotations

import polars as pl
import pytest

from scaling_study.present.numbers.roofs import by_link, of_roofs
from scaling_study.present.roofs import DECODED, DEGREES, PROMPT, SCHEMA, fastest, overtaken, roof_rows
from scaling_study.roofline import links_of, shard_of
from scaling_study.spec import NumberFormat
from tests.unit.samples import CONFIG

CATALOGUE = CONFIG.catalogue
ROWS = roof_rows(CATALOGUE)
SHOWN = ROWS.filter(model="llama2-70b", hardware="h100")


def test_a_row_by_hand():
    model, part = CATALOGUE.models["llama2-70b"], CATALOGUE.hardware["h100"]
    shard = shard_of(model, part, links_of(part)["network"], 4, PROMPT, NumberFormat.BF16)
    row = SHOWN.filter(link="network", tokens=PROMPT, tp=4).row(0, named=True)
    assert row["message_bytes"] == PROMPT * 8192 * 2
    assert row["local_us"] == pytest.approx(shard.local_s * 1e6)
    assert row["all_reduces_us"] == pytest.approx(2 * shard.all_reduce_s * 1e6)
    assert row["tokens_per_second"] == pytest.approx(PROMPT / 80 / shard.block_s)
    assert (row["regime"], row["provenance"], row["peak_share"]) == ("communication", "predicted", pytest.approx(1.0))


def test_every_degree_of_every_link_of_what_has_roofs():
    assert dict(ROWS.schema) == SCHEMA
    assert SHOWN.height == 3 * 2 * len(DEGREES)
    assert "cpu" not in set(ROWS["hardware"])
    assert set(ROWS["model"]) == set(CATALOGUE.models)
    assert ROWS.filter(hardware="h200")["link"].unique().sort().to_list() == ["network", "nvlink"]


def test_decoding_reaches_a_three_hundredth_of_the_peak():
    decoded = SHOWN.filter(tokens=DECODED)
    assert decoded["peak_share"].to_list() == pytest.approx([3350e9 / 989.4e12] * decoded.height)


def test_what_is_read_off():
    assert overtaken(SHOWN, PROMPT) == {"nvlink": 16, "pcie": 4, "network": 4}
    assert overtaken(SHOWN, DECODED) == {"nvlink": 32, "pcie": 16, "network": 8}
    assert fastest(SHOWN, PROMPT) == {"nvlink": 16, "pcie": 8, "network": 4}
    assert fastest(SHOWN, DECODED) == {"nvlink": 16, "pcie": 8, "network": 8}
    never = SHOWN.with_columns(regime=pl.lit("compute"))
    assert set(overtaken(never, PROMPT).values()) == {None}


def test_numbers_of_the_text():
    found = {name.removeprefix("roofs."): number.text for name, number in of_roofs(SHOWN).items()}
    assert found == {
        "message": "8.39 MB",
        "prompt": "512",
        "example": "26.7 µs",
        "decoded_share": "0.3%",
        "prompt_overtaken": "16 GPUs (NVLink), 4 (PCIe) and 4 (network)",
        "prompt_fastest": "16 GPUs (NVLink), 8 (PCIe) and 4 (network)",
        "decoded_overtaken": "32 GPUs (NVLink), 16 (PCIe) and 8 (network)",
        "decoded_fastest": "16 GPUs (NVLink), 8 (PCIe) and 8 (network)",
    }
    assert by_link({"nvlink": None}) == "no degree"
