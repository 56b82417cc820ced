"""What limits a run: every limit is found where it is put, with its share by hand."""

from __future__ import annotations

import pytest

from scaling_study.records import SCHEMA, diagnose, read_records
from scaling_study.roofline import bounds_of_iteration
from scaling_study.spec import ActivationCheckpointing, Limit, Outcome, Regime, TrainingRun, expand, run_id
from tests.unit.samples import CONFIG, ROOT

CATALOGUE = CONFIG.catalogue
MODEL, H100 = CATALOGUE.models["llama2-7b"], CATALOGUE.hardware["h100"]


def run(**fields):
    dp, tp, pp = (fields.get(name, 1) for name in ("dp", "tp", "pp"))
    defaults = {
        "model": "llama2-7b",
        "hardware": "h100",
        "nodes": max(1, dp * tp * pp // 8),
        "dp": dp,
        "micro_batch": 2,
    }
    return TrainingRun(**{**defaults, "global_batch": 2 * dp, **fields})


def told(made, **fields):
    """The diagnosis of a record of that run: one second an iteration, nothing communicated, unless said otherwise."""
    times = {f"{kind}_{axis}_s": 0.0 for kind in ("communication", "exposed") for axis in ("dp", "tp", "pp", "unknown")}
    record = dict.fromkeys(SCHEMA) | {
        "run_id": "r", "provenance": "measured", "outcome": "ok", "iteration_s": 1.0, "compute_s": 1.0,
        "communication_s": 0.0, "exposed_communication_s": 0.0, **times, **fields,
    }  # fmt: skip
    return diagnose(record, made, MODEL, CATALOGUE.hardware[made.hardware])


def part(found, limit, axis=None):
    return next(one for one in found.parts if (one.limit, one.axis) == (limit, axis))


def least(made, regime):
    bounds = bounds_of_iteration(made, MODEL, H100).bounds
    return next(one.seconds for one in bounds if one.regime is regime)


def test_compute_near_its_roof_and_far_from_it():
    made = run(dp=8)
    needed = least(made, Regime.COMPUTE)
    near = told(made, compute_s=needed / 0.7, iteration_s=needed / 0.7)
    assert (near.limit, part(near, Limit.COMPUTE).share) == (Limit.COMPUTE, pytest.approx(1.0))
    assert "70% of it needed by the compute roof" in part(near, Limit.COMPUTE).evidence
    assert "kernels are near their roof" in part(near, Limit.COMPUTE).help
    far = told(made, compute_s=needed / 0.3, iteration_s=needed / 0.3)
    assert "a larger micro-batch" in part(far, Limit.COMPUTE).help
    again = told(run(dp=8, activation_checkpointing=ActivationCheckpointing.FULL))
    assert "less recomputation" in part(again, Limit.COMPUTE).help


def test_memory_where_bytes_take_longer_than_flops():
    made = run(dp=1, nodes=1, micro_batch=1, global_batch=1, sequence_length=16)
    found = told(made)
    assert found.limit is Limit.MEMORY
    assert f"needed by the memory roof ({least(made, Regime.MEMORY):.4g} s)" in part(found, Limit.MEMORY).evidence


@pytest.mark.parametrize(
    ("axis", "layout", "words"),
    [
        ("dp", {"dp": 16}, "a larger local batch"),
        ("dp", {"dp": 16, "reshard_after_forward": True}, "no resharding"),
        ("tp", {"dp": 2, "tp": 4}, "less tensor parallelism than 4"),
        ("tp", {"dp": 2, "tp": 16}, "inside a node: at most 8 instead of 16"),
        ("pp", {"dp": 2, "pp": 4, "micro_batch": 1, "global_batch": 8}, "more micro-batches than 4"),
        ("unknown", {"dp": 16}, "does not say"),
    ],
)
def test_exposed_communication_by_its_axis(axis, layout, words):
    made = run(**layout)
    busy = 2 * least(made, Regime.COMMUNICATION)
    fields = {"communication_s": busy, f"communication_{axis}_s": busy}
    found = told(made, compute_s=0.3, exposed_communication_s=0.6, **fields, **{f"exposed_{axis}_s": 0.6})
    assert found.limit is Limit.EXPOSED_COMMUNICATION
    one = part(found, Limit.EXPOSED_COMMUNICATION, axis)
    assert (one.share, found.parts[0]) == (pytest.approx(0.6), one)
    assert words in one.help
    assert "2 times what its bytes need" in one.evidence


def test_axes_that_overlap_share_the_total():
    fields = {"exposed_dp_s": 0.4, "exposed_tp_s": 0.2, "communication_dp_s": 0.5, "communication_tp_s": 0.3}
    found = told(run(dp=4, tp=2), compute_s=0.7, exposed_communication_s=0.3, communication_s=0.001, **fields)
    shares = {one.axis: one.share for one in found.parts if one.axis}
    assert shares == {"dp": pytest.approx(0.2), "tp": pytest.approx(0.1)}


def test_a_slow_fabric_is_told_from_many_bytes():
    made = run(dp=16)
    busy = 5 * least(made, Regime.COMMUNICATION)
    fields = {"communication_s": busy, "communication_dp_s": busy, "exposed_dp_s": 0.6}
    found = told(made, compute_s=0.4, exposed_communication_s=0.6, **fields)
    assert found.limit is Limit.FABRIC
    assert "qualify" in part(found, Limit.FABRIC, "dp").help


def test_a_pipeline_waits_for_its_bubble_first_and_the_rest_is_the_host():
    made = run(dp=2, pp=4, micro_batch=1, global_batch=8)
    found = told(made, compute_s=0.3)
    assert part(found, Limit.PIPELINE_BUBBLE).share == pytest.approx(3 / 7)
    assert part(found, Limit.HOST_LAUNCH).share == pytest.approx(0.7 - 3 / 7)
    assert found.limit is Limit.PIPELINE_BUBBLE


def test_the_host_where_nothing_runs():
    found = told(run(dp=8), compute_s=0.3)
    assert (found.limit, part(found, Limit.HOST_LAUNCH).share) == (Limit.HOST_LAUNCH, pytest.approx(0.7))
    assert "CUDA graphs" in part(found, Limit.HOST_LAUNCH).help


def test_skew_where_iterations_vary():
    found = told(run(dp=8), iteration_s_cv=0.4, iteration_s_p05=0.6, profiled_iteration_s=2.0)
    assert part(found, Limit.SKEW).share == pytest.approx(0.4)
    assert "names nodes to exclude" in part(found, Limit.SKEW).help
    steady = told(run(dp=8), iteration_s_cv=0.04, iteration_s_p05=0.6)
    assert Limit.SKEW not in {one.limit for one in steady.parts}


def test_a_run_without_numbers_says_why():
    ended = told(run(dp=8), outcome=Outcome.OUT_OF_MEMORY, reason="it needs 90 GiB")
    assert (ended.limit, ended.parts, ended.notes[0]) == (Limit.MEMORY, (), "it needs 90 GiB")
    invalid = told(run(dp=8), outcome=Outcome.INVALID, reason="an MFU of 152%")
    assert (invalid.limit, invalid.notes) == (None, ("an MFU of 152%",))
    assert told(run(dp=8), compute_s=None).limit is None


def test_notes_on_memory_and_shared_cores():
    found = told(run(dp=8), peak_memory_gib=75.0, oversubscribed=True)
    assert "memory is full (75 of 80 GiB)" in found.notes[0]
    assert "ranks share cores" in found.notes[1]


def test_every_record_of_the_cache_has_parts_that_fill_its_iteration():
    for path in sorted((ROOT / "results/cached").glob("*/*/*.parquet")):
        if path.parent.name == "model" or path.stem == "collectives":
            continue
        runs = {run_id(one): one for one in expand(CONFIG.study(path.parts[-3]), path.stem, CATALOGUE)}
        for record in read_records(path).filter(outcome="ok").iter_rows(named=True):
            made = runs[record["run_id"]]
            found = diagnose(record, made, CATALOGUE.models[made.model], CATALOGUE.hardware[made.hardware])
            assert found.limit is not None
            filled = sum(one.share for one in found.parts if one.limit is not Limit.SKEW)
            assert filled == pytest.approx(1.0, abs=0.011), record["run_id"]
