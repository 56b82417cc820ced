"""The verb `trace`: the same numbers for people and machines, a window, a verdict in words, names that obey nobody."""

import json

import polars as pl
import pytest
from click.testing import CliRunner

from scaling_study.cli import cli
from scaling_study.errors import UserError
from scaling_study.timeline import SCHEMA, read_timeline_file
from scaling_study.traces import Window, look_at
from tests.unit.timeline.kineto_samples import GEMM, STEP, collective, kernel, step, written


@pytest.fixture
def path(tmp_path):
    return written(tmp_path / "rank0.json", STEP)


def run(*arguments):
    done = CliRunner().invoke(cli, ["trace", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_for_machines_every_time_is_in_milliseconds(path):
    (one,) = json.loads(run(path, "--json"))["files"]
    assert one["file"] == str(path)
    times = ("window", "compute", "communication", "exposed_communication", "memory", "idle")
    assert [one[f"{name}_ms"] for name in times] == pytest.approx([0.062, 0.04, 0.025, 0.01, 0.002, 0.01])
    assert (one["kernels"], one["communication_kernels"], one["steps"]) == (3, 1, ["3"])
    assert one["groups"] == [{"group": "0", "axis": None, "communication_ms": 0.025, "exposed_communication_ms": 0.01}]
    assert one["verdict"]["sound"]


def test_bandwidth_is_that_of_the_bus(path):
    (call,) = json.loads(run(path, "--json"))["files"][0]["collectives"]
    assert (call["op"], call["bytes"], call["ranks"], call["calls"]) == ("all_reduce", 2048, 2, 1)
    assert call["bus_gb_per_s"] == pytest.approx(2048 / 25_000)  # 2 (n - 1) / n is 1 for two ranks


def test_for_people_it_is_tables_and_a_sentence(path):
    said = run(path)
    lines = [line.split() for line in said.splitlines()]
    assert said.startswith(f"{path}: rank 0, NVIDIA H100 80GB HBM3\n")
    assert ["communication", "0.025", "0.010"] in lines
    assert ["all_reduce", "2,048", "2", "1", "0.025", "0.025", "0.1"] in lines
    assert said.endswith("verdict: all 7 events read\n")


def test_a_window_cuts_what_reaches_beyond_it(tmp_path):
    path = written(tmp_path / "t.json", [step(1, 0, 30), step(2, 30, 30), kernel(0, 40), collective(20, 30)])

    def times(**chosen):
        (one,) = look_at([path], Window(**chosen), None)["files"]
        return [
            round(one[f"{name}_ms"] * 1000) for name in ("window", "compute", "communication", "exposed_communication")
        ]

    assert times() == [50, 40, 30, 10]
    assert times(steps=("1",)) == [30, 30, 10, 0]
    assert times(steps=("2",)) == [30, 10, 20, 10]
    assert times(steps=("1", "2")) == [60, 40, 30, 10]
    assert times(from_ms=0.025) == [25, 15, 25, 10]
    assert times(from_ms=0.01, to_ms=0.045) == [35, 30, 25, 5]


def test_a_step_that_is_not_there_is_one_error_with_those_that_are(path):
    with pytest.raises(UserError, match=r"it has no profiler step 9\. Its steps: 3\."):
        look_at([path], Window(steps=("3", "9")), None)


def test_ranks_of_one_run_wait_for_each_other(tmp_path):
    paths = [
        written(tmp_path / f"{rank}.json", [collective(late, 50 - late)], rank=rank) for rank, late in ((1, 0), (0, 40))
    ]
    found = look_at(paths, Window(), None)
    assert [one["rank"] for one in found["files"]] == [1, 0]
    assert {row["rank"]: (row["waited_ns"], row["last_share"]) for row in found["waits"]} == {
        0: (0, 1.0),
        1: (40_000, 0),
    }
    assert "was waited for" in run(*paths)


def test_files_that_claim_the_same_rank_are_told_apart(tmp_path):
    paths = [written(tmp_path / f"{n}.json", STEP, rank=1) for n in range(3)]
    assert len({one["rank"] for one in look_at(paths, Window(), None)["files"]}) == 3


@pytest.mark.parametrize("suffix", [".parquet", ".json", ".json.gz"])
def test_the_timeline_is_written_as_any_other(path, tmp_path, suffix):
    output = tmp_path / f"timeline{suffix}"
    look_at([path], Window(), output)
    if suffix == ".parquet":
        frame = read_timeline_file(output)
        assert dict(frame.schema) == SCHEMA
        assert frame.filter(pl.col("kind") == "communication")["bytes"].to_list() == [2048]
    else:
        assert output.stat().st_size > 0


def test_a_name_obeys_nobody(tmp_path):
    odd = "[/red]\x1b[2J[bold]" + "x" * 500
    path = written(tmp_path / "t.json", [collective(0, 5, odd, group="[/]"), kernel(9, 1, GEMM)])
    said = run(path)
    assert "\x1b" not in said
    assert "[/red]\N{REPLACEMENT CHARACTER}[2j[bold]" in said
    assert "group [/]" in said
    assert "x" * 130 not in said


def test_a_verdict_says_what_is_wrong(tmp_path):
    path = written(tmp_path / "t.json", [kernel(0, 10), kernel(5, 10), kernel(20, 0), kernel(30, -1)])
    text = path.read_text().replace('"rank": 0', '"rang": 0')
    path.write_text(text[: text.index('"dur": -1')])
    said = run(path).splitlines()[-1]
    for part in (
        "verdict: 3 events read; the file is truncated; 1 of 4 events (", "1 have no duration",
        "1 overlap an earlier one of their stream",
    ):  # fmt: skip
        assert part in said


def test_what_is_no_trace_is_one_message(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("{}")
    with pytest.raises(UserError, match="not a Kineto trace"):
        look_at([path], Window(), None)
