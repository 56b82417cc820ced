"""Numbers of the text: values, words that follow the sign, the runs behind each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaling_study.present.numbers import as_json, paper_numbers
from scaling_study.present.theme import TIMES_SIGN
from scaling_study.spec import Config
from tests.unit.present import synthetic as made

STUDY = Config(Path(__file__).parents[3] / "config").study("mini")
FRAMES = {"data_parallel": made.mini_data_parallel(), "model_parallel": made.mini_model_parallel()}
LAYOUT = f"4\N{NO-BREAK SPACE}{TIMES_SIGN}\N{NO-BREAK SPACE}1"


def scaling(*seconds: float) -> dict:
    rows = [made.mini_row(dp=2**n, iteration_s=s, compute_s=0.5) for n, s in enumerate(seconds)]
    return paper_numbers(STUDY, {"data_parallel": made.frame(*rows)})


def test_scaling_from_the_smallest_to_the_largest() -> None:
    found = scaling(1.0, 1.0, 2.0)
    assert (found["dp.smallest"].text, found["dp.largest"].text, found["dp.scales"].text) == ("1", "4", "1, 2 and 4")
    assert found["dp.speedup"].value == pytest.approx(2.0)
    assert (found["dp.ideal_speedup"].text, found["dp.efficiency"].text) == ("4", "50%")
    assert found["dp.compute_largest"].text == "500 ms"


@pytest.mark.parametrize(
    ("seconds", "moves"),
    [
        ((1.0, 1.6), "rises by 25%"),
        ((1.0, 4.0), "falls by 50%"),
        ((1.0, 2.01), "hardly changes"),
        ((4.0, 2.0), "grows to 4 times its value"),
    ],
)
def test_words_follow_the_sign(seconds: tuple[float, float], moves: str) -> None:
    assert scaling(*seconds)["dp.rate_moves"].text == moves


def test_a_change_from_zero_has_no_percentage() -> None:
    rows = [made.mini_row(dp=n, iteration_s=1.0, communication_s=s) for n, s in ((1, 0.0), (2, 0.3))]
    found = paper_numbers(STUDY, {"data_parallel": made.frame(*rows)})
    assert found["dp.communication_moves"].text == "rises from zero"
    assert "dp.communication_change" not in found


def test_a_number_carries_its_runs_and_provenance() -> None:
    found = paper_numbers(STUDY, FRAMES)
    largest = FRAMES["data_parallel"].filter(FRAMES["data_parallel"]["gpus"] == 4)["run_id"].item()
    assert found["dp.rate_largest"].runs == (largest,)
    assert all(number.runs and number.provenance == ("measured",) for number in found.values())


def layouts(faster: float, spread: float) -> str:
    """The verdict where 4 x 1 takes `faster` of the baseline's time, percentiles `spread` apart."""
    rows = [made.mini_row(dp=4, global_batch=8, iteration_s=1.0)]
    rows.append(made.mini_row(dp=1, tp=4, global_batch=8, iteration_s=faster))
    for row in rows:
        row |= {"iteration_s_p05": row["iteration_s"] - spread, "iteration_s_p95": row["iteration_s"] + spread}
    return paper_numbers(STUDY, {"model_parallel": made.frame(*rows)})["mp.verdict"].text


def test_the_verdict_on_layouts_minds_the_noise() -> None:
    assert layouts(1.2, 0.01) == "no layout is faster than data parallelism alone"
    clear, noisy = layouts(0.8, 0.01), layouts(0.8, 0.2)
    assert clear.startswith(f"the layout {LAYOUT} (tensor {TIMES_SIGN} pipeline) is 25% faster")
    assert clear.endswith("do not overlap")
    assert noisy.endswith("so that the order of the two is not settled")


def test_layouts_are_counted_against_the_baseline() -> None:
    found = paper_numbers(STUDY, FRAMES)
    assert (found["mp.layouts"].value, found["mp.runs"].value, found["mp.faster"].value) == (6, 12, 0)
    assert found["mp.faster"].text == "none of the layouts outruns it"
    assert (found["mp.slowest"].text, found["mp.spearman_word"].text) == (LAYOUT, "strong and negative")


def test_runs_machine_and_outcomes() -> None:
    found = paper_numbers(STUDY, FRAMES)
    assert found["runs.count"].value == 14  # one run is in both sweeps
    assert found["runs.oversubscription"].text.startswith("Of the 14 runs that ended well, 12 have more ranks")
    assert found["runs.profiler_overhead"].text == "7.0% longer"
    assert (found["runs.kept"].text, found["runs.host_cores"].text) == ("15", "2")
    assert found["runs.outcomes"].text == "all of them ended well"
    assert found["runs.why_no_mfu"].text == made.CPU_REASONS["mfu"]
    ended = made.frame(
        made.mini_row(dp=1, outcome="failed", reason="rank 0 ended"), made.mini_row(dp=2, iteration_s=1.0)
    )
    assert paper_numbers(STUDY, {"data_parallel": ended})["runs.outcomes"].text == "1 ended as failed"


def test_enough_cores_are_said_to_be_enough() -> None:
    found = paper_numbers(STUDY, {"data_parallel": made.frame(made.mini_row(dp=2, iteration_s=1.0))})
    assert found["runs.oversubscription"].text.startswith("None of the 1 runs")


def test_only_measured_records_count() -> None:
    predicted = made.frame(made.mini_row(dp=1, iteration_s=1.0, provenance="predicted"))
    assert paper_numbers(STUDY, {"data_parallel": predicted}) == {}


def test_the_json_is_sorted_and_complete() -> None:
    found = json.loads(as_json(paper_numbers(STUDY, FRAMES)))
    assert list(found) == sorted(found)
    assert set(found["dp.speedup"]) == {"text", "value", "runs", "provenance"}
