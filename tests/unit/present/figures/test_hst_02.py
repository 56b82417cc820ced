from __future__ import annotations

import pytest

from scaling_study.present.figures.hst_02 import GENERATIONS, draw, speed_per_gpu
from scaling_study.present.tables import hardware_rows
from tests.unit.present import synthetic as made
from tests.unit.present.charts import points, texts
from tests.unit.samples import CONFIG

ROWS = hardware_rows(CONFIG.catalogue)


def test_speeds_are_of_one_gpu_in_one_direction() -> None:
    found = {row["quantity"]: row for row in speed_per_gpu(ROWS).filter(hardware="h100").iter_rows(named=True)}
    speeds = {name: row["speed"] for name, row in found.items()}
    assert speeds == {
        "memory_gb_per_s": 3350,
        "intra_node_gb_per_s": 450,
        "host_gb_per_s": 64,
        "inter_node_gb_per_s": 50,
    }
    assert found["intra_node_gb_per_s"]["multiple"] == pytest.approx(9)


def test_every_link_of_every_generation_is_a_mark() -> None:
    marks = points(draw(ROWS, made.PAPER), "row", "speed")
    assert [len(layer.rows) for layer in marks] == [len(GENERATIONS)] * 4
    drawn = {(row["speed"], row["row"]) for layer in marks for row in layer.rows}
    assert (50.0, 11) in drawn
    assert (900.0, 0) in drawn


def test_the_drawing_says_the_speeds_of_the_latest_generation() -> None:
    said = texts(draw(ROWS, made.PAPER))
    assert all(number in said for number in ("3,350", "450", "64", "50"))


def test_sources_travel_with_the_figure() -> None:
    from scaling_study.present.render import specification

    sources = specification(draw(ROWS, made.PAPER))["usermeta"]["sources"]
    assert len(sources) == 12
    assert all(one["source"] for one in sources)
