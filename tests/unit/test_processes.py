"""Processes are told apart, and end with their owner."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from scaling_study import processes
from scaling_study.processes import OWNER_VARIABLE, available_cores, identity, is_alive, kill

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper():
    process = subprocess.Popen(SLEEPER)
    yield process
    process.kill()
    process.wait()


def _wait(process, seconds=10.0):
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return process.poll()


def test_identity_is_of_this_process():
    me = identity()
    assert me.pid == os.getpid()
    assert me.host == os.uname().nodename
    assert identity() == identity(os.getpid())
    assert abs(float(me.started) - time.time()) < 24 * 3600
    assert is_alive(me)


def test_a_process_id_that_is_used_again_is_another_process(sleeper):
    later = identity(sleeper.pid)
    earlier = msgspec.structs.replace(later, started=f"{float(later.started) - 10:.2f}")
    assert is_alive(later)
    assert not is_alive(earlier)
    kill(earlier)
    assert sleeper.poll() is None


def test_a_zombie_is_not_alive(sleeper):
    found = identity(sleeper.pid)
    os.kill(sleeper.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while is_alive(found) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert os.path.exists(f"/proc/{sleeper.pid}") or sys.platform != "linux"  # noqa: PTH110  not waited for yet
    assert not is_alive(found)


def test_a_process_that_was_waited_for_is_not_alive(sleeper):
    found = identity(sleeper.pid)
    kill(found)
    assert sleeper.wait(5) == -signal.SIGKILL
    assert not is_alive(found)
    kill(found)


def test_kill_leaves_processes_of_other_hosts(sleeper):
    kill(msgspec.structs.replace(identity(sleeper.pid), host="elsewhere"))
    assert sleeper.poll() is None


FOLLOWER = """
import os, signal, sys, time
from scaling_study.processes import end_with, identity
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"asked\\n"), sys.exit(7)))
end_with(identity({pid}), at_once={at_once})
print("follows", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("at_once", "code", "said"), [(True, 1, ""), (False, 7, "asked\n")])
def test_a_follower_ends_within_seconds_of_its_killed_owner(sleeper, at_once, code, said):
    script = FOLLOWER.format(pid=sleeper.pid, at_once=at_once)
    follower = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert follower.stdout.readline() == "follows\n"
        assert follower.poll() is None
        sleeper.kill()
        sleeper.wait()
        assert _wait(follower, 5) == code
        assert follower.stdout.read() == said
    finally:
        follower.kill()
        follower.wait()


def test_the_environment_names_the_owner_and_a_chain_ends_together(sleeper):
    script = """
import os, subprocess, sys, time
from scaling_study.processes import follow_owner_of_environment, own_what_is_started
follow_owner_of_environment(at_once=True)
own_what_is_started()
print(os.getpid(), flush=True)
if len(sys.argv) > 1:
    subprocess.run([sys.executable, "-c", sys.argv[1]])
time.sleep(60)
"""
    environment = {**os.environ, OWNER_VARIABLE: str(sleeper.pid)}
    command = [sys.executable, "-c", script, script]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    links = []
    try:
        links = [identity(int(first.stdout.readline())) for _ in range(2)]
        assert all(is_alive(link) for link in links)
        sleeper.kill()
        sleeper.wait()
        _wait(first)
        deadline = time.monotonic() + 5
        while any(is_alive(link) for link in links) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert [is_alive(link) for link in links] == [False, False]
    finally:
        for link in [first.pid, *(link.pid for link in links)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(link, signal.SIGKILL)
        first.wait()


@pytest.mark.parametrize("value", ["", "none"])
def test_no_owner_is_not_followed(value, monkeypatch):
    monkeypatch.setenv(OWNER_VARIABLE, value)
    monkeypatch.setattr(processes, "end_with", lambda owner, *, at_once: pytest.fail("followed"))
    processes.follow_owner_of_environment(at_once=True)


def test_an_owner_that_has_gone_ends_this_process_now(monkeypatch):
    monkeypatch.setenv(OWNER_VARIABLE, "999999999")
    with pytest.raises(SystemExit, match="has gone"):
        processes.follow_owner_of_environment(at_once=True)


def test_a_process_id_used_again_is_no_owner(monkeypatch):
    monkeypatch.setenv(OWNER_VARIABLE, f"{os.getpid()}:12.00")
    followed = []
    monkeypatch.setattr(processes, "end_with", lambda owner, *, at_once: followed.append((owner, at_once)))
    processes.follow_owner_of_environment(at_once=True)
    assert not is_alive(followed[0][0])


def test_what_is_started_is_told_who_owns_it(monkeypatch):
    monkeypatch.setenv(OWNER_VARIABLE, "")
    processes.own_what_is_started()
    me = identity()
    assert os.environ[OWNER_VARIABLE] == f"{me.pid}:{me.started}"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_a_quota_of_the_control_group_limits_the_cores(files, cores, tmp_path, monkeypatch):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(processes, "_CGROUP", tmp_path)
    expected = len(os.sched_getaffinity(0)) if cores is None else cores
    assert processes.available_cores() == expected


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen on this system")
def test_available_cores_are_those_of_the_affinity():
    core = min(os.sched_getaffinity(0))
    script = (
        f"import os; os.sched_setaffinity(0, [{core}])\n"
        "from scaling_study.processes import available_cores; print(available_cores())"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == "1\n"
    assert available_cores() == len(os.sched_getaffinity(0))
