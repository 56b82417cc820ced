"""Numbers of the text: every one by value, words that follow the sign, overlap of ranges, the runs behind each."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from scaling_study.present.numbers import Number, as_json, paper_numbers
from scaling_study.present.numbers.core import in_order, joined, percent, quantity, trend
from scaling_study.present.theme import TIMES_SIGN
from scaling_study.spec import Config
from tests.unit.present import synthetic as made

STUDY = Config(Path(__file__).parents[3] / "config").study("mini")
FRAMES = made.mini_frames()
FOUND = paper_numbers(STUDY, FRAMES)


def layout(tp: int, pp: int) -> str:
    return f"{tp}\N{NO-BREAK SPACE}{TIMES_SIGN}\N{NO-BREAK SPACE}{pp}"


ALONE, TWO_STAGES, TENSOR = layout(1, 1), layout(1, 2), layout(4, 1)
APART, OVERLAP = "(percentile ranges apart)", "(percentile ranges overlap)"

#: Every number of the synthetic study but those of its sweeps and runs, whose texts are long.
TEXTS = {
    "collectives": {
        "ops": "all-gather, all-reduce, reduce-scatter and send-recv",
        "sizes": "64 KiB and 16 MiB",
        "size_ratio": "256",
        "largest": "16 MiB",
        "fewest": "2",
        "most": "4",
        "warmup": "5",
        "repeats": "40",
        "dtype": "fp32",
        "cv_median": "10%",
        "cv_largest": "10%",
        "all_reduce_smallest": "0.106 GB/s",
        "all_reduce_largest": "0.733 GB/s",
        "all_reduce_time_ratio": "36.9",
        "all_reduce_fewest": "1.45 GB/s",
        "all_reduce_with_ranks": f"falls by 49% {APART}",
        "all_gather_smallest": "0.0568 GB/s",
        "all_gather_largest": "0.716 GB/s",
        "all_gather_time_ratio": "20.3",
        "all_gather_fewest": "1.4 GB/s",
        "all_gather_with_ranks": f"falls by 49% {APART}",
        "reduce_scatter": "0.992 GB/s on 4 ranks",
        "send_recv": "0.988 GB/s on 2 ranks",
    },
    "dp": {
        "model": "mini-6m",
        "sequence_length": "128",
        "precision": "fp32",
        "scales": "1, 2 and 4",
        "local_batch": "2",
        "smallest": "1",
        "largest": "4",
        "rate_smallest": "624",
        "rate_largest": "939",
        "rate_moves": f"rises by 50%, though not at every step {APART}",
        "local_rate_moves": "falls by 62%",
        "compute_smallest": "360 ms",
        "compute_largest": "830 ms",
        "compute_moves": "rises by 131%",
        "communication_smallest": "10 ms",
        "communication_largest": "310 ms",
        "communication_moves": "grows to 31 times its value",
        "exposed_moves": "grows to 26.7 times its value",
        "exposed_share_smallest": "2.2%",
        "exposed_share_largest": "22%",
        "memory_smallest": "0.71",
        "memory_largest": "0.55",
        "memory_moves": "falls by 23%",
        "memory_agrees": "As sharding would have it",
        "speedup": "1.50",
        "ideal_speedup": "4",
        "efficiency": "38%",
    },
    "mp": {
        "ranks": "4",
        "global_batch": "8",
        "layouts": "6",
        "baseline_rate": "1,020",
        "verdict": f"no layout is faster than data parallelism alone; the next, {TWO_STAGES}, is 4.8% slower, and "
        "their percentile ranges overlap, so that the order of the two is not settled",
        "faster": "none outruns it",
        "slowest": TENSOR,
        "slowest_rate": "692",
        "least_exposed": f"{ALONE}, which is also the fastest",
        "spearman": "\N{MINUS SIGN}1.00",
        "spearman_word": "strong and negative",
    },
    "small": {
        "ranks": "4",
        "global_batch": "4",
        "verdict": f"the layout {TWO_STAGES} (tensor {TIMES_SIGN} pipeline) is 25% faster than data parallelism alone; "
        "their percentile ranges do not overlap",
        "faster": f"1 outruns it {APART}",
    },
    "large": {
        "which": "the only layout that we ran",
        "layout": layout(2, 2),
        "gpus": "8",
        "dp": "2",
        "host_cores": "2",
        "global_batch": "16",
        "rate": "819",
        "exposed_share": "20%",
        "cv": "30%",
    },
    "fixed": {
        "global_batch": "8",
        "smallest": "1",
        "largest": "4",
        "fastest": f"{ALONE} on 1, {ALONE} on 2 and {TWO_STAGES} on 4",
        "rate_smallest": "2,560",
        "rate_largest": "1,860",
        "rate_moves": f"falls by 27% {APART}",
        "local_rate_moves": "falls by 82%",
        "exposed_share_smallest": "20%",
        "exposed_share_largest": "20%",
        "speedup": "0.73",
        "ideal_speedup": "4",
        "efficiency": "18%",
        "step_from": "2",
        "step": f"falls by 9.1% {OVERLAP}",
    },
    "pretraining": {
        "scales": "2 and 4",
        "global_batch": "8",
        "changes": f"for mini-9m throughput rises by 14% {OVERLAP} and throughput per rank falls by 43%; "
        f"for mini-20m throughput rises by 14% {OVERLAP} and throughput per rank falls by 43%",
    },
    "precision": {
        "names": "bf16, fp16 and fp32",
        "model": "mini-6m",
        "ranks": "4",
        "fastest": "fp32",
        "fastest_rate": "2,280",
        "others": f"bf16 reaches 50% {APART} and fp16 reaches 33% {APART}",
        "exposed_shares": "30% in bf16, 30% in fp16 and 30% in fp32",
        "layouts": "in all 3 precisions a layout is faster than the least parallel one: "
        f"in bf16 {TWO_STAGES} by 29% {APART}, in fp16 {TWO_STAGES} by 29% {APART} and "
        f"in fp32 {TWO_STAGES} by 29% {APART}",
    },
    "size": {
        "models": "mini-4m, mini-9m and mini-20m",
        "smallest": "mini-4m",
        "largest": "mini-20m",
        "ranks": "4",
        "compute_moves": "grows to 4.75 times its value",
        "communication_moves": "grows to 4.75 times its value",
        "exposed_moves": "grows to 4.75 times its value",
        "exposed_share_smallest": "25%",
        "exposed_share_largest": "25%",
        "rate_moves": f"falls by 79% {APART}",
        "layouts": "for all 3 models a layout is faster than the least parallel one: "
        f"for mini-4m {TWO_STAGES} by 11% {OVERLAP}, for mini-9m {TWO_STAGES} by 11% {OVERLAP} and "
        f"for mini-20m {TWO_STAGES} by 11% {OVERLAP}",
    },
    "pacing": {
        "changes": "+0.0% (+0.0% to +0.0%) on 2 ranks; +2.0% (+2.0% to +2.0%) on 4 ranks",
        "cv_adaptive": "0.05 and 0.05",
        "cv_off": "0.06 and 0.06",
        "pairs": "3",
        "scales": "2 and 4",
        "verdict": "helps on 4 ranks",
    },
    "context": {
        "lengths": "64, 128 and 256",
        "shortest": "64",
        "longest": "256",
        "ranks": "4",
        "global_batch": "4",
        "rate_shortest": "640",
        "rate_longest": "1,600",
        "rate_moves": f"rises by 150% {APART}",
        "compute_moves": "rises by 60%",
        "communication_moves": "rises by 60%",
        "exposed_share_shortest": "48%",
        "exposed_share_longest": "31%",
        "exposed_share_moves": "falls by 34%",
    },
}
RUNS = {
    "count": "64",
    "training": "54",
    "collective": "10",
    "sweeps": "11",
    "outcomes": "all of them ended well",
    "device": "AMD EPYC",
    "host_cores": "2",
    "torch_version": "2.13.0",
    "python_version": "3.11.2",
    "backend": "gloo",
    "code_version": "0.1.0",
    "iterations": "20",
    "discard": "5",
    "kept": "15",
    "profiled_iterations": "3",
    "models": "mini-4m, mini-6m, mini-9m and mini-20m",
    "largest": "8",
    "threads": "1 thread",
    "cv_median": "4.0%",
    "cv_largest": "30%",
    "profiler_overhead": "7.0% longer",
    "oversubscription": "Of the 64 runs that ended well, 45 have more ranks than the machine has cores (those of 4 and "
    "8 ranks).",
    "why_no_mfu": made.CPU_REASONS["mfu"],
    "why_no_power_w_per_gpu": made.CPU_REASONS["power_w_per_gpu"],
}


def numbers(sweep: str, *rows: dict[str, Any]) -> dict[str, Number]:
    return paper_numbers(STUDY, {sweep: made.frame(*rows)})


def texts(found: dict[str, Number], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(f"{prefix}."): one.text for name, one in found.items() if name.partition(".")[0] == prefix
    }


@pytest.mark.parametrize("part", TEXTS)
def test_every_number_by_value(part: str) -> None:
    assert texts(FOUND, part) == TEXTS[part]


def test_numbers_of_all_runs() -> None:
    often = Counter(run for frame in FRAMES.values() for run in frame["run_id"])
    shared = sum(count > 1 for count in often.values())
    assert texts(FOUND, "runs") == RUNS | {"shared": f"{shared}"}
    assert (FOUND["runs.count"].value, len(often)) == (64, 64)


def test_a_sweep_says_what_it_assumes() -> None:
    for name, sweep in STUDY.sweeps.items():
        said = texts(FOUND, "sweeps")
        assert said[f"{name}.title"] == sweep.title
        assert said[f"{name}.runs"] == f"{FRAMES[name]['run_id'].n_unique()}"
        assert said[f"{name}.assumptions"] == (" ".join(sweep.assumptions) or "None.")
    assert FOUND["sweeps.fixed_batch.ranks"].text == "1, 2 and 4"


def test_there_are_no_other_numbers() -> None:
    assert {name.partition(".")[0] for name in FOUND} == {*TEXTS, "runs", "sweeps"}


@pytest.mark.parametrize(
    ("sweep", "part"),
    [
        ("collectives", "collectives"),
        ("data_parallel", "dp"),
        ("model_parallel", "mp"),
        ("model_parallel_small_batch", "small"),
        ("model_parallel_large_scale", "large"),
        ("fixed_batch", "fixed"),
        ("fixed_batch_pretraining", "pretraining"),
        ("generations", "precision"),
        ("model_size", "size"),
        ("context_length", "context"),
    ],
)
def test_a_sweep_without_records_lacks_its_numbers_alone(sweep: str, part: str) -> None:
    left = paper_numbers(STUDY, {name: frame for name, frame in FRAMES.items() if name != sweep})
    gone = {name for name in FOUND if name not in left}
    assert gone >= {f"{part}.{name}" for name in TEXTS[part]}
    assert {name.partition(".")[0] for name in gone if not name.startswith(f"sweeps.{sweep}.")} <= {part, "runs"}


def test_a_number_carries_its_runs_and_provenance() -> None:
    largest = FRAMES["data_parallel"].filter(gpus=4)["run_id"].item()
    assert FOUND["dp.rate_largest"].runs == (largest,)
    assert set(FOUND["collectives.send_recv"].runs) == {"send_recv_cpu_2_16777216"}
    assert all(number.runs and number.provenance == ("measured",) for number in FOUND.values())


def test_predictions_have_numbers_of_their_own() -> None:
    found = numbers("data_parallel", made.mini_row(dp=1, iteration_s=1.0, provenance="predicted"))
    assert found
    assert all(name.startswith("predicted.") for name in found)


def test_the_json_is_sorted_and_complete() -> None:
    found = json.loads(as_json(FOUND))
    assert list(found) == sorted(found)
    assert set(found["dp.speedup"]) == {"text", "value", "runs", "provenance"}


# -- words that follow the sign -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((1.0, 1.25), "rises by 25%"),
        ((1.0, 0.5), "falls by 50%"),
        ((1.0, 1.019), "hardly changes"),
        ((1.0, 0.981), "hardly changes"),
        ((1.0, 4.0), "grows to 4 times its value"),
        ((1.0, 2.0, 1.5), "rises by 50%, though not at every step"),
        ((1.0, 0.4, 0.5), "falls by 50%, though not at every step"),
        ((1.0, 0.8, 0.5), "falls by 50%"),
        ((1.0, 2.0, 1.01), "ends where it began, though not without changing between"),
        ((1.0, 1.01, 1.005), "hardly changes"),
        ((1.0, 1.3, 1.2999), "rises by 30%"),
        ((0.0, 0.3), "rises from zero"),
        ((0.0, 0.0), "stays at zero"),
        ((1.0,), None),
        ((1.0, None), None),
    ],
)
def test_words_follow_the_sign(values: tuple[float | None, ...], said: str | None) -> None:
    assert trend(values) == said


def scaling(*seconds: float, memory: tuple[float, ...] = ()) -> dict[str, Number]:
    rows = [made.mini_row(dp=2**n, iteration_s=s, compute_s=0.5) for n, s in enumerate(seconds)]
    for row, gib in zip(rows, memory, strict=False):
        row["peak_memory_gib"] = gib
    return numbers("data_parallel", *rows)


def test_scaling_either_way() -> None:
    up, down = scaling(1.0, 1.0, 2.0), scaling(1.0, 1.5, 5.0)
    assert (up["dp.speedup"].value, up["dp.efficiency"].text) == (pytest.approx(2.0), "50%")
    assert up["dp.rate_moves"].text == f"rises by 100% {APART}"
    assert down["dp.speedup"].text == "0.80"
    assert down["dp.rate_moves"].text == f"falls by 20%, though not at every step {APART}"
    assert up["dp.compute_moves"].text == "hardly changes"


def test_memory_may_go_against_expectation() -> None:
    assert scaling(1.0, 1.0, memory=(0.4, 0.2))["dp.memory_agrees"].text == "As sharding would have it"
    assert scaling(1.0, 1.0, memory=(0.2, 0.4))["dp.memory_agrees"].text == "Against that expectation"


def test_one_scale_is_no_scaling() -> None:
    assert texts(scaling(1.0), "dp") == {}


# -- layouts --------------------------------------------------------------------------------------------------------


def rivals(seconds: dict[tuple[int, int], float], spread: float = 0.01, **fields: Any) -> list[dict[str, Any]]:
    """Layouts of four ranks, their percentiles `spread` apart from the mean."""
    rows = []
    for (tp, pp), mean in seconds.items():
        row = made.mini_row(dp=4 // (tp * pp), tp=tp, pp=pp, global_batch=8, iteration_s=mean, **fields)
        rows.append(row | {"iteration_s_p05": mean - spread, "iteration_s_p95": mean + spread})
    return rows


def test_the_verdict_on_layouts_minds_the_noise() -> None:
    def verdict(faster: float, spread: float) -> str:
        found = numbers("model_parallel", *rivals({(1, 1): 1.0, (4, 1): faster}, spread))
        return found["mp.verdict"].text

    clear, noisy, slower = verdict(0.8, 0.01), verdict(0.8, 0.2), verdict(1.25, 0.01)
    assert clear.startswith(f"the layout {TENSOR} (tensor {TIMES_SIGN} pipeline) is 25% faster")
    assert clear.endswith("their percentile ranges do not overlap")
    assert noisy.endswith("so that the order of the two is not settled")
    assert slower == (
        f"no layout is faster than data parallelism alone; the next, {TENSOR}, is 20% slower, "
        "and their percentile ranges do not overlap"
    )


@pytest.mark.parametrize(
    ("times", "spread", "said"),
    [
        ((1.2, 1.3, 1.4), 0.01, "none outruns it"),
        ((0.8, 1.3, 1.4), 0.01, f"1 outruns it {APART}"),
        ((0.8, 1.3, 1.4), 0.2, f"1 outruns it {OVERLAP}"),
        ((0.8, 0.7, 1.4), 0.01, "2 outrun it (all with percentile ranges apart)"),
        ((0.9, 0.5, 1.4), 0.2, "2 outrun it (1 with percentile ranges apart)"),
        ((0.9, 0.8, 1.4), 0.3, "2 outrun it (none with percentile ranges apart)"),
    ],
)
def test_layouts_are_counted_against_the_baseline(times: tuple[float, ...], spread: float, said: str) -> None:
    seconds = dict(zip([(1, 2), (2, 1), (4, 1)], times, strict=True))
    found = numbers("model_parallel_small_batch", *rivals({(1, 1): 1.0, **seconds}, spread))
    assert found["small.faster"].text == said


def test_exposure_and_throughput_correlate_either_way() -> None:
    rows = rivals({(1, 1): 1.0, (1, 2): 1.2, (2, 1): 1.4})
    for row, exposed in zip(rows, (0.3, 0.2, 0.1), strict=True):
        row["exposed_communication_s"] = exposed
    found = numbers("model_parallel", *rows)
    assert (found["mp.spearman"].text, found["mp.spearman_word"].text) == ("1.00", "strong and positive")
    assert found["mp.least_exposed"].text == f"{layout(2, 1)}, which is not the fastest"


def test_without_a_baseline_nothing_is_compared_with_it() -> None:
    found = texts(numbers("model_parallel", *rivals({(1, 2): 1.0, (4, 1): 0.9})), "mp")
    assert set(found) == {"ranks", "global_batch", "layouts"}


def test_more_ranks_may_have_several_layouts() -> None:
    rows = rivals({(1, 1): 1.0, (4, 1): 0.9})
    found = numbers("model_parallel_large_scale", *rows)
    assert (found["large.which"].text, found["large.layout"].text) == ("the fastest of 2 layouts", TENSOR)


# -- other sweeps ---------------------------------------------------------------------------------------------------


def test_bandwidth_may_rise_with_ranks() -> None:
    points = [(2, 2**16), (2, 2**24), (4, 2**16), (4, 2**24)]
    rows = [
        made.call_row(op="all_reduce", nodes=ranks, gpus=ranks, message_bytes=size, call_s=size / ranks / 1e9)
        for ranks, size in points
    ]
    found = numbers("collectives", *rows)
    assert found["collectives.all_reduce_with_ranks"].text == f"grows to 3 times its value {APART}"
    assert found["collectives.all_reduce_time_ratio"].text == "256"
    assert not [name for name in found if "all_gather" in name or "send_recv" in name]


def test_an_incomplete_grid_of_messages_is_not_compared() -> None:
    rows = [made.call_row(op="all_reduce", nodes=n, gpus=n, message_bytes=size) for n, size in ((2, 2**16), (4, 2**24))]
    assert not [name for name in numbers("collectives", *rows) if "all_reduce" in name]


def test_a_fixed_batch_takes_the_fastest_layout_of_each_scale() -> None:
    two = {"global_batch": 8, "iteration_s": 1.0}
    rows = [made.mini_row(dp=2, **two), made.mini_row(dp=1, pp=2, **two | {"iteration_s": 1.2})]
    rows += rivals({(1, 1): 0.9, (1, 4): 0.4})
    found = numbers("fixed_batch", *rows)
    assert found["fixed.fastest"].text == f"{ALONE} on 2 and {layout(1, 4)} on 4"
    assert (found["fixed.step"].text, found["fixed.step_from"].value) == (f"rises by 150% {APART}", 2)
    assert set(found["fixed.step"].runs) == {rows[0]["run_id"], rows[3]["run_id"]}


def test_groups_where_no_layout_wins_are_left_out_of_the_gains() -> None:
    rows = rivals({(1, 1): 1.0, (1, 2): 0.8}, model="mini-4m") + rivals({(1, 1): 1.0, (1, 2): 1.3}, model="mini-9m")
    found = numbers("model_size", *rows)
    assert found["size.layouts"].text == (
        f"for 1 of the 2 models a layout is faster than the least parallel one: for mini-4m {TWO_STAGES} by 25% {APART}"
    )
    lost = rivals({(1, 1): 1.0, (1, 2): 1.2}, model="mini-4m") + rows[2:]
    assert numbers("model_size", *lost)["size.layouts"].text == (
        "for none of the 2 models is a layout faster than the least parallel one"
    )


def test_any_precision_may_be_fastest() -> None:
    rows = [
        row | {"run_id": f"{precision}_{row['run_id']}"}
        for precision, factor in (("fp32", 1.0), ("bf16", 0.5))
        for row in rivals({(1, 1): factor, (1, 2): 1.1 * factor}, precision=precision)
    ]
    found = numbers("generations", *rows)
    assert (found["precision.fastest"].text, found["precision.others"].text) == ("bf16", f"fp32 reaches 50% {APART}")
    assert found["precision.layouts"].text.startswith("in none of the 2 precisions is a layout faster")


def test_longer_sequences_may_cost_throughput() -> None:
    rows = [
        made.mini_row(dp=4, sequence_length=length, iteration_s=seconds, run_id=f"s{length}")
        for length, seconds in ((64, 1.0), (128, 2.0), (256, 5.0))
    ]
    found = numbers("context_length", *rows)
    assert found["context.rate_moves"].text == f"falls by 20% {APART}"
    assert found["context.exposed_share_moves"].text == "hardly changes"


# -- runs -----------------------------------------------------------------------------------------------------------


def test_runs_that_ended_otherwise_are_counted() -> None:
    ended = made.mini_row(dp=1, outcome="failed", reason="rank 0 ended")
    found = numbers("data_parallel", ended, made.mini_row(dp=2, iteration_s=1.0))
    assert found["runs.outcomes"].text == "1 ended as failed"
    assert found["runs.oversubscription"].text.startswith("None of the runs that ended well has")


def test_one_oversubscribed_run_is_singular() -> None:
    found = numbers("model_parallel_large_scale", made.mini_row(dp=2, iteration_s=1.0), made.mini_row(dp=8))
    assert found["runs.oversubscription"].text == (
        "Of the 2 runs that ended well, 1 has more ranks than the machine has cores (that of 8 ranks)."
    )


def test_collective_runs_have_no_iterations() -> None:
    found = paper_numbers(STUDY, {"collectives": FRAMES["collectives"]})
    assert found["runs.collective"].value == found["runs.count"].value == 10
    assert texts(found, "runs").keys().isdisjoint({"training", "iterations", "kept", "models", "threads", "cv_median"})
    assert FOUND["runs.iterations"].runs == FOUND["runs.training"].runs


def test_reasons_that_differ_in_precision_alone_are_one() -> None:
    rows = [
        made.mini_row(dp=1, precision=one, run_id=one, null_reasons=json.dumps({"mfu": f"no peak for {one} here"}))
        for one in ("fp32", "bf16")
    ]
    assert numbers("generations", *rows)["runs.why_no_mfu"].text == "no peak for bf16 and fp32 here"


def test_a_metric_that_some_runs_have_is_not_said_to_be_missing() -> None:
    rows = [made.mini_row(dp=1), made.mini_row(dp=2, mfu=0.4)]
    found = numbers("data_parallel", *rows)
    assert "runs.why_no_mfu" not in found
    assert "runs.why_no_power_w_per_gpu" in found


# -- values into text -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0%"), (0.0834, "8.3%"), (0.0996, "10%"), (1.314, "131%"), (-0.05, "\N{MINUS SIGN}5.0%")]
)
def test_percentages(value: float, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.012345, "0.0123"), (12.345, "12.3"), (999.6, "1,000"), (1234, "1,230"), (0.8, "0.8")]
)
def test_quantities_have_three_significant_digits(value: float, text: str) -> None:
    assert quantity(value) == text


def test_lists_are_in_natural_order() -> None:
    assert in_order(pl.Series(["mini-20m", "mini-4m", "mini-9m"])) == ["mini-4m", "mini-9m", "mini-20m"]
    assert in_order([16, 2, 4, 2]) == [2, 4, 16]
    assert in_order(["2.13.0", "2.9.1"]) == ["2.9.1", "2.13.0"]
    assert in_order(["fp32", "bf16", "alpha"]) == ["alpha", "bf16", "fp32"]
    assert [joined(["a", "b", "c"][:count]) for count in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_a_record_that_cannot_be_true_gives_no_number() -> None:
    invalid = FRAMES["data_parallel"].with_columns(
        outcome=pl.when(pl.col("gpus") == pl.col("gpus").max()).then(pl.lit("invalid")).otherwise("outcome")
    )
    fewer = FRAMES["data_parallel"].filter(pl.col("gpus") < pl.col("gpus").max())
    assert paper_numbers(STUDY, {"data_parallel": invalid}) == paper_numbers(STUDY, {"data_parallel": fewer})
