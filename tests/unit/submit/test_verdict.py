"""The cause of a failed attempt is told from its consequences on other ranks."""

import itertools
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.processes import identity
from scaling_study.spec import Assignment, AttemptFiles, FailureKind, Outcome, RankFailure
from scaling_study.submit.verdict import ended, failures, log_tail, process_of, utc_now, verdict
from tests.unit.samples import TINY, bounded, training_run

STARTED = "2025-01-01T00:00:00.000+00:00"


def assignment(folder="."):
    return Assignment(
        run=training_run(dp=4), model=TINY, run_folder=str(folder), attempt_folder=str(folder), attempt=2, ranks=4,
        data_folder="", code_version="v", threads_per_rank=1,
    )  # fmt: skip


def failure(kind, rank=0, at_ns=0, message="it went wrong"):
    return RankFailure(rank=rank, host=f"node-{rank}", kind=kind, message=message, traceback="", at_ns=at_ns)


def judge(*found):
    return verdict(assignment(), found, STARTED)


MOST_TELLING_FIRST = [
    FailureKind.NOT_FINITE,
    FailureKind.OUT_OF_MEMORY,
    FailureKind.KILLED,
    FailureKind.ERROR,
    FailureKind.STALLED,
    FailureKind.PEER_LOST,
]


def test_no_kind_is_forgotten():
    assert set(MOST_TELLING_FIRST) == set(FailureKind)


@pytest.mark.parametrize(("cause", "consequence"), list(itertools.combinations(MOST_TELLING_FIRST, 2)))
def test_a_cause_is_told_from_its_consequence_though_it_is_reported_later(cause, consequence):
    consequences = [failure(consequence, rank, at_ns=rank) for rank in (0, 1, 3)]
    result = judge(*consequences, failure(cause, 2, at_ns=10**9, message="the cause"))
    assert result.failure is cause
    assert result.reason == "rank 2 on node-2: the cause"


def test_not_a_number_over_lost_peers():
    result = judge(failure("peer_lost", 0, 1), failure(FailureKind.NOT_FINITE, 3, 9, "the loss is nan at iteration 4"))
    assert result.outcome is Outcome.FAILED
    assert result.failure is FailureKind.NOT_FINITE
    assert result.reason == "rank 3 on node-3: the loss is nan at iteration 4"


def test_the_earliest_of_one_kind_is_the_cause():
    found = [failure(FailureKind.ERROR, rank, at_ns=at, message=str(at)) for rank, at in enumerate((30, 10, 20))]
    assert judge(*found).reason == "rank 1 on node-1: 10"


def test_at_the_same_moment_the_first_rank_is_named():
    assert judge(*(failure(FailureKind.ERROR, rank) for rank in (2, 1, 3))).reason.startswith("rank 1 ")


@pytest.mark.parametrize("kind", FailureKind)
def test_only_memory_and_a_stall_are_outcomes_of_their_own(kind):
    expected = {FailureKind.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY, FailureKind.STALLED: Outcome.TIMEOUT}
    assert judge(failure(kind)).outcome is expected.get(kind, Outcome.FAILED)


@bounded
@given(st.lists(st.tuples(st.sampled_from(FailureKind), st.integers(0, 5)), min_size=1, max_size=4), st.randoms())
def test_the_order_of_reports_does_not_matter(kinds, random):
    found = [failure(kind, rank, at_ns) for rank, (kind, at_ns) in enumerate(kinds)]
    shuffled = random.sample(found, len(found))
    assert judge(*shuffled).reason == judge(*found).reason
    assert judge(*found).failure is min((kind for kind, _ in kinds), key=MOST_TELLING_FIRST.index)


def test_a_verdict_names_run_attempt_and_times():
    result = judge(failure(FailureKind.ERROR))
    assert (result.run, result.attempt, result.started_at) == (training_run(dp=4), 2, STARTED)
    assert (result.ranks, result.environment) == ([], None)
    assert datetime.fromisoformat(result.finished_at) - datetime.now(timezone.utc) < timedelta(seconds=5)  # noqa: UP017


def test_ended_has_the_outcome_that_it_is_given():
    result = ended(assignment(), Outcome.INFEASIBLE, "too large", STARTED)
    assert (result.outcome, result.reason, result.failure) == (Outcome.INFEASIBLE, "too large", None)


def test_now_is_utc_with_milliseconds():
    assert datetime.fromisoformat(utc_now()).utcoffset() == timedelta(0)
    assert len(utc_now()) == len("2025-01-01T00:00:00.000+00:00")


# -- what ranks leave in the attempt's folder -----------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    files = AttemptFiles(tmp_path / "001")
    files.log.mkdir(parents=True)
    return files


def _write_log(files, rank, text):
    files.output(rank).write_text(text, encoding="utf-8")


@pytest.fixture
def dead():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    found = identity(process.pid)
    process.kill()
    process.wait()
    return found


def test_ranks_that_live_or_are_not_there_yet_have_not_failed(files):
    files.process(0).write_bytes(msgspec.json.encode(identity()))
    assert failures(files, 2) == []
    assert process_of(files, 0) == identity()
    assert process_of(files, 1) is None


def test_reported_failures_are_read(files):
    reported = failure(FailureKind.ERROR, 1, 5)
    files.failure(1).write_bytes(msgspec.json.encode(reported))
    assert failures(files, 4) == [reported]


def test_a_rank_that_is_gone_without_a_word_was_killed(files, dead):
    files.process(2).write_bytes(msgspec.json.encode(dead))
    _write_log(files, 2, "".join(f"line {number}\n" for number in range(20)))
    (gone,) = failures(files, 4)
    assert (gone.rank, gone.kind, gone.host) == (2, FailureKind.KILLED, os.uname().nodename)
    assert gone.message == f"process {dead.pid} ended without a word (killed from outside, or out of memory)"
    assert gone.traceback.splitlines() == [f"line {number}" for number in range(12, 20)]


def test_a_rank_that_reported_and_then_ended_is_believed(files, dead):
    reported = failure(FailureKind.NOT_FINITE, 0, 5)
    files.process(0).write_bytes(msgspec.json.encode(dead))
    files.failure(0).write_bytes(msgspec.json.encode(reported))
    assert failures(files, 1) == [reported]


def test_a_killed_rank_is_the_cause_of_lost_peers(files, dead):
    files.process(3).write_bytes(msgspec.json.encode(dead))
    for rank in range(3):
        lost = failure(FailureKind.PEER_LOST, rank, 1, "Connection closed by peer")
        files.failure(rank).write_bytes(msgspec.json.encode(lost))
    found = failures(files, 4)
    assert [one.rank for one in found] == [0, 1, 2, 3]
    result = verdict(assignment(files.folder), found, STARTED)
    assert result.failure is FailureKind.KILLED
    assert result.reason.startswith("rank 3 on ")


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (-9, FailureKind.KILLED, "without a word (killed from outside, or out of memory)"),
        (-15, FailureKind.KILLED, "without a word (killed from outside, or out of memory)"),
        (-11, FailureKind.ERROR, "by SIGSEGV"),
        (-6, FailureKind.ERROR, "by SIGABRT"),
        (1, FailureKind.ERROR, "with exit code 1"),
        (0, FailureKind.ERROR, "with exit code 0"),
        (255, FailureKind.KILLED, "without a word (killed from outside, or out of memory)"),
    ],
)
def test_a_rank_that_ended_before_it_said_who_it_is(files, code, kind, said):
    _write_log(files, 1, "ImportError: no module named torch\n")
    (gone,) = failures(files, 2, {1: code})
    assert (gone.rank, gone.kind, gone.host) == (1, kind, os.uname().nodename)
    assert gone.message == f"its process ended {said}"
    assert gone.traceback == "ImportError: no module named torch"


def test_a_report_that_cannot_be_read_is_none(files, dead):
    files.process(0).write_bytes(msgspec.json.encode(dead))
    files.failure(0).write_text('{"rank": 0, "host"')
    (gone,) = failures(files, 1)
    assert gone.kind is FailureKind.KILLED
    assert verdict(assignment(files.folder), [gone], STARTED).outcome is Outcome.FAILED


def test_logs_of_ranks_are_not_confused(files):
    _write_log(files, 0, "zero")
    _write_log(files, 10, "ten")
    _write_log(files, 1, "one")
    assert [log_tail(files, rank) for rank in (0, 1, 10, 2)] == ["zero", "one", "ten", ""]
