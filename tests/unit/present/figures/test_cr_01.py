from __future__ import annotations

import itertools

import msgspec

from scaling_study.present.figures.cr_01 import BOX, draw
from scaling_study.present.render import specification
from scaling_study.present.roofs import DEGREES, roof_rows
from tests.unit.present import synthetic as made
from tests.unit.present.charts import drawn, points, texts
from tests.unit.samples import CONFIG

ROWS = roof_rows(CONFIG.catalogue).filter(model="llama2-70b", hardware="h100")
CONTEXT = msgspec.structs.replace(made.PAPER, hardware=CONFIG.catalogue.hardware)


def test_a_line_of_compute_and_one_a_link_in_both_panels() -> None:
    chart = draw(ROWS, CONTEXT)
    local = points(chart, "local_us", "tp")
    collectives = points(chart, "all_reduces_us", "tp")
    assert [[row["tp"] for row in layer.rows] for layer in local] == [list(DEGREES)] * 2
    assert [[row["tp"] for row in layer.rows] for layer in collectives] == [list(DEGREES[1:])] * 6
    halves = [row["local_us"] for row in local[0].rows]
    assert all(abs(after / before - 0.5) < 1e-4 for before, after in itertools.pairwise(halves))
    assert {layer.mark["fill"] for layer in (*local, *collectives)} == {"white"}  # predicted


def test_it_says_where_lines_cross_where_it_comes_from_and_what_cr_computes() -> None:
    said = texts(draw(ROWS, CONTEXT))
    assert "All-reduces take longer from 16 GPUs (NVLink), 4 (PCIe) and 4 (network) with 512 tokens" in said
    assert "○ Predicted from data sheets alone" in said
    assert "8 MB over 300 GB/s take 27 µs" in said
    assert "messages of 8.39 MB" in said
    assert "messages of 16.4 kB" in said


def test_the_end_of_a_node_is_drawn_between_8_and_16() -> None:
    (rule, other) = drawn(draw(ROWS, CONTEXT), "rule", x="tp")
    assert 8 < rule.rows[0]["tp"] == other.rows[0]["tp"] < 16
    assert BOX.width > 0


def test_sources_travel_with_the_figure() -> None:
    said = specification(draw(ROWS, CONTEXT))["usermeta"]
    assert said["claims"] == ["roofline-example", "roofline-tp"]
    assert (said["provenance"], said["model"]) == ("predicted", "llama2-70b")
    assert "h100" in said["sources"]


def test_a_part_without_a_host_link_has_two_lines() -> None:
    rows = roof_rows(CONFIG.catalogue).filter(model="llama2-7b", hardware="h200")
    chart = draw(rows, CONTEXT)
    assert len(points(chart, "all_reduces_us", "tp")) == 4
    assert "PCIe" not in texts(chart)
