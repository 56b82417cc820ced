"""A run's result into its record: every number by hand."""

import json
import math

import msgspec
import polars as pl
import pytest

from scaling_study.records import SCHEMA, predicted_record, reason_for, record_of
from scaling_study.records.schema import COLLECTIVE_METRICS, TRAINING_METRICS
from scaling_study.spec import (
    CollectiveOp,
    CollectiveProtocol,
    CollectiveReport,
    CollectiveRun,
    GpuIdentity,
    GpuReport,
    Outcome,
    PowerReport,
    Precision,
    Protocol,
    Provenance,
    run_id,
)
from tests.unit.samples import PART, TINY, environment, rank_report, run_result, training_run

SECOND = 1_000_000_000


def record(result, hardware=PART, provenance=Provenance.MEASURED):
    return record_of(result, TINY, hardware, platform="here", provenance=provenance)


def two_ranks():
    return [
        rank_report(
            0,
            host="node-b",
            peak_memory_gib=0.5,
            iteration_ns=[9 * SECOND, 1 * SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND],
            profiled_ns=[3 * SECOND, 4 * SECOND],
            losses=[5.0, 4.0, 3.0, 2.5, 2.0],
            compute_ns=4 * SECOND,
            communication_ns=3 * SECOND,
            exposed_communication_ns=1 * SECOND,
            communication_by_axis_ns={"dp": 2 * SECOND, "tp": 1 * SECOND, "unknown": 1 * SECOND},
            exposed_by_axis_ns={"dp": 1 * SECOND},
        ),
        rank_report(
            1,
            host="node-a",
            cores=2,
            threads=3,
            peak_memory_gib=0.75,
            iteration_ns=[1 * SECOND, 2 * SECOND, 2 * SECOND, 2 * SECOND, 2 * SECOND],
            profiled_ns=[5 * SECOND, 3 * SECOND],
            losses=[5.0, 4.0, 3.0, 2.5, 3.0],
            compute_ns=2 * SECOND,
            communication_ns=1 * SECOND,
            exposed_communication_ns=1 * SECOND,
            communication_by_axis_ns={"dp": 1 * SECOND},
            exposed_by_axis_ns={"dp": 1 * SECOND, "tp": 1 * SECOND},
        ),
    ]


#: An iteration lasts as long as on its slowest rank, 9 2 2 3 4 seconds, of which the first is discarded.
ITERATION_S = 2.75
WORDS = 4 * 16 / ITERATION_S
GOLDEN = {
    "iteration_s": ITERATION_S,
    "iteration_s_p05": 2.0,
    "iteration_s_p50": 2.5,
    "iteration_s_p95": 3.85,
    "iteration_s_cv": math.sqrt(2.75 / 3) / 2.75,
    "iteration_s_low": None,
    "iteration_s_high": None,
    "words_per_second": WORDS,
    "words_per_second_per_gpu": WORDS / 2,
    "tflops_per_gpu": WORDS / 2 * 13296 / 1e12,
    "mfu": WORDS / 2 * 13296 / 2e12,
    "compute_s": (4 + 2) / 2 / 2,
    "communication_s": (3 + 1) / 2 / 2,
    "exposed_communication_s": (1 + 1) / 2 / 2,
    "exposed_fraction": 0.5 / ITERATION_S,
    "communication_dp_s": (2 + 1) / 2 / 2,
    "communication_tp_s": (1 + 0) / 2 / 2,
    "communication_pp_s": 0.0,
    "exposed_dp_s": (1 + 1) / 2 / 2,
    "exposed_tp_s": (0 + 1) / 2 / 2,
    "exposed_pp_s": 0.0,
    "communication_unknown_s": (1 + 0) / 2 / 2,
    "exposed_unknown_s": 0.0,
    "power_w_per_gpu": None,
    "tokens_per_joule": None,
    "peak_memory_gib": 0.75,
    "profiled_iteration_s": (5 + 4) / 2,
    "profiler_overhead": 4.5 / ITERATION_S - 1,
    "final_loss": 2.5,
}


def test_golden_metrics():
    found = record(run_result(ranks=two_ranks()))
    assert set(GOLDEN) == set(TRAINING_METRICS)
    assert {name: found[name] for name in GOLDEN} == {
        name: value if value is None else pytest.approx(value, rel=1e-12) for name, value in GOLDEN.items()
    }


def test_golden_columns_of_run_outcome_and_provenance():
    run = training_run(repeat=2)
    found = record(run_result(run, ranks=two_ranks(), attempt=2))
    assert found["run_id"] == run_id(run)
    expected = {
        "provenance": "measured",
        "kind": "training",
        "model": "tiny",
        "hardware": "part",
        "nodes": 1,
        "gpus": 2,
        "dp": 2,
        "tp": 1,
        "pp": 1,
        "virtual_stages": 1,
        "micro_batch": 1,
        "global_batch": 4,
        "sequence_length": 16,
        "precision": "fp32",
        "reduction_dtype": "fp32",
        "attention": "sdpa",
        "reshard_after_forward": False,
        "activation_checkpointing": "none",
        "schedule": "1f1b",
        "pacing": "off",
        "repeat": 2,
        "iterations": 5,
        "discard": 1,
        "profiled_iterations": 2,
        "data": "synthetic",
        "revision": 1,
        "outcome": "ok",
        "reason": None,
        "platform": "here",
        "attempt": 2,
        "started_at": "2025-01-01T00:00:00.000+00:00",
        "finished_at": "2025-01-01T00:01:00.000+00:00",
        "hosts": "node-a,node-b",
        "device": "a processor",
        "host_cores": 4,
        "affinity_cores": 2,
        "threads_per_rank": 3,
        "oversubscribed": False,
        "backend": "gloo",
        "attention_operator": "aten::_scaled_dot_product_flash_attention_for_cpu",
        "data_source": "synthetic",
        "data_sha256": "0" * 64,
        "torch_version": "2.10.0",
        "python_version": "3.12.1",
        "code_version": "0.1.0+abc",
        "extrapolated": None,
    }
    assert {name: found[name] for name in expected} == expected
    assert set(found) == set(SCHEMA)
    of_collectives = {*COLLECTIVE_METRICS, "op", "message_bytes", "dtype", "warmup", "repeats"}
    assert set(SCHEMA) - of_collectives == set(expected) | set(TRAINING_METRICS) | {"run_id", "null_reasons"}
    assert {found[name] for name in of_collectives} == {None}


def test_a_record_fits_the_schema():
    frame = pl.DataFrame([record(run_result())], schema=SCHEMA)
    assert frame.to_dicts() == [record(run_result())]


def test_words_per_second_are_tokens_over_the_mean_iteration():
    run = training_run(dp=4, nodes=2, global_batch=8, sequence_length=32)
    found = record(run_result(run))
    assert found["words_per_second"] == 8 * 32
    assert found["words_per_second_per_gpu"] == 64


def test_null_metrics_have_their_reasons_and_only_they():
    found = record(run_result())
    percentiles = "measured: how iterations vary is in the percentiles"
    assert json.loads(found["null_reasons"]) == {
        "power_w_per_gpu": "no meter",
        "tokens_per_joule": "no meter",
        "iteration_s_low": percentiles,
        "iteration_s_high": percentiles,
    }
    assert reason_for(found, "power_w_per_gpu") == "no meter"
    assert reason_for(found, "iteration_s") is None


def test_a_missing_peak_is_the_reason_of_a_missing_mfu():
    found = record(run_result(training_run(precision=Precision.BF16)))
    assert found["mfu"] is None
    assert found["tflops_per_gpu"] > 0
    assert reason_for(found, "mfu") == "no peak is published for bf16 on a test part"


def test_an_impossible_rate_makes_a_record_invalid():
    slow = msgspec.structs.replace(
        PART, peak_tflops={Precision.FP32: msgspec.structs.replace(PART.memory_gib, value=1e-9)}
    )
    found = record(run_result(), slow)
    assert found["outcome"] == Outcome.INVALID
    assert [name for name in TRAINING_METRICS if found[name] is not None] == []
    assert found["reason"].startswith("4.255e-07 TFLOP/s a GPU are above the peak, 1e-09 dense fp32; ")
    assert reason_for(found, "mfu") == found["reason"]


def test_memory_and_loss_that_no_rank_has_are_null_with_a_reason():
    ranks = [rank_report(rank, peak_memory_gib=None, losses=[]) for rank in range(2)]
    found = record(run_result(ranks=ranks, environment=environment(unavailable={"peak_memory_gib": "no counter"})))
    assert (found["peak_memory_gib"], found["final_loss"]) == (None, None)
    assert reason_for(found, "peak_memory_gib") == "no counter"
    assert reason_for(found, "final_loss") == "not recorded"


def test_only_ranks_of_the_last_stage_have_losses():
    run = training_run(dp=1, pp=2)
    ranks = [rank_report(0, losses=[]), rank_report(1, losses=[4.0, 1.5])]
    assert record(run_result(run, ranks=ranks))["final_loss"] == 1.5


def gpu(power_w, reason=None):
    return GpuReport(
        identity=GpuIdentity(index=0, name="a part"), driver=None, peak_allocated_gib=1.0, peak_reserved_gib=2.0,
        allocation_retries=0, power=PowerReport(window_s=2.0, power_w=power_w, reason=reason),
    )  # fmt: skip


def test_power_is_the_mean_of_what_every_gpu_told():
    ranks = [rank_report(0, gpu=gpu(100.0)), rank_report(1, gpu=gpu(300.0))]
    row = record(run_result(ranks=ranks, environment=environment(unavailable={})))
    assert row["power_w_per_gpu"] == 200.0
    assert row["tokens_per_joule"] == pytest.approx(row["words_per_second_per_gpu"] / 200.0)


def test_power_that_one_gpu_does_not_tell_is_null_with_the_reason():
    ranks = [rank_report(0, gpu=gpu(None, "denied")), rank_report(1, gpu=gpu(300.0))]
    missing = {"power_w_per_gpu": "denied", "tokens_per_joule": "denied"}
    row = record(run_result(ranks=ranks, environment=environment(unavailable=missing)))
    assert (row["power_w_per_gpu"], row["tokens_per_joule"]) == (None, None)
    assert reason_for(row, "power_w_per_gpu") == "denied"


def test_what_a_profiler_did_not_see_is_null_not_zero():
    missing = dict.fromkeys(("compute_s", "exposed_fraction"), "no CUPTI")
    row = record(run_result(environment=environment(unavailable=missing)))
    assert (row["compute_s"], row["exposed_fraction"]) == (None, None)
    assert reason_for(row, "exposed_fraction") == "no CUPTI"


def test_one_kept_iteration_has_no_spread():
    run = training_run(protocol=Protocol(iterations=2, discard=1, profiled_iterations=2))
    ranks = [rank_report(rank, iteration_ns=[9 * SECOND, 3 * SECOND]) for rank in range(2)]
    found = record(run_result(run, ranks=ranks))
    assert (found["iteration_s"], found["iteration_s_cv"], found["iteration_s_p95"]) == (3.0, 0.0, 3.0)


def test_no_iteration_is_discarded_where_the_protocol_says_so():
    run = training_run(protocol=Protocol(iterations=2, discard=0, profiled_iterations=2))
    ranks = [rank_report(rank, iteration_ns=[9 * SECOND, 3 * SECOND]) for rank in range(2)]
    assert record(run_result(run, ranks=ranks))["iteration_s"] == 6.0


def test_ranks_of_different_length_are_no_result():
    ranks = [rank_report(0), rank_report(1, iteration_ns=[SECOND])]
    with pytest.raises(ValueError, match="shorter"):
        record(run_result(ranks=ranks))


@pytest.mark.parametrize(
    ("hosts", "host_cores", "oversubscribed"),
    [("aabb", 2, False), ("aaab", 2, True), ("aabb", 1, True), ("abcd", 1, False)],
)
def test_oversubscribed_is_more_ranks_than_cores_on_some_host(hosts, host_cores, oversubscribed):
    ranks = [rank_report(rank, host=host) for rank, host in enumerate(hosts)]
    result = run_result(training_run(dp=4), ranks=ranks, environment=environment(host_cores=host_cores))
    assert record(result)["oversubscribed"] is oversubscribed


@pytest.mark.parametrize("outcome", [Outcome.OUT_OF_MEMORY, Outcome.INFEASIBLE, Outcome.TIMEOUT, Outcome.FAILED])
def test_other_outcomes_have_a_reason_and_no_metric(outcome):
    found = record(run_result(outcome=outcome, reason="it did not fit"))
    assert (found["outcome"], found["reason"]) == (outcome.value, "it did not fit")
    assert [name for name in TRAINING_METRICS if found[name] is not None] == []
    assert found["null_reasons"] is None
    assert reason_for(found, "mfu") == "it did not fit"
    assert (found["gpus"], found["platform"], found["provenance"]) == (2, "here", "measured")
    assert found["hosts"] is None


def test_provenance_is_kept():
    assert record(run_result(), provenance=Provenance.PREDICTED)["provenance"] == "predicted"


COLLECTIVE = CollectiveRun(
    op=CollectiveOp.ALL_REDUCE,
    hardware="part",
    nodes=2,
    message_bytes=8_000_000,
    dtype=Precision.FP32,
    protocol=CollectiveProtocol(warmup=1, repeats=3),
)


def collective_result(**fields):
    """Calls of 1, 2 and 3 ms on ranks 0 to 2, of 5, 6 and 7 ms on rank 3."""
    times_ms = [(1, 2, 3)] * 3 + [(5, 6, 7)]
    calls = [
        CollectiveReport(
            rank=rank, host="node-a", device="a processor", cores=4, threads=1, call_ns=[ms * 10**6 for ms in times]
        )
        for rank, times in enumerate(times_ms)
    ]
    used = environment(attention_operator=None, data_source=None, data_sha256=None)
    return run_result(COLLECTIVE, **{"ranks": [], "calls": calls, "environment": used, **fields})


def test_a_collective_by_hand():
    found = record_of(collective_result(), None, PART, platform="here", provenance=Provenance.MEASURED)
    expected = {
        "kind": "collective",
        "run_id": run_id(COLLECTIVE),
        "op": "all_reduce",
        "hardware": "part",
        "nodes": 2,
        "gpus": 4,
        "message_bytes": 8_000_000,
        "dtype": "fp32",
        "warmup": 1,
        "repeats": 3,
        "call_s": 3e-3,  # means over ranks: 2, 3 and 4 ms
        "call_s_p05": 2.1e-3,
        "call_s_p50": 3e-3,
        "call_s_p95": 3.9e-3,
        "call_s_cv": 1 / 3,
        "algorithm_bandwidth_gb_per_s": 8 / 3,
        "bus_bandwidth_gb_per_s": 8 / 3 * 2 * 3 / 4,
        "oversubscribed": False,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert [name for name in TRAINING_METRICS if found[name] is not None] == []
    assert {found[name] for name in ("model", "dp", "micro_batch", "precision", "data", "data_source")} == {None}
    assert set(found) == set(SCHEMA)


def test_a_collective_that_failed_has_no_metric():
    result = collective_result(outcome=Outcome.FAILED, calls=[], environment=None, reason="lost")
    found = record_of(result, None, PART, platform="here", provenance=Provenance.MEASURED)
    assert [name for name in COLLECTIVE_METRICS if found[name] is not None] == []
    assert (found["reason"], found["message_bytes"]) == ("lost", 8_000_000)


# -- predictions ----------------------------------------------------------------------------------------------------

PREDICTED = {
    "iteration_s": 2.0,
    "iteration_s_low": 1.8,
    "iteration_s_high": 2.3,
    "compute_s": 1.5,
    "communication_s": 0.6,
    "exposed_communication_s": 0.5,
    "power_w_per_gpu": 16.0,
    "peak_memory_gib": 0.75,
}


def predicted(run=None, outcome=Outcome.OK, reason=None, metrics=PREDICTED):
    made = run or training_run()
    model = TINY if run is None else None
    return predicted_record(made, outcome, reason, metrics, model, PART, extrapolated=True, platform="predict")


def test_a_prediction_by_hand():
    found = predicted()
    words = 4 * 16 / 2.0
    expected = {
        "run_id": run_id(training_run()),
        "provenance": "predicted",
        "platform": "predict",
        "outcome": "ok",
        "extrapolated": True,
        "device": PART.part,
        "words_per_second": words,
        "words_per_second_per_gpu": words / 2,
        "tflops_per_gpu": words / 2 * 13296 / 1e12,
        "mfu": words / 2 * 13296 / 2e12,
        "exposed_fraction": 0.25,
        "tokens_per_joule": words / 2 / 16,
        **PREDICTED,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert set(found) == set(SCHEMA)


def test_what_a_prediction_lacks_has_a_reason():
    found = predicted()
    missing = {name for name in TRAINING_METRICS if found[name] is None}
    assert missing >= {"iteration_s_p05", "iteration_s_cv", "final_loss", "profiler_overhead"}
    assert set(json.loads(found["null_reasons"])) == missing
    assert reason_for(found, "final_loss") == "predicted: one iteration, which is not run"


def test_a_prediction_out_of_memory_says_how_much_it_needs():
    found = predicted(outcome=Outcome.OUT_OF_MEMORY, reason="too large", metrics={"peak_memory_gib": 99.0})
    assert (found["outcome"], found["reason"], found["peak_memory_gib"]) == ("out_of_memory", "too large", 99.0)
    assert [name for name in TRAINING_METRICS if found[name] is not None] == ["peak_memory_gib"]


def test_a_predicted_collective_has_its_bandwidth():
    found = predicted(COLLECTIVE, metrics={"call_s": 3e-3, "call_s_low": 2e-3, "call_s_high": 4e-3})
    assert found["bus_bandwidth_gb_per_s"] == pytest.approx(8 / 3 * 2 * 3 / 4)
    assert reason_for(found, "call_s_p05") == "predicted: one iteration, which is not run"
