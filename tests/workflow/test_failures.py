"""A rank that dies, diverges or hangs ends all ranks in seconds, with an outcome and the cause."""

import os
import signal
import threading
import time

import msgspec
import psutil
import pytest

from scaling_study.errors import UserError
from scaling_study.processes import is_alive
from scaling_study.records import record_of
from scaling_study.spec import Config, FailureKind, Outcome, Provenance, RunFiles, RunResult, expand
from scaling_study.submit import Driver, RunStore, local
from scaling_study.submit.verdict import process_of
from scaling_study.training.prepare import prepare
from tests.workflow.conftest import ROOT

CONFIG = Config(ROOT / "tests/workflow/scenario/config")


class Silent:
    """A monitor that only remembers notes, and calls back once the run makes progress."""

    def __init__(self, on_progress=lambda done: None):
        self.notes, self.on_progress = [], on_progress

    def start(self, run, position, total):
        pass

    def progress(self, run, progress):
        self.on_progress(progress.done)

    def finish(self, run, result, *, fresh):
        pass

    def note(self, message):
        self.notes.append(message)


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    prepare(CONFIG.dataset("tiny"), folder)
    return folder


def two_ranks(**protocol):
    run = expand(CONFIG.study("scenario"), "data_parallel", CONFIG.catalogue)[1]
    return msgspec.structs.replace(run, protocol=msgspec.structs.replace(run.protocol, **protocol))


def measure(run, tmp_path, data_folder, monitor=None, **limits):
    """The result of one run, the store, and how long it took."""
    platform = msgspec.structs.replace(CONFIG.platform("local"), attempts=1, **limits)
    store = RunStore(tmp_path / "store")
    driver = Driver(platform, CONFIG.catalogue, store, data_folder, monitor or Silent())
    start_s = time.monotonic()
    result = driver.measure([run])[0]
    return result, store, time.monotonic() - start_s


def assert_no_rank_left(store, run):
    attempt = RunFiles(store.files(run).folder).attempt(1)
    processes = [process_of(attempt, rank) for rank in range(run.ranks)]
    assert all(process is not None for process in processes)
    assert not [process for process in processes if is_alive(process)]


def ranks_at_work():
    """Processes forked by servers of this process that have not ended."""
    forked = [rank for server in local._servers() for rank in server.children()]
    return [rank for rank in forked if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE]


def signal_rank(store, run, rank, number):
    """Send a signal to a rank, once; a callback for a monitor."""
    sent = threading.Event()

    def on_progress(done):
        if done and not sent.is_set():
            sent.set()
            os.kill(process_of(store.files(run).attempt(1), rank).pid, number)

    return on_progress


def test_a_loss_that_is_not_finite_fails_the_run(tmp_path, data_folder):
    run = two_ranks(learning_rate=1e30)
    result, store, _ = measure(run, tmp_path, data_folder)
    assert result.outcome is Outcome.FAILED
    assert "the loss is" in result.reason
    assert "at iteration" in result.reason
    assert_no_rank_left(store, run)
    assert store.result(run) is None
    assert msgspec.json.decode(store.files(run).attempt(1).ended.read_bytes(), type=RunResult) == result
    record = record_of(
        result,
        CONFIG.catalogue.models["tiny"],
        CONFIG.catalogue.hardware["cpu"],
        platform="local",
        provenance=Provenance.MEASURED,
    )
    assert record["outcome"] == "failed"
    assert record["words_per_second"] is None


def test_a_killed_rank_ends_the_others_in_seconds(tmp_path, data_folder):
    run = two_ranks(iterations=100_000, discard=1)
    store = RunStore(tmp_path / "store")
    killed_s, send = [], signal_rank(store, run, 1, signal.SIGKILL)

    def kill(done):
        send(done)
        if done and not killed_s:
            killed_s.append(time.monotonic())

    result, store, _ = measure(run, tmp_path, data_folder, Silent(kill))
    assert time.monotonic() - killed_s[0] < 8
    assert result.outcome is Outcome.FAILED
    assert "rank 1" in result.reason
    assert "killed" in result.reason
    assert_no_rank_left(store, run)


def test_ranks_end_with_the_server_that_forked_them(tmp_path, data_folder):
    run = two_ranks(iterations=100_000, discard=1)
    killed = []

    def kill_server(done):
        if done and not killed:
            server = psutil.Process(process_of(store.files(run).attempt(1), 0).pid).parent()
            killed.append(" ".join(server.cmdline()))
            server.kill()

    store = RunStore(tmp_path / "store")
    result, store, _ = measure(run, tmp_path, data_folder, Silent(kill_server))
    assert "multiprocessing.forkserver" in killed[0]
    assert (result.outcome, result.failure) == (Outcome.FAILED, FailureKind.KILLED)
    assert_no_rank_left(store, run)
    again, _, _ = measure(two_ranks(iterations=5, discard=1), tmp_path, data_folder)
    assert again.outcome is Outcome.OK


def test_a_server_that_is_busy_for_long_is_a_timeout(tmp_path, data_folder, monkeypatch):
    run = two_ranks(iterations=5, discard=1)
    local._kill_servers()  # so that the run starts one
    with monkeypatch.context() as patch:
        patch.setattr(local, "SERVER", "tests.workflow.servers.slow")
        result, store, took_s = measure(run, tmp_path, data_folder, first_iteration_limit_s=1)
    assert result.outcome is Outcome.TIMEOUT, result.reason
    assert "no first iteration within 1 s (first_iteration_limit_s)" in result.reason
    assert store.attempts(run) == 1
    assert took_s < 15
    assert not local._servers()
    assert measure(run, tmp_path / "again", data_folder)[0].outcome is Outcome.OK


def test_a_server_that_cannot_import_is_an_error_with_its_cause(tmp_path, data_folder, monkeypatch):
    local._kill_servers()  # so that the run starts one
    with monkeypatch.context() as patch:
        patch.setattr(local, "SERVER", "tests.workflow.servers.broken")
        result, store, _ = measure(two_ranks(), tmp_path, data_folder)
    assert (result.outcome, result.failure) == (Outcome.FAILED, FailureKind.ERROR)
    assert "ranks could not be started: OSError: libmissing.so" in result.reason
    assert "OSError: libmissing.so" in (store.root / "server.log").read_text()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("after_looks", [0, 1])
def test_whatever_stops_the_driver_no_rank_is_left(tmp_path, data_folder, error, after_looks):
    run, looks = two_ranks(iterations=100_000, discard=1), []

    def stop(done):
        looks.append(done)
        if len(looks) > after_looks:
            raise error

    with pytest.raises(type(error) if isinstance(error, OSError) else error):
        measure(run, tmp_path, data_folder, Silent(stop))
    assert not ranks_at_work()


def test_a_rank_that_hangs_is_a_timeout(tmp_path, data_folder):
    run = two_ranks(iterations=100_000, discard=1)
    store = RunStore(tmp_path / "store")
    stop = signal_rank(store, run, 1, signal.SIGSTOP)
    result, store, took_s = measure(run, tmp_path, data_folder, Silent(stop), iteration_limit_s=2)
    assert result.outcome is Outcome.TIMEOUT
    assert "no iteration for 2 s" in result.reason
    assert took_s < 40
    assert_no_rank_left(store, run)


def test_a_platform_refuses_runs_of_other_hardware(tmp_path, data_folder):
    run = msgspec.structs.replace(two_ranks(), hardware="h100")
    driver = Driver(CONFIG.platform("local"), CONFIG.catalogue, RunStore(tmp_path), data_folder, Silent())
    with pytest.raises(UserError, match="needs h100"):
        driver.check([run])
