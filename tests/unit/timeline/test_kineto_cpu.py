"""Kineto traces of CPU ranks: hand-made ones with known answers, and one that two ranks really make."""

import gzip
import itertools
import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scaling_study.errors import UserError
from scaling_study.timeline import MARK_AXIS, MARK_ITERATION, SCHEMA, exposure, read_cpu_trace
from tests.ranks import run_on_ranks
from tests.unit.samples import bounded

MAIN, WORKER_A, WORKER_B = 100, 201, 202


def event(name, start_us, end_us, thread=MAIN, category="cpu_op", **fields):
    return {"ph": "X", "cat": category, "name": name, "tid": thread, "ts": start_us, "dur": end_us - start_us, **fields}


def iteration(start_us, end_us):
    return event(MARK_ITERATION, start_us, end_us, category="user_annotation")


def mark(axis, start_us, end_us):
    return event(f"{MARK_AXIS}{axis}", start_us, end_us, category="user_annotation")


def gloo(op, start_us, end_us, thread=WORKER_A):
    return event(f"gloo:{op}", start_us, end_us, thread, "user_annotation")


def write(path, *events, base_ns=None, dump=json.dumps):
    content = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": list(events)}
    if base_ns is not None:
        content["baseTimeNanoseconds"] = base_ns
    path.write_text(dump(content))
    return path


@pytest.fixture
def read(tmp_path):
    names = (f"trace-{number}.json" for number in itertools.count())

    def read(*events, rank=0, **fields):
        return read_cpu_trace(write(tmp_path / next(names), *events, **fields), rank)

    return read


def rows(trace, kind):
    columns = ("stream", "op", "axis", "start_ns", "end_ns")
    return [tuple(row[c] for c in columns) for row in trace.spans.filter(kind=kind).iter_rows(named=True)]


# -- compute --------------------------------------------------------------------------------------------------------


def test_nested_operators_are_counted_once_under_the_outer_name(read):
    trace = read(
        iteration(0, 100),
        event("aten::linear", 10, 30),
        event("aten::matmul", 12, 28),
        event("aten::mm", 15, 25),
        event("aten::add", 30, 35),
        event("aten::add_", 31, 32),
    )
    assert rows(trace, "compute") == [
        (str(MAIN), "aten::linear", None, 10_000, 30_000),
        (str(MAIN), "aten::add", None, 30_000, 35_000),
    ]
    assert trace.iteration_ns == [100_000]


def test_operators_that_begin_or_end_together_nest(read):
    trace = read(
        iteration(0, 100),
        event("aten::inner", 10, 20),
        event("aten::outer", 10, 30),
        event("aten::last", 25, 30),
    )
    assert rows(trace, "compute") == [(str(MAIN), "aten::outer", None, 10_000, 30_000)]


def test_only_aten_operators_compute(read):
    trace = read(
        iteration(0, 100),
        event("aten::mm", 10, 20),
        event("autograd::engine::evaluate_function: MmBackward0", 0, 90),
        event("Optimizer.step#AdamW.step", 0, 90, category="user_annotation"),
        event("aten::annotated", 50, 60, category="user_annotation"),
        event("c10d::allreduce_", 70, 80),
    )
    assert rows(trace, "compute") == [(str(MAIN), "aten::mm", None, 10_000, 20_000)]


def test_waits_inside_an_operator_are_no_compute(read):
    trace = read(
        iteration(0, 100),
        event("aten::mm", 10, 50),
        event("_c10d_functional::all_gather_into_tensor", 20, 25),
        event("c10d::_allgather_base_", 21, 24),
        event("_c10d_functional::wait_tensor", 30, 45),
    )
    assert [row[3:] for row in rows(trace, "compute")] == [(10_000, 20_000), (25_000, 30_000), (45_000, 50_000)]
    assert {row[1] for row in rows(trace, "compute")} == {"aten::mm"}
    assert exposure(trace.spans)[0].compute_ns == 20_000


def test_a_call_on_another_thread_takes_nothing_away(read):
    trace = read(iteration(0, 100), event("aten::mm", 10, 50), event("c10d::allreduce_", 20, 40, thread=MAIN + 1))
    assert exposure(trace.spans)[0].compute_ns == 40_000


def test_threads_compute_side_by_side(read):
    trace = read(iteration(0, 100), event("aten::mm", 10, 50), event("aten::mul", 40, 70, thread=MAIN + 1))
    assert rows(trace, "compute") == [
        (str(MAIN), "aten::mm", None, 10_000, 50_000),
        (str(MAIN + 1), "aten::mul", None, 40_000, 70_000),
    ]
    assert exposure(trace.spans)[0].compute_ns == 60_000


# -- communication --------------------------------------------------------------------------------------------------


def test_threads_are_told_by_the_marks_of_their_axes(read):
    trace = read(
        mark("dp", 0, 10),
        gloo("all_reduce", 1, 2, WORKER_A),
        gloo("all_reduce", 3, 4, WORKER_B),
        mark("tp", 10, 20),
        gloo("all_reduce", 11, 12, 301),
        iteration(100, 200),
        gloo("reduce_scatter", 110, 120, WORKER_B),
        gloo("all_gather", 115, 130, 301),
        gloo("all_reduce", 140, 150, 999),
    )
    assert rows(trace, "communication") == [
        (str(WORKER_B), "reduce_scatter", "dp", 110_000, 120_000),
        ("301", "all_gather", "tp", 115_000, 130_000),
        ("999", "all_reduce", None, 140_000, 150_000),
    ]
    assert trace.spans["group"].to_list() == ["mesh_dp", "mesh_tp", None]
    assert exposure(trace.spans)[0].communication_by_axis_ns == {"dp": 10_000, "tp": 15_000, "unknown": 10_000}


def test_point_to_point_is_the_pipelines_whoever_does_it(read):
    trace = read(
        mark("dp", 0, 10),
        gloo("all_reduce", 1, 2),
        iteration(100, 200),
        gloo("send", 110, 120),
        gloo("recv", 130, 145, MAIN),
    )
    assert [row[1:3] for row in rows(trace, "communication")] == [("send", "pp"), ("recv", "pp")]
    assert exposure(trace.spans)[0].communication_by_axis_ns == {"pp": 25_000}


def test_a_thread_belongs_to_the_axis_that_it_mostly_served(read):
    trace = read(
        mark("dp", 0, 10),
        *(gloo("all_reduce", now, now + 1) for now in (1, 3, 5)),
        mark("pp", 10, 20),
        gloo("all_reduce", 11, 12),
        iteration(100, 200),
        gloo("all_reduce", 110, 120),
    )
    assert [row[2] for row in rows(trace, "communication")] == ["dp"]


def test_exposed_is_what_compute_of_the_same_rank_does_not_cover(read):
    trace = read(iteration(0, 100), event("aten::mm", 10, 40), gloo("all_reduce", 30, 60), rank=3)
    seen = exposure(trace.spans)
    assert set(seen) == {3}
    assert (seen[3].communication_ns, seen[3].exposed_communication_ns) == (30_000, 20_000)


# -- the window -----------------------------------------------------------------------------------------------------


def test_spans_are_cut_to_the_marked_iterations(read):
    trace = read(
        event("aten::before", 0, 40),
        event("aten::into", 45, 60),
        iteration(50, 100),
        iteration(110, 150),
        event("aten::between", 100, 110),
        event("aten::out", 140, 170),
        gloo("all_reduce", 40, 200),
        event("aten::after", 150, 160, thread=5),
    )
    assert trace.iteration_ns == [50_000, 40_000]
    assert [(row[1], *row[3:]) for row in rows(trace, "compute")] == [
        ("aten::into", 50_000, 60_000),
        ("aten::between", 100_000, 110_000),
        ("aten::out", 140_000, 150_000),
    ]
    assert [row[3:] for row in rows(trace, "communication")] == [(50_000, 150_000)]


def test_iterations_are_in_the_order_of_time_not_of_the_file(read):
    assert read(iteration(100, 130), iteration(0, 10)).iteration_ns == [10_000, 30_000]


def test_an_iteration_without_spans_is_an_empty_timeline(read):
    trace = read(iteration(0, 10))
    assert trace.spans.is_empty()
    assert dict(trace.spans.schema) == SCHEMA
    assert trace.attention_operators == []


def test_the_table_has_the_schema_and_is_sorted(read):
    trace = read(iteration(0, 100), event("aten::b", 50, 60), gloo("send", 10, 20), event("aten::a", 30, 40), rank=2)
    assert dict(trace.spans.schema) == SCHEMA
    assert trace.spans["start_ns"].is_sorted()
    assert trace.spans["rank"].unique().to_list() == [2]
    assert trace.spans["bytes"].null_count() == trace.spans.height


# -- exact time -----------------------------------------------------------------------------------------------------

BASE_NS = 1_761_955_200_000_000_000  # as Kineto writes it: the begin of a span of three months


def test_times_are_added_to_the_base_as_integers(read):
    trace = read(iteration(0, 1), event("aten::mm", 0.123, 0.789), base_ns=BASE_NS)
    assert rows(trace, "compute") == [(str(MAIN), "aten::mm", None, BASE_NS + 123, BASE_NS + 789)]


def _literal(start_ns, end_ns):
    """An event whose times are written with three decimals, as Kineto does."""

    def decimal(value_ns):
        return f"{value_ns // 1000}.{value_ns % 1000:03d}"

    times = f'"ts":{decimal(start_ns)},"dur":{decimal(end_ns - start_ns)}'
    return f'{{"ph":"X","cat":"cpu_op","name":"aten::mm","tid":1,{times}}}'


@bounded
@given(st.integers(80 * 24 * 3600 * 10**9, 90 * 24 * 3600 * 10**9), st.integers(1, 10**10))
@example(7_776_000_000_000_001, 1)
@example(123, 456)
def test_every_nanosecond_of_three_months_is_exact(tmp_path_factory, start_ns, length_ns):
    path = tmp_path_factory.getbasetemp() / "exact.json"
    operator = _literal(start_ns, start_ns + length_ns)
    window = operator.replace("aten::mm", MARK_ITERATION).replace("cpu_op", "user_annotation")
    path.write_text(f'{{"baseTimeNanoseconds":{BASE_NS},"traceEvents":[{window},{operator}]}}')
    trace = read_cpu_trace(path, 0)
    assert [row[3:] for row in rows(trace, "compute")] == [(BASE_NS + start_ns, BASE_NS + start_ns + length_ns)]
    assert trace.iteration_ns == [length_ns]


# -- attention ------------------------------------------------------------------------------------------------------


def test_attention_is_named_by_the_kernel_that_ran(read):
    kernel = "aten::_scaled_dot_product_flash_attention_for_cpu"
    trace = read(
        iteration(0, 100),
        event("aten::scaled_dot_product_attention", 10, 30),
        event(kernel, 12, 28),
        event(kernel, 42, 58),
        event(f"{kernel}_backward", 60, 80),
    )
    assert trace.attention_operators == [kernel]


# -- files ----------------------------------------------------------------------------------------------------------

EVENTS = [iteration(0, 100), event("aten::mm", 10, 20), {"ph": "M", "name": "process_name", "args": {"name": "python"}}]


def test_a_compressed_trace_says_the_same(tmp_path):
    plain = write(tmp_path / "trace.json", *EVENTS)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    one, other = read_cpu_trace(plain, 0), read_cpu_trace(packed, 0)
    assert one.spans.equals(other.spans)
    assert one.iteration_ns == other.iteration_ns == [100_000]


def _damaged(content, name):
    packed = gzip.compress(content)
    flipped = bytearray(packed)
    flipped[12] ^= 0xFF  # in the deflate stream; a wrong byte further on is found by the checksum
    wrong = bytearray(packed)
    wrong[-8] ^= 0xFF
    return {
        "empty.json": b"",
        "cut.json": content[: len(content) // 2],
        "binary.json": b"\x00\x01\x02\xff",
        "other.json": b'{"spans": []}',
        "list.json": b"[]",
        "text.json": content.replace(b'"ts": 10', b'"ts": "ten"'),
        "plain.json.gz": content,
        "cut.json.gz": packed[: len(packed) // 2],
        "flipped.json.gz": bytes(flipped),
        "wrong.json.gz": bytes(wrong),
        "empty.json.gz": b"",
    }[name]


@pytest.mark.parametrize(
    "name",
    ["empty.json", "cut.json", "binary.json", "other.json", "list.json", "text.json",
     "plain.json.gz", "cut.json.gz", "flipped.json.gz", "wrong.json.gz", "empty.json.gz"],
)  # fmt: skip
def test_a_damaged_trace_is_refused_by_name(name, tmp_path):
    content = write(tmp_path / "good.json", *EVENTS).read_bytes()
    path = tmp_path / name
    path.write_bytes(_damaged(content, name))
    with pytest.raises(UserError, match=r"not a Kineto trace: .*\. Measure the run again\.") as caught:
        read_cpu_trace(path, 0)
    assert caught.value.where == str(path)


def test_a_trace_without_iterations_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"trace\.json: the trace marks no iteration\. Measure the run again\."):
        read_cpu_trace(write(tmp_path / "trace.json", event("aten::mm", 0, 1)), 0)


def test_a_missing_trace_is_said(tmp_path):
    with pytest.raises(UserError, match=r"none\.json: no such file or folder"):
        read_cpu_trace(tmp_path / "none.json", 0)


# -- a real one -----------------------------------------------------------------------------------------------------


def _profiled():
    import tempfile
    from pathlib import Path

    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from scaling_study.measure.device import CpuDevice
    from scaling_study.measure.profile import profile_iterations

    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    left = torch.ones(128, 128)

    def iterate(iterations, around):
        for _ in iterations:
            with around():
                product = left @ left
                work = dist.all_reduce(product, group=mesh.get_group("dp"), async_op=True)
                torch.relu(left)
                work.wait()
        return []

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        before_ns = time.time_ns()
        trace = profile_iterations(iterate, range(3), CpuDevice(), mesh, path, dist.get_rank())
        return dist.get_rank(), trace.spans.to_dicts(), trace.iteration_ns, before_ns, time.time_ns(), path.exists()


def test_a_trace_that_two_ranks_make():
    for number, (rank, spans, iteration_ns, before_ns, after_ns, left_behind) in enumerate(run_on_ranks(_profiled, 2)):
        assert rank == number
        assert not left_behind
        assert len(iteration_ns) == 3
        assert {span["rank"] for span in spans} == {rank}
        communication = [span for span in spans if span["kind"] == "communication"]
        assert [(span["op"], span["axis"], span["group"]) for span in communication] == [
            ("all_reduce", "dp", "mesh_dp")
        ] * 3
        operators = [span["op"] for span in spans if span["kind"] == "compute"]
        assert operators.count("aten::matmul") == 3
        assert operators.count("aten::relu") == 3
        assert before_ns < min(span["start_ns"] for span in spans)
        assert max(span["end_ns"] for span in spans) < after_ns
        assert sum(iteration_ns) < after_ns - before_ns
