"""The verb `diagnose`: of runs with records, of traces as far as they go."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from scaling_study.cli import cli
from scaling_study.diagnoses import diagnose_all
from scaling_study.errors import UserError
from scaling_study.spec import Limit
from tests.unit.samples import CONFIG, ROOT
from tests.unit.timeline.kineto_samples import STEP, collective, kernel, written

RUN = "llama2-7b_h100_n256_dp2048-tp1-pp1_mb2-gb4096-s4096_bf16_fcc4f377cd"
MEASURED = "mini-9m_cpu_n1_dp1-tp1-pp1_mb2-gb2-s64_fp32_ab85ed79ed"


def verb(*arguments):
    command = ["--config", str(CONFIG.root), "diagnose", *map(str, arguments), "--results", str(ROOT / "results")]
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_runs_are_found_in_the_records_once_each():
    found = json.loads(verb(RUN, MEASURED, "--json"))["runs"]
    assert {one["what"] for one in found} == {RUN, MEASURED}
    assert {(one["what"], one["provenance"]) for one in found} >= {(RUN, "predicted"), (MEASURED, "measured")}
    assert len({(one["what"], one["provenance"]) for one in found}) == len(found)
    said = verb(RUN)
    assert said.startswith(f"{RUN} (predicted): limited by compute\n")
    assert "of it needed by the compute roof" in said


def test_one_record_file_is_enough():
    path = ROOT / "results/cached/paper/predict/data_parallel.parquet"
    (found,) = diagnose_all(CONFIG, [RUN], [path], ROOT / "nowhere")
    assert found.limit is Limit.COMPUTE


def test_what_is_neither_run_nor_file_is_one_message():
    with pytest.raises(UserError, match="no record of a training run 'nothing', and no such file"):
        diagnose_all(CONFIG, ["nothing"], [], ROOT / "results")


def test_a_trace_says_where_its_window_goes(tmp_path):
    path = written(tmp_path / "rank0.json", STEP)  # 62 us: 40 computing, 10 exposed, 2 copying, 10 of nothing
    (found,) = diagnose_all(CONFIG, [str(path)], [], tmp_path)
    shares = {one.limit: one.seconds * 1e6 for one in found.parts}
    assert shares == {
        Limit.COMPUTE: pytest.approx(40),
        Limit.EXPOSED_COMMUNICATION: pytest.approx(10),
        Limit.HOST_LAUNCH: pytest.approx(10),
        Limit.MEMORY: pytest.approx(2),
    }
    assert (found.limit, found.what) == (Limit.COMPUTE, str(path))
    assert found.notes == ("all 7 events read",)
    assert sum(one.share for one in found.parts) == pytest.approx(1.0)


def test_of_several_traces_the_late_rank_is_named(tmp_path):
    paths = [
        str(written(tmp_path / f"{rank}.json", [kernel(0, 5), collective(late, 50 - late)], rank=rank))
        for rank, late in ((0, 5), (1, 40))
    ]
    waiting, late = diagnose_all(CONFIG, paths, [], tmp_path)
    assert waiting.limit is Limit.SKEW
    skew = next(one for one in waiting.parts if one.limit is Limit.SKEW)
    assert skew.seconds * 1e6 == pytest.approx(35)
    assert "most often for rank 1 (100%)" in skew.evidence
    assert skew.help.startswith("rank 1: the node of the slowest rank")
    assert late.limit is Limit.HOST_LAUNCH
