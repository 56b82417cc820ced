"""Timelines come back from a file as they were, and as a trace they lose nothing."""

import gzip
import json

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from scaling_study.errors import UserError
from scaling_study.timeline import SCHEMA, chrome_trace, read_timeline_file, write_timeline_file

START = 1_700_000_000_123_456_789
SPANS = pl.DataFrame(
    [
        (1, "comm", "communication", "all_gather", "mesh_dp", "dp", 64, START + 5, START + 1_000_000_001),
        (0, "compute", "compute", "block 0", None, None, None, START, START + 3),
    ],
    schema=SCHEMA,
    orient="row",
)


def test_the_span_table_comes_back(tmp_path):
    write_timeline_file(tmp_path / "it.parquet", SPANS)
    assert_frame_equal(read_timeline_file(tmp_path / "it.parquet"), SPANS)


def test_a_trace_keeps_every_nanosecond():
    trace = json.loads(chrome_trace(SPANS, "a title"))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    base = trace["baseTimeNanoseconds"]
    found = [(base + round(one["ts"] * 1000), base + round((one["ts"] + one["dur"]) * 1000)) for one in spans]
    assert found == [(START, START + 3), (START + 5, START + 1_000_000_001)]
    assert trace["otherData"] == {"title": "a title"}
    assert spans[1]["args"] == {"group": "mesh_dp", "axis": "dp", "bytes": 64}
    assert (spans[1]["pid"], spans[1]["name"], spans[1]["cat"]) == (1, "all_gather", "communication")


def test_a_trace_names_ranks_and_streams():
    events = json.loads(chrome_trace(SPANS))["traceEvents"]
    names = {(one["pid"], one.get("tid")): one["args"]["name"] for one in events if one["ph"] == "M"}
    threads = {(one["pid"], one["tid"]) for one in events if one["ph"] == "X"}
    assert {names[thread] for thread in threads} == {"compute", "comm"}
    assert (names[0, None], names[1, None]) == ("rank 0", "rank 1")


def test_an_empty_timeline_is_an_empty_trace():
    assert json.loads(chrome_trace(SPANS.clear()))["traceEvents"] == []


@pytest.mark.parametrize("name", ["it.json", "it.json.gz"])
def test_a_trace_may_be_compressed(tmp_path, name):
    write_timeline_file(tmp_path / name, SPANS)
    content = (tmp_path / name).read_bytes()
    assert (gzip.decompress(content) if name.endswith("gz") else content) == chrome_trace(SPANS)


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"written as \.parquet, \.json or \.json\.gz"):
        write_timeline_file(tmp_path / "it.csv", SPANS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such file or folder"), (b"PAR1", "not a parquet file, or damaged"), ("table", "not a span table")],
)
def test_what_is_no_span_table_is_refused(tmp_path, content, said):
    path = tmp_path / "it.parquet"
    if content == "table":
        pl.DataFrame({"a": [1]}).write_parquet(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=said):
        read_timeline_file(path)
