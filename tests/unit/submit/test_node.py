"""On a node a rank is a fresh process that submitit starts; a collective run goes through it to its result."""

import msgspec
import pytest

from scaling_study.spec import (
    Assignment,
    AttemptFiles,
    CollectiveOp,
    CollectiveProtocol,
    CollectiveRun,
    Outcome,
    Precision,
    RunFiles,
    RunResult,
)
from scaling_study.submit.node import start_rank
from scaling_study.submit.verdict import reported_failures
from scaling_study.submit.version import code_digest

RUN = CollectiveRun(
    op=CollectiveOp.ALL_REDUCE,
    hardware="cpu",
    nodes=2,
    message_bytes=4096,
    dtype=Precision.FP32,
    protocol=CollectiveProtocol(warmup=2, repeats=5),
)


@pytest.fixture
def assignment(tmp_path):
    attempt = tmp_path / "attempts/001"
    attempt.mkdir(parents=True)
    return Assignment(
        run=RUN, model=None, ranks=2, run_folder=str(tmp_path), attempt_folder=str(attempt), attempt=1,
        data_folder="", code_version="v", code_digest=code_digest(), threads_per_rank=1,
    )  # fmt: skip


def test_two_tasks_of_a_job_measure_a_collective(assignment, tmp_path, monkeypatch):
    from submitit import LocalExecutor

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    executor = LocalExecutor(folder=tmp_path / "jobs")
    executor.update_parameters(tasks_per_node=2, timeout_min=2)
    job = executor.submit(start_rank, msgspec.json.encode(assignment).decode(), "127.0.0.1")
    job.results()
    result = msgspec.json.decode(RunFiles(tmp_path).result.read_bytes(), type=RunResult)
    assert (result.run, result.outcome, result.ranks) == (RUN, Outcome.OK, [])
    assert [(report.rank, len(report.call_ns), report.threads) for report in result.calls] == [(0, 5, 1), (1, 5, 1)]
    assert all(0 < call_ns < 10**10 for report in result.calls for call_ns in report.call_ns)
    assert result.environment.attention_operator is None
    files = AttemptFiles(tmp_path / "attempts/001")
    assert {files.process(rank).exists() and files.output(rank).exists() for rank in (0, 1)} == {True}


def test_a_node_with_other_code_refuses_and_says_so(assignment, tmp_path, monkeypatch):
    from submitit import LocalExecutor

    other = msgspec.structs.replace(assignment, code_digest="0123456789abcdef")
    executor = LocalExecutor(folder=tmp_path / "jobs")
    executor.update_parameters(tasks_per_node=1, timeout_min=2)
    job = executor.submit(start_rank, msgspec.json.encode(other).decode(), "")
    with pytest.raises(Exception, match="this node runs other code"):
        job.result()
    (failure,) = reported_failures(AttemptFiles(tmp_path / "attempts/001"), 2)
    assert "the driver's 0123456789ab)" in failure.message
