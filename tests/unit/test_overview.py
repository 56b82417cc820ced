"""What `status` shows: results by outcome and attempts that go on, for machines and for people."""

import json

import msgspec
import pytest

from scaling_study.overview import print_status, status_of
from scaling_study.processes import identity
from scaling_study.spec import Executor, Platform, Progress, SlurmSettings, run_id
from scaling_study.submit import RunStore
from scaling_study.submit.slurm import ledger
from scaling_study.submit.slurm.commands import Job, Slurm
from scaling_study.submit.slurm.nodes import Blame, blame
from tests.unit.samples import run_result, training_run

PLATFORM = Platform(
    name="it", title="t", executor=Executor.SLURM, hardware="part",
    slurm=SlurmSettings(partition="p", nodes=2, nodes_at_once=2, most_minutes=60),
)  # fmt: skip
DONE, GOING, WAITING = (training_run(repeat=repeat) for repeat in range(3))


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A run that is done, one whose job runs and one of which Slurm knows nothing."""
    store = RunStore(tmp_path / "store" / "it")
    for run in (DONE, GOING, WAITING):
        store.claim(run, identity())
    store.end(run_result(DONE))
    for run, name, job_id in ((GOING, "a", "7"), (WAITING, "b", None)):
        one = ledger.Entry(
            name=name, index=0, job_id=job_id, submitted_at="2030-01-31T12:00:00", minutes=15, nodes=1
        )  # fmt: skip
        ledger.write(store.files(run).attempt(1).folder, one)
    progress = msgspec.json.encode(Progress(done=1200, total=6000))
    store.files(GOING).attempt(1).progress.write_bytes(progress)
    job = Job(name="a", job_id="7", word="RUNNING", nodes="n[1-2]")
    monkeypatch.setattr(Slurm, "queue", lambda self, names: [job])
    return tmp_path


def test_for_machines_it_is_plain_json(results):
    found = json.loads(msgspec.json.encode(status_of(PLATFORM, results)))
    going = {one["run_id"]: one for one in found.pop("going_on")}
    assert found == {"platform": "it", "results": {"ok": 1}, "failing_nodes": []}
    assert going == {
        run_id(GOING): {
            "run_id": run_id(GOING), "attempt": 1, "job_id": "7", "name": "a", "state": "RUNNING", "nodes": "n[1-2]",
            "done": 1200, "total": 6000,
        },
        run_id(WAITING): {
            "run_id": run_id(WAITING), "attempt": 1, "job_id": None, "name": "b", "state": "unknown", "nodes": "",
            "done": 0, "total": 0,
        },
    }  # fmt: skip


def test_for_people_it_is_a_sentence_and_a_table(results, capsys):
    print_status(status_of(PLATFORM, results))
    first, header, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert " ".join(first) == "it: results: 1 ok"
    assert header == ["run", "attempt", "job", "state", "nodes", "steps"]
    assert sorted(rows) == sorted(
        [
            [run_id(GOING), "1", "7", "RUNNING", "n[1-2]", "1,200", "of", "6,000"],
            [run_id(WAITING), "1", "b", "unknown"],
        ]
    )


def test_nodes_that_failed_are_named_with_the_last_reason(results, capsys):
    root = results / "store" / "it"
    for number, node in enumerate(("n1", "n1", "n2")):
        blame(root, node, Blame(of=f"run.{number}", why=f"reason {number}", at=f"2030-01-0{number + 1}"))
    print_status(status_of(PLATFORM, results))
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "node n1: avoided, 2 failures, last: reason 1",
        "node n2: in use, 1 failures, last: reason 2",
    ]


def test_an_empty_store_is_said_in_words(tmp_path, capsys):
    print_status(status_of(PLATFORM, tmp_path))
    assert capsys.readouterr().out == "it: results: none yet\nno job goes on\n"


def test_outcomes_stand_side_by_side(capsys):
    print_status({"platform": "it", "results": {"infeasible": 2, "ok": 3}, "going_on": [], "failing_nodes": []})
    assert capsys.readouterr().out.splitlines()[0] == "it: results: 2 infeasible, 3 ok"
