from __future__ import annotations

from scaling_study.present.figures.hst_01 import draw
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, points, texts


def test_both_provenances_are_drawn_with_their_values() -> None:
    frame = made.paper_data_parallel()
    predicted, measured = points(draw(frame, made.PAPER), "exposed_fraction")
    assert [x for x, _ in predicted.pairs()] == [8 * 2**n for n in range(9)]
    assert [x for x, _ in measured.pairs()] == [16, 32, 64, 128, 256]
    last = frame.filter(frame["gpus"] == 256, frame["provenance"] == "measured")["exposed_fraction"].item()
    assert measured.pairs()[-1][1] == float(f"{last:.6g}")


def test_out_of_memory_is_drawn_in_both_panels() -> None:
    chart = draw(made.paper_data_parallel(), made.PAPER)
    assert [layer.rows[0]["gpus"] for layer in crosses(chart)] == [8, 8]
    assert "out of memory" in texts(chart)


def test_without_power_the_panel_says_why() -> None:
    chart = draw(made.mini_data_parallel(), made.MINI)
    assert points(chart, "tokens_per_joule") == []
    assert made.CPU_REASONS["tokens_per_joule"][1:] in texts(chart)
    assert [y for _, y in points(chart, "exposed_fraction")[0].pairs()] == [0.0219512, 0.144231, 0.220183]
