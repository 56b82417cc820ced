from __future__ import annotations

import re

import polars as pl

from scaling_study.present.figures.hst_05 import draw
from scaling_study.present.theme import TIMES_SIGN
from tests.unit.present import synthetic as made
from tests.unit.present.charts import crosses, drawn, points, texts


def test_each_layout_is_drawn_with_its_fastest_micro_batch() -> None:
    frame = made.mini_model_parallel()
    (marks,) = points(draw(frame, made.MINI), "row", "words_per_second")
    best = frame.group_by("tp", "pp").agg(pl.col("words_per_second").max())
    assert sorted(x for x, _ in marks.pairs()) == sorted(float(f"{v:.6g}") for v in best["words_per_second"])
    assert sorted(y for _, y in marks.pairs()) == list(range(6))


def test_rows_are_ordered_by_total_degree_under_their_names() -> None:
    layer = points(draw(made.mini_model_parallel(), made.MINI), "row", "words_per_second")[0]
    names = re.findall(r"'([^']+)'", layer.encoding["y"]["axis"]["labelExpr"])
    expected = ["1 1", "1 2", "2 1", "1 4", "2 2", "4 1"]
    assert names == [name.replace(" ", f" {TIMES_SIGN} ") for name in expected]


def test_the_baseline_is_marked() -> None:
    rules = drawn(draw(made.mini_model_parallel(), made.MINI), "rule", x="words_per_second")
    assert rules[0].rows == [{"words_per_second": 1024.0}]


def test_a_layout_out_of_memory_keeps_its_row() -> None:
    chart = draw(made.paper_model_parallel(), made.PAPER)
    drawn = [[(row["row"], row["words"], row["provenance"]) for row in layer.rows] for layer in crosses(chart)]
    assert drawn == [[(10, "out of memory", "measured")]] * 2
    assert "of 45 runs 4 out of memory" in texts(chart)


def test_the_correlation_is_printed_for_each_provenance() -> None:
    assert re.search(
        "Spearman +● \N{MINUS SIGN}0.8\\d +○ \N{MINUS SIGN}0.8\\d", texts(draw(made.paper_model_parallel(), made.PAPER))
    )


def test_several_hardwares_have_a_row_each() -> None:
    shown = texts(draw(made.paper_model_parallel("predicted", hardware=("a100", "h100")), made.PAPER))
    assert "(a) Throughput, A100" in shown
    assert "(a) Throughput, H100" in shown


def test_the_fastest_layout_is_named_beside_its_own_mark() -> None:
    frame = made.paper_model_parallel("measured", "predicted")
    chart = draw(frame, made.PAPER)
    predicted, measured = points(chart, "words_per_second", "exposed_communication_s")
    best = max(y for _, y in measured.pairs())
    y = measured.encoding["y"]["scale"]["domain"]
    place = (1 - (best - y[0]) / (y[1] - y[0])) * 172.5
    names = [one for one in drawn(chart, "text") if one.rows[0].get("text") == f"2 {TIMES_SIGN} 2"]
    assert best > max(y for _, y in predicted.pairs())
    assert [abs(one.encoding["y"]["value"] - place) < 9 for one in names] == [True]
