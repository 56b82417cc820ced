"""What a store says of its runs: results by outcome, attempts that go on, and which jobs are cancelled."""

import msgspec
import pytest

from scaling_study.errors import UserError
from scaling_study.processes import identity
from scaling_study.spec import FailureKind, Outcome, Progress, run_id
from scaling_study.submit import RunStore
from scaling_study.submit.slurm import ledger
from scaling_study.submit.slurm.commands import Job
from scaling_study.submit.slurm.overview import cancel, open_attempts, outcomes
from tests.unit.samples import run_result, training_run

RUNS = sorted((training_run(repeat=repeat) for repeat in range(4)), key=run_id)
NAMES = [run_id(run) for run in RUNS]


class Answers:
    """A Slurm that knows some jobs, and whether scancel works."""

    def __init__(self, *jobs, silent=False, cancels=True):
        self.jobs, self.silent, self.cancels = jobs, silent, cancels
        self.asked, self.cancelled = [], []

    def queue(self, names):
        self.asked.append(sorted(set(names)))
        return None if self.silent else list(self.jobs)

    def cancel(self, job_ids):
        self.cancelled += job_ids
        return self.cancels


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path)


def submitted(store, run, name, index=0, job_id=None):
    number = store.claim(run, identity())
    files = store.files(run).attempt(number)
    one = ledger.Entry(
        name=name, index=index, job_id=job_id, submitted_at="2030-01-31T12:00:00", minutes=15, nodes=2
    )  # fmt: skip
    ledger.write(files.folder, one)
    return files


def job(name, job_id, word="RUNNING", **fields):
    return Job(name=name, job_id=job_id, word=word, **fields)


def test_an_empty_store_has_nothing_and_slurm_is_not_asked(tmp_path):
    slurm = Answers()
    assert (open_attempts(tmp_path / "none", slurm), outcomes(tmp_path / "none")) == ([], {})
    assert cancel(tmp_path / "none", (), slurm) == []
    assert (slurm.asked, slurm.cancelled) == ([], [])


def test_attempts_of_one_array_are_told_apart(store):
    for index, run in enumerate(RUNS[:2]):
        submitted(store, run, "a", index, f"7_{index}")
    submitted(store, RUNS[2], "b", 0, "8").progress.write_bytes(msgspec.json.encode(Progress(done=3, total=60)))
    slurm = Answers(
        job("a", "7_0", nodes="n[1-2]"), job("a", "7_1", "PENDING", detail="Resources"), job("b", "8", nodes="n3")
    )
    found = open_attempts(store.root, slurm)
    assert [(one.run_id, one.attempt, one.job_id, one.state, one.nodes, one.done, one.total) for one in found] == [
        (NAMES[0], 1, "7_0", "RUNNING", "n[1-2]", 0, 0),
        (NAMES[1], 1, "7_1", "PENDING (Resources)", "", 0, 0),
        (NAMES[2], 1, "8", "RUNNING", "n3", 3, 60),
    ]
    assert slurm.asked == [["a", "b"]]


@pytest.mark.parametrize("slurm", [Answers(), Answers(silent=True)])
def test_a_job_that_slurm_does_not_know_or_say_is_unknown(slurm, store):
    submitted(store, RUNS[0], "a", job_id="7")
    (one,) = open_attempts(store.root, slurm)
    assert (one.state, one.job_id, one.nodes) == ("unknown", "7", "")


def test_a_job_whose_answer_was_lost_is_found_by_its_name(store):
    submitted(store, RUNS[0], "a")
    (one,) = open_attempts(store.root, Answers(job("a", "7")))
    assert (one.job_id, one.name) == ("7", "a")


def test_what_has_a_result_or_has_ended_or_was_not_submitted_does_not_go_on(store):
    submitted(store, RUNS[0], "a", job_id="1")
    store.end(run_result(RUNS[0]))
    submitted(store, RUNS[1], "b", job_id="2")
    store.end(run_result(RUNS[1], outcome=Outcome.FAILED, failure=FailureKind.KILLED, reason="killed"))
    store.claim(RUNS[2], identity())
    assert open_attempts(store.root, Answers()) == []


def test_only_the_latest_attempt_goes_on(store):
    submitted(store, RUNS[0], "a", job_id="1")
    store.end(run_result(RUNS[0], outcome=Outcome.FAILED, failure=FailureKind.KILLED, reason="killed"))
    submitted(store, RUNS[0], "b", job_id="2")
    (one,) = open_attempts(store.root, Answers())
    assert (one.attempt, one.job_id) == (2, "2")


def test_the_thousandth_attempt_comes_after_the_one_before(store):
    for number in (999, 1000):
        files = store.files(RUNS[0]).attempt(number)
        files.folder.mkdir(parents=True)
        files.claim.write_bytes(msgspec.json.encode(identity()))
        ledger.write(files.folder, ledger.Entry(
            name="a", index=0, job_id=str(number), submitted_at="2030-01-31T12:00:00", minutes=15, nodes=2
        ))  # fmt: skip
    (one,) = open_attempts(store.root, Answers())
    assert one.attempt == store.attempts(RUNS[0]) == 1000


def test_results_are_counted_by_outcome(store):
    for run, outcome in zip(RUNS, (Outcome.OK, Outcome.OK, Outcome.INFEASIBLE, Outcome.OK), strict=True):
        store.claim(run, identity())
        store.end(run_result(run, outcome=outcome, reason=None if outcome is Outcome.OK else "so"))
    store.files(RUNS[3]).result.write_bytes(b"{")
    assert outcomes(store.root) == {"damaged": 1, "infeasible": 1, "ok": 2}


def test_all_jobs_are_cancelled_or_those_of_named_runs(store):
    for index, run in enumerate(RUNS[:3]):
        submitted(store, run, "a", index, f"7_{index}")
    slurm = Answers()
    assert [one.run_id for one in cancel(store.root, (NAMES[1],), slurm)] == [NAMES[1]]
    assert slurm.cancelled == ["7_1"]
    slurm = Answers()
    assert [one.run_id for one in cancel(store.root, (), slurm)] == NAMES[:3]
    assert slurm.cancelled == ["7_0", "7_1", "7_2"]


def test_a_run_without_a_job_is_refused_and_nothing_is_cancelled(store):
    submitted(store, RUNS[0], "a", job_id="7")
    slurm = Answers()
    with pytest.raises(UserError, match=rf"no job of {NAMES[1]} goes on"):
        cancel(store.root, (NAMES[0], NAMES[1]), slurm)
    assert slurm.cancelled == []


def test_a_scancel_that_fails_is_said_with_the_jobs(store):
    submitted(store, RUNS[0], "a", job_id="7")
    with pytest.raises(UserError, match=r"7: scancel failed"):
        cancel(store.root, (), Answers(cancels=False))


def test_a_job_without_a_number_is_not_among_those_that_were_cancelled(store):
    submitted(store, RUNS[0], "a")
    assert cancel(store.root, (), Answers(silent=True)) == []
