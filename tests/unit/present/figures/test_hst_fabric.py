from __future__ import annotations

import msgspec
import pytest

from scaling_study.present.figures.hst_fabric import draw, label
from tests.unit.present import synthetic as made
from tests.unit.present.charts import points, texts
from tests.unit.samples import CONFIG

HARDWARE = CONFIG.catalogue.hardware
NAMES = ("h100-ib100", "h100", "h100-roce400", "h100-nvl72")
CONTEXT = msgspec.structs.replace(made.PAPER, hardware=HARDWARE)


def row(name: str, gpus: int, seconds: float) -> dict:
    fields = {"hardware": name, "nodes": gpus // HARDWARE[name].gpus_per_node, "gpus": gpus, "dp": gpus}
    return made.paper_row(
        **fields, global_batch=2 * gpus, iteration_s=seconds, communication_s=seconds / 2, provenance="predicted"
    )


RECORDS = made.frame(
    *(row(name, 72 if "nvl" in name else 8, 1.0) for name in NAMES),
    *(row(name, 720, 2.0 - 0.25 * place) for place, name in enumerate(NAMES)),
)


def test_fabrics_are_named_by_kind_and_speed() -> None:
    assert [label(HARDWARE[name]) for name in NAMES] == ["InfiniBand 100", "InfiniBand 400", "RoCE 400", "72-GPU nodes"]


def test_lines_go_from_the_slowest_to_the_fastest() -> None:
    lines = points(draw(RECORDS, CONTEXT), "words_per_second_per_gpu")
    ends = [layer.values()[720] for layer in lines]
    words = 2 * 4096
    assert ends == pytest.approx([words / 2.0, words / 1.5, words / 1.75, words / 1.25], rel=1e-5)


def test_gains_are_told_against_the_slowest() -> None:
    said = texts(draw(RECORDS, CONTEXT))
    assert "against InfiniBand 100: RoCE 400 +33%; InfiniBand 400 +14%; 72-GPU nodes +60%" in said
