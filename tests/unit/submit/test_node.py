"""On a node a rank is a fresh process that submitit starts; a collective run goes through it to its result."""

from pathlib import Path

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
from scaling_study.submit.node import _require_own_attempt, start_rank
from scaling_study.submit.slurm import ledger
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


def submitted_as(assignment, name):
    """The attempt's entry in the ledger, under a name."""
    entry = ledger.Entry(name=name, index=0, job_id="12", submitted_at="2030-01-31T12:00:00", minutes=15, nodes=1)
    ledger.write(Path(assignment.attempt_folder), entry)
    return msgspec.json.encode(assignment).decode()


def test_a_job_leaves_an_attempt_that_was_submitted_again_alone(assignment, monkeypatch):
    payload = submitted_as(assignment, "scaling-study-new")
    monkeypatch.setenv("SLURM_JOB_NAME", "scaling-study-old")
    with pytest.raises(SystemExit) as ended:
        _require_own_attempt(payload)
    assert ended.value.code == "this attempt is that of job scaling-study-new now; scaling-study-old leaves it alone"


@pytest.mark.parametrize("name", ["scaling-study-new", None], ids=["in the job", "in no job"])
def test_a_job_measures_the_attempt_that_is_its_own(assignment, monkeypatch, name):
    payload = submitted_as(assignment, "scaling-study-new")
    monkeypatch.delenv("SLURM_JOB_NAME", raising=False)
    if name:
        monkeypatch.setenv("SLURM_JOB_NAME", name)
    assert _require_own_attempt(payload) is None


def test_a_job_measures_an_attempt_of_which_the_ledger_says_nothing(assignment, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NAME", "scaling-study-old")
    assert _require_own_attempt(msgspec.json.encode(assignment).decode()) is None
