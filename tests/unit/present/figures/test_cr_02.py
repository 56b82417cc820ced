from __future__ import annotations

import msgspec

from scaling_study.present.figures.cr_02 import draw
from scaling_study.present.roofs import DEGREES, roof_rows
from tests.unit.present import synthetic as made
from tests.unit.present.charts import points, texts
from tests.unit.samples import CONFIG

ROWS = roof_rows(CONFIG.catalogue).filter(model="llama2-70b", hardware="h100")
CONTEXT = msgspec.structs.replace(made.PAPER, hardware=CONFIG.catalogue.hardware)


def test_a_line_a_link_and_a_ring_around_its_fastest_degree() -> None:
    layers = points(draw(ROWS, CONTEXT), "tokens_per_second", "tp")
    lines = [layer for layer in layers if len(layer.rows) == len(DEGREES)]
    rings = [layer for layer in layers if len(layer.rows) == 1]
    assert len(lines) == len(rings) == 6
    for line, ring in zip(lines, rings, strict=True):
        best = max(line.rows, key=lambda row: row["tokens_per_second"])
        assert ring.rows[0]["tp"] == best["tp"]
        assert DEGREES[0] < best["tp"] < DEGREES[-1]
    assert [ring.rows[0]["tp"] for ring in rings] == [16, 8, 4, 16, 8, 8]


def test_it_says_so() -> None:
    said = texts(draw(ROWS, CONTEXT))
    assert "Ringed: the fastest degree of a link, 16 GPUs (NVLink), 8 (PCIe) and 4 (network) for 512 tokens" in said
    assert "○ Predicted from data sheets alone" in said
    assert "(b) Decoding, one sequence" in said
