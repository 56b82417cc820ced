"""The run store: one driver at a run, whoever dies; and only a sound result of the run itself is believed."""

import json
import multiprocessing
import os
import subprocess
import sys
import time

import msgspec
import pytest

from scaling_study.errors import UserError
from scaling_study.processes import identity
from scaling_study.spec import FailureKind, Outcome, ProcessIdentity, run_id
from scaling_study.submit import RunStore
from tests.unit.samples import run_result, training_run

RUN = training_run()
FOREIGN = ProcessIdentity(host="another-host.example", pid=1, started="1.00")


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "store")


def _dead():
    """A process of this host that is gone."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    found = identity(process.pid)
    process.kill()
    process.wait()
    return found


def _failed(number, **fields):
    fields = {"outcome": Outcome.FAILED, "failure": FailureKind.KILLED, "reason": "killed", **fields}
    return run_result(RUN, attempt=number, **fields)


def test_an_empty_store_has_nothing(store):
    assert store.result(RUN) is None
    assert store.last_failure(RUN) is None
    assert store.attempts(RUN) == 0
    assert not store.is_held(RUN)
    assert not store.root.exists()


def test_a_claim_is_the_first_attempt_with_its_owner_inside(store):
    assert store.claim(RUN, identity()) == 1
    files = store.files(RUN)
    assert files.folder.name == run_id(RUN)
    assert msgspec.json.decode(files.attempt(1).claim.read_bytes(), type=ProcessIdentity) == identity()
    assert json.loads(files.run.read_bytes())["global_batch"] == RUN.global_batch
    assert [path.name for path in files.attempts.iterdir()] == ["001"]


def test_a_live_claim_is_not_taken_not_even_by_its_owner(store):
    store.claim(RUN, identity())
    assert store.is_held(RUN)
    assert store.claim(RUN, identity()) is None
    assert store.attempts(RUN) == 1


def test_claims_of_different_runs_do_not_meet(store):
    others = [training_run(repeat=repeat) for repeat in range(3)]
    assert [store.claim(run, identity()) for run in others] == [1, 1, 1]


def test_a_dead_owners_claim_is_adopted_as_the_next_attempt(store):
    assert store.claim(RUN, _dead()) == 1
    assert not store.is_held(RUN)
    assert store.claim(RUN, identity()) == 2
    assert store.is_held(RUN)
    assert store.claim(RUN, identity()) is None


def test_a_claim_by_a_process_id_that_is_used_again_is_adopted(store):
    me = identity()
    store.claim(RUN, msgspec.structs.replace(me, started=f"{float(me.started) - 100:.2f}"))
    assert store.claim(RUN, me) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b'{"host": "a"', b"[]"])
def test_an_unreadable_claim_holds_nothing(store, content):
    store.claim(RUN, identity())
    store.files(RUN).attempt(1).claim.write_bytes(content)
    assert store.claim(RUN, identity()) == 2


def test_a_foreign_host_holds_a_run_as_long_as_its_heart_beats(store):
    store.claim(RUN, FOREIGN)
    claim = store.files(RUN).attempt(1).claim
    assert store.is_held(RUN)
    os.utime(claim, (time.time() - 50, time.time() - 50))
    assert store.is_held(RUN)
    os.utime(claim, (time.time() - 70, time.time() - 70))
    assert not store.is_held(RUN)
    store.heartbeat(RUN, 1)
    assert store.is_held(RUN)
    os.utime(claim, (0, 0))
    assert store.claim(RUN, identity()) == 2


def test_an_attempt_that_ended_frees_the_run(store):
    store.claim(RUN, identity())
    store.end(_failed(1))
    assert store.result(RUN) is None
    assert store.last_failure(RUN) == _failed(1)
    assert not store.is_held(RUN)
    assert store.claim(RUN, identity()) == 2
    assert store.last_failure(RUN) is None


def test_a_result_wins_over_every_claim(store):
    store.claim(RUN, _dead())
    store.end(run_result(RUN))
    assert store.result(RUN) == run_result(RUN)
    assert store.claim(RUN, identity()) is None
    assert store.attempts(RUN) == 1


@pytest.mark.parametrize("outcome", Outcome)
def test_what_is_a_result_is_kept_and_what_is_none_is_an_end(store, outcome):
    store.claim(RUN, identity())
    store.end(run_result(RUN, outcome=outcome, reason="so"))
    kept = outcome in (Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.INFEASIBLE)
    assert (store.result(RUN) is not None) == kept
    assert (store.last_failure(RUN) is not None) != kept
    assert (store.claim(RUN, identity()) is None) == kept


@pytest.mark.parametrize(
    "damage", [lambda c: b"", lambda c: c[:-10], lambda c: b"[]", lambda c: c.replace(b'"ok"', b'"fine"')]
)
def test_a_damaged_result_is_set_aside_and_the_run_is_free(store, damage):
    store.claim(RUN, _dead())
    store.end(run_result(RUN))
    path = store.files(RUN).result
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    assert store.result(RUN) is None
    assert store.set_aside(RUN, None)
    assert not path.exists()
    (kept,) = path.parent.glob("result.damaged.*.json")
    assert kept.read_bytes() == damaged
    assert not store.set_aside(RUN, None)
    assert store.claim(RUN, identity()) == 2


def test_a_result_that_came_meanwhile_is_not_set_aside(store):
    store.claim(RUN, identity())
    store.end(run_result(RUN))
    new = store.result(RUN)
    assert not store.set_aside(RUN, None)
    assert not store.set_aside(RUN, run_result(RUN, reason="an older one"))
    assert store.result(RUN) == new
    assert store.set_aside(RUN, new)
    assert store.result(RUN) is None
    assert len(list(store.files(RUN).folder.glob("result.outdated.*.json"))) == 1


def test_a_result_of_another_run_in_the_folder_is_not_believed(store):
    other = run_result(training_run(repeat=1))
    store.claim(RUN, identity())
    store.files(RUN).result.write_bytes(msgspec.json.encode(other))
    assert store.result(RUN) is None
    store.files(RUN).attempt(1).ended.write_bytes(msgspec.json.encode(other))
    assert store.last_failure(RUN) is None


def test_a_store_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "store").write_bytes(b"a file")
    with pytest.raises(UserError, match=r"a part of the path is not a folder|a file is in the way of a folder"):
        RunStore(tmp_path / "store").claim(RUN, identity())


def test_a_claim_that_comes_between_look_and_claim_is_not_doubled(store, monkeypatch):
    """The one moment that counts: another driver claims just after this one has looked."""
    look = RunStore.attempts

    def look_then_lose(self, run):
        found = look(self, run)
        monkeypatch.setattr(RunStore, "attempts", look)
        assert RunStore(self.root).claim(run, identity()) == 1
        return found

    monkeypatch.setattr(RunStore, "attempts", look_then_lose)
    assert store.claim(RUN, identity()) is None
    assert store.attempts(RUN) == 1


def _race(root, rounds, start, results):
    store, me, wins = RunStore(root), identity(), []
    for number in range(rounds):
        run = training_run(repeat=number)
        start.wait(30)
        claimed = store.claim(run, me)
        if claimed is not None:
            wins.append((number, claimed))
    results.put(wins)
    time.sleep(0.5)  # an owner that lives while others claim


def test_of_many_drivers_one_gets_each_run(tmp_path):
    drivers, rounds = 6, 60
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(drivers), context.Queue()
    processes = [
        context.Process(target=_race, args=(tmp_path / "store", rounds, start, results), daemon=True)
        for _ in range(drivers)
    ]
    for process in processes:
        process.start()
    wins = sorted(win for _ in processes for win in results.get(timeout=60))
    for process in processes:
        process.join(10)
    assert wins == [(number, 1) for number in range(rounds)]
    left = [path.name for path in (tmp_path / "store").glob("*/attempts/*")]
    assert left == ["001"] * rounds
