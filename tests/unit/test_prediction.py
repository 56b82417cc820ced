"""A sweep predicted, and the timeline of a run: files complete or not at all, names checked."""

import json

import pytest

from scaling_study.errors import UserError
from scaling_study.prediction import predict_sweep, write_timeline
from scaling_study.records import read_records
from scaling_study.spec import expand, run_id
from tests.unit.samples import CONFIG

RUN = "llama2-7b_h100_n32_dp256-tp1-pp1_mb1-gb256-s1024_bf16_ec2568c94e"


def test_every_run_of_a_sweep_is_predicted(tmp_path):
    predict_sweep(CONFIG, "paper", "context_length", tmp_path / "it.parquet")
    found = read_records(tmp_path / "it.parquet")
    runs = expand(CONFIG.study("paper"), "context_length", CONFIG.catalogue)
    assert sorted(found["run_id"]) == sorted(run_id(run) for run in runs)
    assert set(found["platform"]) == {"predict"}
    assert found["started_at"].null_count() == found.height


def test_a_study_of_cpus_cannot_be_predicted(tmp_path):
    with pytest.raises(UserError, match="knows no part"):
        predict_sweep(CONFIG, "mini", "data_parallel", tmp_path / "it.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_timeline_opens_as_a_trace(tmp_path):
    write_timeline(CONFIG, "paper", RUN, tmp_path / "it.json")
    trace = json.loads((tmp_path / "it.json").read_text())
    assert trace["otherData"]["title"] == f"{RUN} (predicted)"
    assert len(trace["traceEvents"]) > 100


def test_a_run_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match="Did you mean llama2-7b_h100_n32"):
        write_timeline(CONFIG, "paper", f"{RUN}x", tmp_path / "it.json")
