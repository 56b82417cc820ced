"""What a line brings from its first scale to its last, in words."""

from __future__ import annotations

from scaling_study.present import scaling
from tests.unit.present import synthetic as made

COLUMNS = {"throughput": "words_per_second", "power": "power_w_per_gpu"}


def test_a_change_from_the_first_to_the_last_scale() -> None:
    line = made.mini_data_parallel().sort("gpus")
    change = round(100 * (4 * 0.41 / 1.09 - 1))
    assert scaling.changes(line, made.MINI, COLUMNS, "measured") == f"1 to 4 ranks: throughput +{change}% (●)."


def test_one_scale_or_no_metric_says_nothing() -> None:
    line = made.mini_data_parallel().sort("gpus")
    assert scaling.changes(line.head(1), made.MINI, COLUMNS, "measured") == ""
    assert scaling.changes(line, made.MINI, {"power": "power_w_per_gpu"}, "measured") == ""
    assert scaling.changes(line.clear(), made.MINI, COLUMNS, "measured") == ""
