"""Timelines: they end where the closed form says, and mean what a measured one means."""

import time

import polars as pl
import pytest

from scaling_study.predict.batch import batch_of
from scaling_study.predict.fast import iteration
from scaling_study.predict.ours import setup_of_run
from scaling_study.predict.passes import Beside, BlockTimes, build_pass
from scaling_study.predict.schedule import timeline
from scaling_study.spec import PipelineSchedule, SpanKind, TrainingRun
from scaling_study.timeline import SCHEMA, exposure
from tests.unit.predict.setups import LIBRARY
from tests.unit.samples import CONFIG

TIMES = BlockTimes(
    whole=10.0, compute=8.0, exposed=2.0, wire=4.0, attention_share=0.5, tensor=True, sequence=False, message_bytes=7
)


def made(dp=16, tp=1, pp=1, chunks=1, model="llama2-1b", **fields):
    catalogue = CONFIG.catalogue
    run = TrainingRun(
        model=model, hardware="h100", nodes=dp * tp * pp // 8, dp=dp, tp=tp, pp=pp, virtual_stages=chunks,
        micro_batch=1, global_batch=8 * dp,
        schedule=PipelineSchedule.INTERLEAVED if chunks > 1 else PipelineSchedule.ONE_F_ONE_B, **fields,
    )  # fmt: skip
    setup = setup_of_run(run, catalogue.models[model], catalogue.hardware["h100"], LIBRARY)
    constants = LIBRARY.parameter_set("h100").values()
    fast = float(iteration(batch_of([setup]), constants, "h100").total[0])
    return timeline(run, setup, constants), fast


@pytest.mark.parametrize(
    ("dp", "tp", "pp", "reshard"),
    [(16, 1, 1, False), (16, 1, 1, True), (8, 2, 1, False), (4, 4, 1, False), (8, 1, 2, False), (4, 2, 2, True),
     (4, 1, 4, False), (2, 1, 8, False), (2, 2, 4, False)],
)  # fmt: skip
def test_a_timeline_ends_where_the_closed_form_says(dp, tp, pp, reshard):
    found, fast = made(dp, tp, pp, reshard_after_forward=reshard)
    assert found.iteration_ns / 1e9 == pytest.approx(fast, rel=0.01)
    assert found.spans["end_ns"].max() == pytest.approx(found.iteration_ns, abs=2)


def test_an_interleaved_timeline_is_close_to_the_closed_form():
    found, fast = made(4, 1, 4, chunks=2)
    assert found.iteration_ns / 1e9 == pytest.approx(fast, rel=0.05)


def test_a_timeline_has_the_columns_of_a_measured_one():
    spans = made(4, 2, 2)[0].spans
    assert spans.schema == pl.Schema(SCHEMA)
    assert spans["rank"].unique().sort().to_list() == [0, 1]
    assert (spans["end_ns"] >= spans["start_ns"]).all()
    assert spans["start_ns"].min() >= 0
    assert set(spans["axis"].drop_nulls().unique()) == {"dp", "tp", "pp"}


def test_computation_of_a_rank_is_one_thing_after_another():
    spans = made(4, 2, 2)[0].spans.filter(pl.col("kind") == SpanKind.COMPUTE.value)
    for _, rank in spans.group_by("rank"):
        ordered = rank.sort("start_ns")
        gaps = ordered["start_ns"].shift(-1) - ordered["end_ns"]
        assert gaps.drop_nulls().min() >= -2


def test_more_tensor_parallelism_exposes_more_communication():
    exposed = {tp: exposure(made(16 // tp, tp)[0].spans)[0] for tp in (2, 4)}
    assert exposed[2].exposed_by_axis_ns["tp"] > 0
    share = {tp: one.exposed_communication_ns / one.compute_ns for tp, one in exposed.items()}
    assert share[4] > share[2]


def test_gathers_hide_behind_computation():
    found = exposure(made(16)[0].spans)[0]
    assert 0 < found.exposed_communication_ns < found.communication_ns


def test_twenty_timelines_a_second():
    start = time.process_time()
    for _ in range(10):
        made(4, 2, 2, model="llama2-7b")
    assert 10 / (time.process_time() - start) > 20


def lengths(found, kind):
    return sum(span.end_s - span.start_s for span in found.spans if span.kind is kind)


def test_a_pass_by_hand():
    found = build_pass(3, TIMES, Beside(), 5.0, backward=False)
    assert found.seconds == 3 * 10 + 5
    assert lengths(found, SpanKind.COMPUTE) == pytest.approx(3 * 8 + 5)
    assert lengths(found, SpanKind.COMMUNICATION) == pytest.approx(3 * 4)  # the wire; half of it lies over computation


def test_gathers_beside_blocks_by_hand():
    short = build_pass(3, TIMES, Beside(gather=4.0, gather_ends=1.0, slowdown=0.5), 0.0, backward=False)
    assert short.seconds == pytest.approx((4 + 1) + 3 * (10 + 0.5 * 4))
    long = build_pass(3, TIMES, Beside(gather=20.0, slowdown=0.5), 0.0, backward=False)
    assert long.seconds == pytest.approx(20 + 3 * 20)


def test_reductions_by_hand():
    found = build_pass(2, TIMES, Beside(gather=3.0, reduce=4.0, reduce_ends=2.0, slowdown=0.0), 1.0, backward=True)
    assert found.seconds == pytest.approx(1 + 2 * 10 + (4 + 2))
    queued = build_pass(2, TIMES, Beside(gather=8.0, reduce=9.0), 0.0, backward=True)
    assert queued.seconds == pytest.approx(2 * 17 + 9)
