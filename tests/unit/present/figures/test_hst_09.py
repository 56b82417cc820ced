from __future__ import annotations

import functools

import altair as alt
import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.present.figures.hst_09 import draw
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, drawn, points, texts


@functools.cache
def mini() -> alt.TopLevelMixin:
    return draw(made.mini_context_length(), made.MINI)


def test_throughput_and_exposed_share_against_the_sequence() -> None:
    chart = mini()
    rate = points(chart, "words_per_second")[0].values()
    assert rate == pytest.approx({64: 640, 128: 4 * 128 / 0.47, 256: 1600}, rel=1e-5)
    exposed = points(chart, "exposed_fraction")[0].values()
    assert exposed == pytest.approx({64: 0.475, 128: 0.2 / 0.47, 256: 0.3125}, rel=1e-5)
    assert points(chart, "words_per_second")[0].encoding["x"]["axis"]["values"] == [64, 128, 256]


def test_bars_span_the_percentiles() -> None:
    (bars,) = drawn(mini(), "rule", "words_per_second_low")
    assert bars.rows[0]["words_per_second_low"] == pytest.approx(640 / 1.08, rel=1e-5)
    assert bars.rows[0]["words_per_second_high"] == pytest.approx(640 / 0.94, rel=1e-5)


def test_a_cpu_has_a_rate_and_reasons() -> None:
    chart = mini()
    assert points(chart, "mfu") == points(chart, "tokens_per_joule") == []
    assert points(chart, "tflops_per_gpu")
    shown = texts(chart)
    assert "(c) Floating-point rate" in shown
    assert f"No MFU: {made.CPU_REASONS['mfu']}." in shown
    assert shown.count("no power counter") == 1


def test_a_cluster_has_utilisation_and_energy_and_what_does_not_fit() -> None:
    frame = made.paper_context_length()
    chart = draw(frame, made.PAPER)
    predicted, measured = points(chart, "mfu")
    assert [x for x, _ in predicted.pairs()] == [2**n for n in range(10, 16)]
    assert [x for x, _ in measured.pairs()] == [2**n for n in range(10, 15)]
    first = frame.filter(pl.col("sequence_length") == 1024, pl.col("provenance") == "measured")
    assert points(chart, "tokens_per_joule")[1].pairs()[0][1] == pytest.approx(
        first["tokens_per_joule"].item(), rel=1e-5
    )
    assert [layer.rows[0]["sequence_length"] for layer in crosses(chart)] == [32_768] * 4
    assert "(c) Utilisation" in texts(chart)
    assert "No MFU" not in texts(chart)


def test_batches_are_not_joined() -> None:
    both = [made.mini_row(dp=4, global_batch=batch, sequence_length=batch * 8, iteration_s=1.0) for batch in (8, 16)]
    with pytest.raises(UserError, match="several values of global_batch"):
        draw(made.frame(*both), made.MINI)
