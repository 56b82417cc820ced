"""What ran on a device, from a trace: kinds, collectives, integer nanoseconds, and a verdict on the file."""

import json
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.timeline import DEVICE_SCHEMA, exposure, read_trace, window
from scaling_study.timeline.kernels import axis_of_group, named_operation, recorded_operation
from scaling_study.timeline.kineto import nanoseconds
from tests.unit.samples import bounded
from tests.unit.timeline.kineto_samples import BASE_NS, OLD_RING, STEP, collective, copy, kernel, step, written


def test_a_step_of_known_times(tmp_path):
    trace = read_trace(written(tmp_path / "t.json", STEP, rank=5, world_size=8))
    assert dict(trace.device.schema) == DEVICE_SCHEMA
    found = exposure(trace.device)[5]
    assert (found.compute_ns, found.communication_ns, found.exposed_communication_ns) == (40_000, 25_000, 10_000)
    assert (trace.rank, trace.world_size, trace.devices) == (5, 8, ["NVIDIA H100 80GB HBM3"])
    assert trace.steps.rows() == [("3", BASE_NS, BASE_NS + 70_000)]
    assert trace.device["start_ns"].to_list() == [BASE_NS + us * 1000 for us in (0, 20, 40, 60)]
    assert trace.device["kind"].to_list() == ["compute", "communication", "compute", "memory"]
    assert trace.verdict.sound
    assert trace.verdict.events_read == trace.verdict.events_in_file == len(STEP)


def test_a_collective_has_what_was_recorded(tmp_path):
    path = written(
        tmp_path / "t.json", [collective(0, 9, "_allgather_base", 3000, "Float", "7", 16, description="mesh_dp")]
    )
    (row,) = read_trace(path).device.to_dicts()
    assert (row["op"], row["group"], row["axis"]) == ("all_gather", "7", "dp")
    assert (row["bytes"], row["group_ranks"], row["known_by"], row["stream"]) == (12_000, 16, "arguments", "stream 40")


def test_without_recorded_arguments_the_kernel_s_name_tells(tmp_path):
    path = written(tmp_path / "t.json", [kernel(0, 3, OLD_RING), kernel(5, 1, "ncclDevKernel_Generic_1(args)")])
    trace = read_trace(path)
    assert trace.device["op"].to_list() == ["all_gather", "unknown"]
    assert trace.device["kind"].to_list() == ["communication"] * 2
    assert trace.device["known_by"].to_list() == ["name", None]
    assert (trace.verdict.by_name_share, trace.verdict.unknown_share) == (0.75, 0.25)


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", "reduce"),
        ("ncclDevKernel_Generic(ncclDevComm*)", "unknown"),  # RCCL's
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)", None),
        ("void at::native::(anonymous namespace)::ncclless(x)", None),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(x)", None),
    ],
)
def test_the_operation_that_a_kernel_names(name, operation):
    assert named_operation(name) == operation


@pytest.mark.parametrize(
    ("recorded", "operation"),
    [
        ("allreduce", "all_reduce"), ("_allgather_base", "all_gather"), ("_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"), ("send", "send_recv"), ("all_to_all", "all_to_all"),
    ],
)  # fmt: skip
def test_the_operation_that_torch_recorded(recorded, operation):
    assert recorded_operation(recorded) == operation


@pytest.mark.parametrize(
    ("description", "axis"),
    [
        ("mesh_dp", "dp"),
        ("mesh_tp", "tp"),
        ("mesh_pp", "pp"),
        ("mesh_dp_shard", "dp"),
        ("default_pg", None),
        ("", None),
    ],
)
def test_the_axis_that_a_group_names(description, axis):
    assert axis_of_group(description) == axis


@bounded
@given(st.integers(0, 10**15), st.integers(0, 999))
def test_times_are_whole_nanoseconds_however_large(us, ns):
    assert nanoseconds(f"{us}.{ns:03d}".encode()) == us * 1000 + ns
    assert nanoseconds(f'"{us}.{ns:03d}"'.encode()) == us * 1000 + ns
    assert nanoseconds(str(us).encode()) == us * 1000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1e3", 1_000_000), ("12.5", 12_500), ("1.23456", 1235), ("-2.5", -2500), ("", None), ("null", None),
        ("NaN", None), ("1e300", None), ("[1]", None), ('"soon"', None), ("99999999999999999999", None),
    ],
)  # fmt: skip
def test_what_is_no_time_is_none(text, ns):
    assert nanoseconds(text.encode()) == ns
    if ns is not None:
        assert ns == round(Decimal(text) * 1000)


def test_a_time_that_makes_no_sense_is_left_out_and_counted(tmp_path):
    odd = [kernel(5, -1), kernel("x", 1), {**kernel(1, 1), "dur": None}]
    no_duration = kernel(2, 1)
    del no_duration["dur"]
    trace = read_trace(written(tmp_path / "t.json", [kernel(0, 1), *odd, no_duration]))
    assert trace.device.height == 1
    assert trace.verdict.without_time == 4
    assert not trace.verdict.sound


@pytest.mark.parametrize("wrong", [b'"Group size": [8]', b'"Group size": "\xff"'])
def test_arguments_that_cannot_be_read_are_counted(tmp_path, wrong):
    path = written(tmp_path / "t.json", [collective(0, 9, size=8), collective(20, 9, size=2)])
    path.write_bytes(path.read_bytes().replace(b'"Group size": 8', wrong))
    trace = read_trace(path)
    assert trace.device["known_by"].to_list() == ["name", "arguments"]
    assert (trace.verdict.unread_arguments, trace.verdict.sound) == (1, False)


def test_oddities_of_a_device_are_counted(tmp_path):
    events = [
        kernel(0, 10, correlation=1), kernel(8, 4, correlation=2),  # overlap on one stream
        kernel(20, 0, correlation=3), kernel(30, 1, correlation=3),  # no duration; one correlation id twice
        kernel(8, 4, stream=9, correlation=4),  # another stream
    ]  # fmt: skip
    verdict = read_trace(written(tmp_path / "t.json", events)).verdict
    assert (verdict.stream_overlaps, verdict.stream_overlap_ns) == (1, 2_000)
    assert (verdict.stream_overlaps, verdict.zero_durations, verdict.duplicate_correlations) == (1, 1, 2)
    assert (verdict.clock_steps, verdict.sound) == (0, True)


def test_a_clock_that_steps_back_is_no_sound_file(tmp_path):
    events = [kernel(100, 1, correlation=1), kernel(50, 1, correlation=2), kernel(60, 1, correlation=3)]
    verdict = read_trace(written(tmp_path / "t.json", events)).verdict
    assert (verdict.clock_steps, verdict.sound) == (1, False)


def test_names_that_were_encoded_twice_are_counted(tmp_path):
    twice = "Zählung".encode().decode("latin-1")
    assert (
        read_trace(written(tmp_path / "t.json", [kernel(0, 1, twice), kernel(2, 1, twice)])).verdict.double_encoded == 1
    )
    assert read_trace(written(tmp_path / "u.json", [kernel(0, 1, "Zählung")])).verdict.double_encoded == 0


def test_a_file_that_does_not_say_its_rank_is_of_the_one_asked_for(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [kernel(0, 1)]}))
    trace = read_trace(path, rank=3)
    assert trace.device["rank"].to_list() == [3]
    assert trace.verdict.no_distributed_info
    assert read_trace(path).rank is None


def test_nothing_on_a_device_is_an_empty_table(tmp_path):
    trace = read_trace(written(tmp_path / "t.json", [step(1, 0, 5)]))
    assert trace.device.height == 0
    assert dict(trace.device.schema) == DEVICE_SCHEMA
    assert exposure(trace.device) == {}


def test_older_torch_calls_copies_otherwise(tmp_path):
    old = [{**kernel(0, 4), "cat": "Kernel"}, {**copy(5, 1), "cat": "Memcpy"}, {**copy(7, 1), "cat": "Memset"}]
    assert read_trace(written(tmp_path / "t.json", old)).device["kind"].to_list() == ["compute", "memory", "memory"]


TRACES = Path(__file__).parents[4] / "shared/data/traces"


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not part of the repository")
@pytest.mark.parametrize(
    ("name", "events", "kernels", "nccl", "times_ns"),
    [
        ("v100_2ranks_rank1", 216_092, 19_370, 2_020, (620_516_000, 357_343_000, 357_343_000)),
        ("a100_2ranks_rank0_nccl_args", 40_573, 2_700, 21, (115_655_847, 46_876_493, 39_559_468)),
        ("sampled_128ranks_rank0", 4_855, 1_154, 10, (210_320_000, 396_199_000, 336_983_000)),
        ("no_gpu_events", 2_467, 0, 0, None),
        ("no_distributed_info", 2_467, 0, 0, None),
    ],
)
def test_real_traces_of_hta_s_tests(name, events, kernels, nccl, times_ns):
    trace = read_trace(TRACES / f"{name}.json.gz")
    assert trace.verdict.events_read == trace.verdict.events_in_file == events
    counts = dict(trace.device["kind"].value_counts().rows())
    assert counts.get("compute", 0) + counts.get("communication", 0) == kernels
    assert counts.get("communication", 0) == nccl
    found = list(exposure(trace.device.filter(pl.col("kind") != "memory")).values())
    times = [(one.compute_ns, one.communication_ns, one.exposed_communication_ns) for one in found]
    assert times == ([times_ns] if times_ns else [])


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not part of the repository")
@pytest.mark.parametrize(
    ("name", "compute_us", "other_us", "overlap_percent"),
    [("v100_2ranks_rank1", 496_485, 256_572, 0.0), ("sampled_128ranks_rank0", 106_252, 172_428, 11.81)],
)
def test_hta_says_the_same_of_all_steps_but_the_last_where_times_are_whole_microseconds(
    name, compute_us, other_us, overlap_percent
):
    """Numbers of HolisticTraceAnalysis 0.5.0, which leaves out the last step; it rounds finer times inward."""
    trace = read_trace(TRACES / f"{name}.json.gz")
    device = window(trace.device, trace.steps["start_ns"][0], trace.steps["start_ns"][-1])
    (found,) = exposure(device).values()
    other = device.with_columns(kind=pl.col("kind").replace("memory", "communication"))
    (with_copies,) = exposure(other).values()
    assert found.compute_ns == compute_us * 1000
    assert with_copies.exposed_communication_ns == other_us * 1000
    overlapped = 1 - found.exposed_communication_ns / found.communication_ns
    assert round(100 * overlapped, 2) == overlap_percent
