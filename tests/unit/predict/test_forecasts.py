"""Runs predicted: metrics follow from the timeline, memory from the closed form, and intervals from left-out errors."""

import msgspec
import pytest

from scaling_study.errors import UserError
from scaling_study.predict.forecasts import forecast, peak_memory_gib, timeline_of_run
from scaling_study.predict.memory import memory_of
from scaling_study.predict.ours import setup_of_run
from scaling_study.predict.predictions import step_times
from scaling_study.records import read_records
from scaling_study.spec import CollectiveOp, CollectiveRun, Outcome, Precision, TrainingRun, expand, run_id
from scaling_study.timeline import exposure
from tests.unit.predict.setups import LIBRARY
from tests.unit.samples import CONFIG, ROOT

CATALOGUE = CONFIG.catalogue
RUN = TrainingRun(model="llama2-7b", hardware="h100", nodes=8, dp=16, tp=2, pp=2, micro_batch=1, global_batch=128)


def one(run):
    return forecast([run], CATALOGUE, LIBRARY)[0]


def test_times_are_means_over_the_ranks_of_the_timeline():
    found, timeline = one(RUN), timeline_of_run(RUN, CATALOGUE, LIBRARY)
    ranks = exposure(timeline.spans).values()
    assert len(ranks) == 2
    assert found.metrics["iteration_s"] == timeline.iteration_ns / 1e9
    for metric, value in {
        "compute_s": [rank.compute_ns for rank in ranks],
        "exposed_communication_s": [rank.exposed_communication_ns for rank in ranks],
        "communication_tp_s": [rank.communication_by_axis_ns["tp"] for rank in ranks],
        "exposed_pp_s": [rank.exposed_by_axis_ns["pp"] for rank in ranks],
    }.items():
        assert found.metrics[metric] == pytest.approx(sum(value) / 2 / 1e9)
    assert found.metrics["communication_unknown_s"] == 0


def test_the_interval_is_that_of_left_out_sources():
    known, found = LIBRARY.parameter_set("h100"), one(RUN).metrics
    assert found["iteration_s_low"] == pytest.approx(found["iteration_s"] * known.error_low)
    assert found["iteration_s_high"] == pytest.approx(found["iteration_s"] * known.error_high)
    assert known.error_low < 1 < known.error_high


def test_a_gpu_draws_between_idle_and_its_limit():
    busy = one(RUN).metrics["power_w_per_gpu"]
    waiting = one(msgspec.structs.replace(RUN, nodes=32, dp=64, global_batch=128)).metrics["power_w_per_gpu"]
    assert 0.12 * 700 < waiting < busy < 700


def test_memory_is_that_of_the_fullest_stage():
    model = CATALOGUE.models["llama2-7b"]
    stages = [memory_of(RUN, model, stage).peak_gib for stage in range(RUN.pp)]
    assert one(RUN).metrics["peak_memory_gib"] == peak_memory_gib(RUN, model) == max(stages)


def test_the_fullest_stage_is_an_end_of_the_pipeline():
    runs = [run for run in expand(CONFIG.study("paper"), "model_parallel", CATALOGUE) if run.pp in (4, 8)]
    model = CATALOGUE.models["llama2-7b"]
    assert len(runs) > 10
    for run in runs:
        inner = max(memory_of(run, model, stage).peak_gib for stage in range(1, run.pp - 1))
        assert peak_memory_gib(run, model) >= inner


def test_what_does_not_fit_says_how_much_it_needs():
    found = one(msgspec.structs.replace(RUN, tp=1, dp=32, model="llama2-70b"))
    assert found.outcome is Outcome.OUT_OF_MEMORY
    assert found.reason.startswith("tensors, allocator and buffers need ")
    assert found.reason.endswith(" GiB a GPU of 79 GiB that can be used")
    assert list(found.metrics) == ["peak_memory_gib"]


def test_only_axes_of_several_ranks_have_buffers():
    """7B, two sequences a GPU, on one node: 70.7 GiB of tensors, 76.4 reserved, 2 GiB beside them, of 79.2."""
    run = TrainingRun(model="llama2-7b", hardware="h100", nodes=1, dp=8, micro_batch=2, global_batch=16)
    assert one(run).metrics["peak_memory_gib"] == pytest.approx(70.71, abs=0.05)
    assert one(run).outcome is Outcome.OK


def test_a_part_without_measurements_is_extrapolated():
    run = TrainingRun(
        model="llama2-7b",
        hardware="v100",
        nodes=32,
        dp=64,
        tp=4,
        micro_batch=1,
        global_batch=256,
        precision=Precision.FP16,
    )
    assert one(run).extrapolated
    assert not one(RUN).extrapolated


def test_collectives_have_the_interval_of_their_size():
    known = LIBRARY.parameter_set("h100")
    small, large = (
        one(CollectiveRun(op=CollectiveOp.ALL_GATHER, hardware="h100", nodes=4, message_bytes=size)).metrics
        for size in (2**20, 2**30)
    )
    assert small["call_s_high"] / small["call_s"] == pytest.approx(known.small_calls.high)
    assert large["call_s_high"] / large["call_s"] == pytest.approx(known.large_calls.high)
    assert known.large_calls.high < known.small_calls.high


def test_a_mixture_keeps_its_order():
    call = CollectiveRun(op=CollectiveOp.ALL_REDUCE, hardware="a100", nodes=4, message_bytes=2**30)
    other = msgspec.structs.replace(RUN, hardware="a100")
    assert [found.run for found in forecast([RUN, call, other], CATALOGUE, LIBRARY)] == [RUN, call, other]


def test_a_cpu_is_not_predicted():
    with pytest.raises(UserError, match="hardware cpu: the performance model knows no part None"):
        one(TrainingRun(model="mini-9m", hardware="cpu", nodes=1, dp=1, micro_batch=1, global_batch=1))


def test_the_closed_form_agrees_with_every_timeline_of_the_paper_study():
    """`plan` ranks by the closed form, records come from timelines: within 1% on all runs of the study."""
    runs, seconds = {}, {}
    for path in sorted((ROOT / "results/cached/paper/predict").glob("*.parquet")):
        frame = read_records(path).filter(kind="training", outcome="ok")
        seconds |= dict(frame.select("run_id", "iteration_s").iter_rows())
        runs |= {run_id(run): run for run in expand(CONFIG.study("paper"), path.stem, CATALOGUE)}
    seconds = {name: value for name, value in seconds.items() if not runs[name].is_observed}  # those are by chance
    chosen = [runs[name] for name in seconds]
    setups = [
        setup_of_run(run, CATALOGUE.models[run.model], CATALOGUE.hardware[run.hardware], LIBRARY) for run in chosen
    ]
    fast = step_times(setups, lambda family: LIBRARY.parameter_set(family).values())
    assert len(chosen) > 500
    assert max(abs(fast / list(seconds.values()) - 1)) < 0.01
