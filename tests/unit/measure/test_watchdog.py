"""A rank that stalls says where each of its threads is, reports, and ends; one that steps or is closed goes on."""

import json
import subprocess
import sys
import time

import pytest

from scaling_study.measure.failures import StalledError, classify
from scaling_study.measure.watchdog import Watchdog, write_flight_record
from scaling_study.spec import FailureKind

STALLS = """
import sys, time
from pathlib import Path
from scaling_study.measure.watchdog import Watchdog
watchdog = Watchdog(0.3, {limit}, "iteration", lambda error: Path(sys.argv[1]).write_text(str(error)))
{steps}
def where_it_hangs():
    {hang}
where_it_hangs()
"""


def run(tmp_path, steps, hang="time.sleep(60)", limit=0.3):
    code = STALLS.format(steps=steps, hang=hang, limit=limit)
    started_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "said")], capture_output=True, text=True, timeout=30, check=False
    )
    said = (tmp_path / "said").read_text() if (tmp_path / "said").exists() else None
    return done, said, time.monotonic() - started_s


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("", "no first iteration within 0.3 s (first_iteration_limit_s)"),
        ("watchdog.step(4)", "no iteration for 0.3 s after iteration 4 (iteration_limit_s)"),
    ],
)
def test_a_stalled_process_reports_and_ends_with_its_stacks(tmp_path, steps, message):
    done, said, took_s = run(tmp_path, steps)
    assert said == message
    assert done.returncode == 1
    assert "in where_it_hangs" in done.stderr
    assert 2 < took_s < 10


def test_a_library_that_holds_the_interpreter_does_not_stop_it(tmp_path):
    hang = "import ctypes; ctypes.PyDLL(None).usleep(20_000_000)"  # PyDLL keeps the interpreter's lock
    done, said, took_s = run(tmp_path, "", hang)
    assert said is None
    assert done.returncode == 1
    assert "in where_it_hangs" in done.stderr
    assert took_s < 10


def test_one_that_steps_or_is_closed_goes_on():
    told = []
    watchdog = Watchdog(0.2, 0.2, "call", told.append)
    for done in range(1, 5):
        time.sleep(0.1)
        watchdog.step(done)
    watchdog.close()
    time.sleep(0.4)
    assert told == []


def test_a_stall_is_a_kind_of_failure():
    assert classify(StalledError("no step")) is FailureKind.STALLED


def test_the_flight_record_holds_the_last_collectives(tmp_path):
    code = """
import sys, torch, torch.distributed as dist
from pathlib import Path
from scaling_study.measure.watchdog import write_flight_record
assert not write_flight_record(Path(sys.argv[1]))
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
assert write_flight_record(Path(sys.argv[1]))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "record.json")], check=True, timeout=60)
    (entry,) = json.loads((tmp_path / "record.json").read_bytes())["entries"]
    assert entry["profiling_name"] == "gloo:all_reduce"
    assert entry["input_sizes"] == [[3]]


@pytest.mark.parametrize(
    ("of_nccl", "of_all", "kept"),
    [
        (b'{"entries": [1]}', b'{"entries": [2]}', b'{"entries": [1]}'),
        (b"{}", '{"entries": [2]}', b'{"entries": [2]}'),
        (RuntimeError("not initialised"), b'{"entries": [2]}', b'{"entries": [2]}'),
        (b"{}", b"{}", None),
        (None, None, None),
    ],
)
def test_the_record_of_nccl_comes_first(of_nccl, of_all, kept, tmp_path, monkeypatch):
    from torch._C import _distributed_c10d

    def dumping(answer):
        def dump():
            if isinstance(answer, Exception):
                raise answer
            return answer

        return dump

    for name, answer in (("_dump_nccl_trace_json", of_nccl), ("_dump_fr_trace_json", of_all)):
        monkeypatch.setattr(_distributed_c10d, name, dumping(answer) if answer is not None else None, raising=False)
    path = tmp_path / "record.json"
    assert write_flight_record(path) is (kept is not None)
    assert (path.read_bytes() if path.exists() else None) == kept
