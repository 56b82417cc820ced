"""Predicted timelines of eight ranks, written as torch writes traces on GPUs: the reader finds the schedule's."""

import itertools
import json

import pytest

from scaling_study.predict.forecasts import timeline_of_run
from scaling_study.spec import PipelineSchedule, TrainingRun
from scaling_study.traces import Window, look_at
from tests.unit.predict.setups import LIBRARY
from tests.unit.samples import CONFIG

RECORDED = {
    "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base", "all_reduce": "allreduce",
    "send_recv": "send", "arrival": "barrier",
}  # fmt: skip
LAYOUTS = [(tp, pp, 8 // (tp * pp), virtual)
           for tp, pp in itertools.product((1, 2, 4, 8), repeat=2) if tp * pp <= 8
           for virtual in ((1, 2) if pp > 1 else (1,))]  # fmt: skip


def union_ns(intervals):
    """The length that intervals cover."""
    covered, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or end > reached:
            covered += end - (start if reached is None else max(start, reached))
            reached = end
    return covered


def exposed_ns(communication, compute):
    return union_ns([*communication, *compute]) - union_ns(compute)


def written(path, spans, rank, base_ns):
    """One rank's trace: its clock is its own, streams have numbers, groups have names and descriptions."""
    streams = {name: 7 + 13 * index for index, name in enumerate(spans["stream"].unique().sort())}
    events = []
    for number, row in enumerate(spans.iter_rows(named=True)):
        args = {"stream": streams[row["stream"]], "correlation": number + 1, "device": rank}
        name = f"sm90_gemm_{row['op']}"
        if row["kind"] == "communication":
            name = "ncclDevKernel_Generic(args)"
            args |= {
                "Collective name": RECORDED[row["op"]], "dtype": "Byte", "Out msg nelems": row["bytes"] or 0,
                "Process Group Name": row["axis"], "Process Group Description": f"mesh_{row['axis']}",
            }  # fmt: skip
        start_us, length_us = row["start_ns"] / 1000, (row["end_ns"] - row["start_ns"]) / 1000
        events.append({
            "ph": "X", "cat": "kernel", "name": name, "pid": rank, "tid": args["stream"],
            "ts": round(start_us, 3), "dur": round(length_us, 3), "args": args,
        })  # fmt: skip
    about = {"distributedInfo": {"rank": rank, "world_size": 8}, "baseTimeNanoseconds": base_ns}
    path.write_text(json.dumps({**about, "traceEvents": events}))
    return path


@pytest.mark.parametrize(("tp", "pp", "dp", "virtual"), LAYOUTS)
def test_communication_by_axis_is_the_schedule_s(tmp_path, tp, pp, dp, virtual):
    schedule = PipelineSchedule.INTERLEAVED if virtual > 1 else PipelineSchedule.ONE_F_ONE_B
    run = TrainingRun(
        model="llama2-1b", hardware="h100", nodes=1, dp=dp, tp=tp, pp=pp, virtual_stages=virtual, micro_batch=1,
        global_batch=16, sequence_length=2048, schedule=schedule,
    )  # fmt: skip
    timeline = timeline_of_run(run, CONFIG.catalogue, LIBRARY).spans
    ranks_a_stage = 8 // pp
    stages = [timeline.filter(timeline["rank"] == stage) for stage in range(pp)]
    paths = [
        written(tmp_path / f"rank{rank}.json", stages[rank // ranks_a_stage], rank, 10**18 + rank * 12_345)
        for rank in range(8)
    ]
    found = look_at(paths, Window(), None)
    assert [one["rank"] for one in found["files"]] == list(range(8))
    for one in found["files"]:
        rows = stages[one["rank"] // ranks_a_stage].to_dicts()
        spans = {key: [(row["start_ns"], row["end_ns"]) for row in rows if key in (row["kind"], row["axis"])]
                 for key in ("compute", "communication", "dp", "tp", "pp")}  # fmt: skip
        axes = [axis for axis in ("dp", "pp", "tp") if spans[axis]]
        waits_at_end = max(dp, pp)  # the wait for late ranks counts as data parallel, even where only stages wait
        assert axes == [axis for axis, size in (("dp", waits_at_end), ("pp", pp), ("tp", tp)) if size > 1]
        assert one["communication_by_axis_ms"] == {axis: union_ns(spans[axis]) / 1e6 for axis in axes}
        assert one["exposed_by_axis_ms"] == {axis: exposed_ns(spans[axis], spans["compute"]) / 1e6 for axis in axes}
        assert one["compute_ms"] == union_ns(spans["compute"]) / 1e6
        assert one["exposed_communication_ms"] == exposed_ns(spans["communication"], spans["compute"]) / 1e6
        assert one["verdict"]["sound"]
        assert {call["op"] for call in one["collectives"]} <= {*RECORDED, "barrier"}
    of_stages = [row for row in found["waits"] if row["group"] != "pp"]
    if pp == 1:
        assert all(row["waited_ns"] == 0 for row in of_stages)  # replicas arrive together by construction
