from __future__ import annotations

import pytest

from scaling_study.errors import UserError
from scaling_study.present.figures.hst_04 import draw
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, drawn, points, texts


def test_the_ideal_line_is_linear_from_the_smallest_scale() -> None:
    (line,) = drawn(draw(made.mini_data_parallel(), made.MINI), "line", "ideal_words_per_second")
    first = 2 * 128 / 0.41
    assert line.values() == pytest.approx({1: first, 2: 2 * first, 4: 4 * first}, rel=1e-5)


def test_bars_span_the_percentiles_as_throughput() -> None:
    (bars,) = drawn(draw(made.mini_data_parallel(), made.MINI), "rule", "words_per_second_low")
    rate = 8 * 128 / 1.09
    assert bars.rows[-1]["words_per_second_low"] == pytest.approx(rate / 1.08, rel=1e-5)
    assert bars.rows[-1]["words_per_second_high"] == pytest.approx(rate / 0.94, rel=1e-5)


def test_times_of_an_iteration() -> None:
    chart = draw(made.mini_data_parallel(), made.MINI)
    assert points(chart, "compute_s")[0].pairs() == [(1, 0.36), (2, 0.42), (4, 0.83)]
    assert points(chart, "communication_s")[0].pairs()[-1] == (4, 0.31)
    assert points(chart, "exposed_communication_s")[0].pairs()[-1] == (4, 0.24)


def test_a_cpu_has_ranks_a_rate_and_reasons() -> None:
    chart = draw(made.mini_data_parallel(), made.MINI)
    shown = texts(chart)
    assert "(b) Throughput per rank" in shown
    assert "(d) Floating-point rate" in shown
    assert f"No MFU: {made.CPU_REASONS['mfu']}." in shown
    assert shown.count("no power counter") == 2
    assert points(chart, "mfu") == points(chart, "total_power_w") == []
    assert points(chart, "tflops_per_gpu")


def test_a_cluster_has_utilisation_and_total_power() -> None:
    frame = made.paper_data_parallel()
    chart = draw(frame, made.PAPER)
    assert "No MFU" not in texts(chart)
    predicted = points(chart, "total_power_w")[0].pairs()
    last = frame.filter(frame["gpus"] == 2048)["power_w_per_gpu"].item()
    assert predicted[-1] == (2048, pytest.approx(2048 * last, rel=1e-5))
    assert len(crosses(chart)) == 6


def test_two_hardwares_are_not_joined() -> None:
    frame = made.frame(made.paper_row(dp=8, iteration_s=1.0), made.paper_row(dp=8, iteration_s=1.0, hardware="a100"))
    with pytest.raises(UserError, match="hardware"):
        draw(frame, made.PAPER)
