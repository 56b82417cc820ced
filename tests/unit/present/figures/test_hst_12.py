from __future__ import annotations

import pytest

from scaling_study.present.figures.hst_12 import draw
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, drawn, points, texts


def test_memory_and_the_perfect_split() -> None:
    chart = draw(made.mini_data_parallel(), made.MINI)
    assert points(chart, "peak_memory_gib")[0].pairs() == [(1, 0.71), (2, 0.6), (4, 0.55)]
    (split,) = drawn(chart, "line", "split_gib")
    assert split.values() == pytest.approx({1: 0.71, 2: 0.355, 4: 0.1775})


def test_each_provenance_splits_from_its_own_start() -> None:
    chart = draw(made.paper_data_parallel(), made.PAPER)
    measured, predicted = drawn(chart, "line", "split_gib")
    assert measured.pairs()[0] == (16, 54.0)
    assert predicted.pairs()[0] == (8, pytest.approx(79.18))
    assert crosses(chart)[0].rows[0]["dp"] == 8
    assert "GPUs" in chart.to_json()


def test_unknown_memory_says_why() -> None:
    row = made.mini_row(dp=1, iteration_s=1.0) | {"peak_memory_gib": None}
    assert "Not recorded" in texts(draw(made.frame(row), made.MINI))
