"""Damaged and odd traces as people met them, one of each kind, with what the reader must say of it.

Each case names the thread that tells of it. Times are those of `STEP`: compute 40 us, communication 25, exposed 10.
"""

import json

import msgspec
import pytest

from scaling_study.timeline import exposure, read_trace
from scaling_study.traces import in_words
from tests.unit.timeline.kineto_samples import GEMM, OLD_RING, RING, STEP, collective, document, kernel, operator

TIMES_US = (40, 25, 10)
TEXT = json.dumps(document(STEP))


def content(events, **about):
    return json.dumps(document(events, **about)).encode()


def without(event, *names):
    return {**event, "args": {key: value for key, value in event["args"].items() if key not in names}}


#: name: (content, times in us or None, what the verdict says that a sound file's does not, a part of its sentence)
CASES = {
    "pytorch#113001 quotes in a name are not escaped": (
        TEXT.replace("aten::mm", 'a "b" c', 1).encode(), TIMES_US,
        {"events_read": 6, "events_in_file": 7}, "1 of 7 events",
    ),
    "pytorch#113001 a new line in a name": (
        TEXT.replace("aten::mm", "a\nb", 1).encode(), TIMES_US, {"mended": {"control character": 1}}, "mended (control",
    ),
    "pytorch#33961 the array of events does not end": (
        TEXT[: TEXT.index('], "INFO"')].encode(), TIMES_US, {"truncated": True}, "the file is truncated",
    ),
    "pytorch#98432 back slashes of a path": (
        TEXT.replace("aten::mm", "C:\\users\\me", 1).encode(), TIMES_US, {"mended": {"escape": 1}}, "mended (escape)",
    ),
    "a duration that is no number": (
        TEXT.replace('"args": {"device": 0,', '"args": {"device": nan,', 1).encode(), TIMES_US,
        {"mended": {"number": 1}}, "mended (number)",
    ),
    "kineto#80 bytes that are no UTF-8": (
        TEXT.encode().replace(b"aten::mm", b"aten\xe4\xfcmm", 1), TIMES_US, {"mended": {"utf-8": 1}}, "mended (utf-8)",
    ),
    "names encoded as UTF-8 twice": (
        content([*STEP, kernel(65, 1, "Zählung".encode().decode("latin-1"))]), (41, 25, 10),
        {"double_encoded": 1}, "encoded twice",
    ),
    "kineto#109 kernels at 0 of length 0": (
        content([*STEP, kernel(0, 0), kernel(0, 0, stream=9)], baseTimeNanoseconds=0), TIMES_US,
        {"without_time": 2}, "2 device events have no sensible time",
    ),
    "a negative duration": (
        content([*STEP, kernel(65, -4)]), TIMES_US, {"without_time": 1}, "1 device events have no sensible time",
    ),
    "kineto#136 kernels that overlap within a stream": (
        content([*STEP, kernel(25, 10)]), (45, 25, 5), {"stream_overlaps": 1, "stream_overlap_ns": 5_000},
        "1 overlap an earlier one of their stream, by 0.005 ms",
    ),
    "perfetto#4280 complete events on one track that overlap without nesting: all are kept": (
        content([kernel(at, 3) for at in range(0, 200, 2)]), (201, 0, 0),
        {"device_events": 100, "stream_overlaps": 99, "stream_overlap_ns": 99_000}, "99 overlap",
    ),
    "TraceLens#669 a duration runs far past the next kernel": (
        content([kernel(0, 1_600_000), kernel(5, 10), collective(20, 5)]), (1_600_000, 5, 0),
        {"stream_overlaps": 1, "stream_overlap_ns": 10_000}, "by 0.010 ms",
    ),
    "pytorch#124388 a correlation id twice": (
        content([*STEP, kernel(63, 1, correlation=5), kernel(65, 1, correlation=5)]), (42, 25, 10),
        {"duplicate_correlations": 2}, "2 share a correlation id",
    ),
    "parcagpu#23 times jump back after a while": (
        content([kernel(1000, 1, correlation=1), kernel(0, 1, correlation=2)]), (2, 0, 0),
        {"clock_steps": 1}, "1 begin before what was launched before them",
    ),
    "HTA#208, #360 kernels of a newer NCCL, nothing recorded": (
        content([kernel(0, 9, RING, stream=40), kernel(4, 2)]), (2, 9, 7), {"by_name_share": 1.0},
        "known by kernel names only",
    ),
    "nccl#739 the name tells another operation than was recorded": (
        content([without(collective(0, 9, "_allgather_base"), "Out msg nelems") | {"name": OLD_RING}]), (0, 9, 9),
        {}, "all 1 events read",
    ),
    "NCCL's kernel of any operation, nothing recorded": (
        content([kernel(0, 9, "ncclDevKernel_Generic(args)")]), (0, 9, 9), {"unknown_share": 1.0}, "of unknown collect",
    ),
    "HTA#17 compact JSON": (
        json.dumps(document(STEP, rank=6), separators=(",", ":")).encode(), TIMES_US, {}, "all 7 events read",
    ),
    "HTA#17 a file that does not say its rank": (
        json.dumps({"traceEvents": STEP}).encode(), TIMES_US, {"no_distributed_info": True}, "of which rank",
    ),
    "HTA#107 nothing ran on a device": (
        content([operator(0, 5)]), None, {"device_events": 0}, "nothing ran on a device",
    ),
    "HTA#238 no profiler steps": (content(STEP[1:]), TIMES_US, {}, "all 6 events read"),
    "HTA#254 launches and kernels without correlation": (content([kernel(0, 3)]), (3, 0, 0), {}, "all 1 events read"),
    "HTA#16 no communication at all": (content([kernel(0, 3), kernel(5, 2)]), (5, 0, 0), {}, "all 2 events read"),
    "arguments of another type": (
        content([*STEP, kernel(65, 1, correlation={"a": 1})]), (41, 25, 10), {"unread_arguments": 1},
        "the arguments of 1 device events cannot be read",
    ),
    "a name as markup": (content([*STEP, kernel(65, 1, "[red]<script>")]), (41, 25, 10), {}, "all 8 events read"),
}  # fmt: skip
LOSSES = ("events_in_file", "truncated", "mended", "without_time", "clock_steps", "unread_arguments")


@pytest.mark.parametrize(("damaged", "times_us", "said", "sentence"), CASES.values(), ids=CASES)
def test_each_kind_of_odd_trace_gets_its_verdict(tmp_path, damaged, times_us, said, sentence):
    path = tmp_path / "t.json"
    path.write_bytes(damaged)
    trace = read_trace(path)
    verdict = msgspec.to_builtins(trace.verdict)
    unlike_sound = {
        name: value for name, value in verdict.items()
        if name not in ("sound", "events_read", "events_in_file", "lost_bytes", "device_events") and value
    }  # fmt: skip
    assert unlike_sound == {name: value for name, value in said.items() if name in unlike_sound}
    assert {name: verdict[name] for name in said} == said
    assert verdict["sound"] == (not any(name in said for name in LOSSES))
    found = [
        (one.compute_ns, one.communication_ns, one.exposed_communication_ns) for one in exposure(trace.device).values()
    ]
    assert found == ([tuple(1000 * us for us in times_us)] if times_us else [])
    assert sentence in in_words(verdict)


def test_what_was_recorded_wins_over_the_name(tmp_path):
    path = tmp_path / "t.json"
    path.write_bytes(content([collective(0, 9, "reduce_scatter"), kernel(20, 1, RING), kernel(30, 1, GEMM)]))
    assert read_trace(path).device["op"].to_list() == ["reduce_scatter", "all_reduce", GEMM]
