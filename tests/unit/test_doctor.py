"""The verb `doctor`: what lacks is named with what mends it, and only what must be mended fails."""

import json
import shutil
import sys
import types

import pytest
from click.testing import CliRunner

from scaling_study import doctor
from scaling_study.cli import cli
from scaling_study.doctor import State, examine
from tests.unit.samples import CONFIG, ROOT


def found(folder=ROOT, platform=None):
    return {one.what: one for one in examine(folder, platform)}


def run(*arguments):
    return CliRunner().invoke(cli, ["--config", str(ROOT / "config"), "doctor", *arguments], catch_exceptions=False)


def test_here_nothing_needs_mending_but_for_what_is_not_there():
    done = run("--json")
    findings = json.loads(done.stdout)
    assert done.exit_code == (2 if any(one["state"] == "wrong" for one in findings) else 0)
    by_name = {one["what"]: one for one in findings}
    assert by_name["Python"]["found"] == ".".join(map(str, sys.version_info[:3]))
    assert by_name["committed records"]["state"] == by_name["packages for measuring"]["state"] == "ok"
    assert all(one["remedy"] for one in findings if one["state"] == "wrong")


@pytest.mark.parametrize(("version", "state"), [((3, 10, 9), "wrong"), ((3, 11, 0), "ok"), ((3, 14, 0), "wrong")])
def test_python_is_of_a_version_that_is_tested(monkeypatch, version, state):
    monkeypatch.setattr(doctor.sys, "version_info", version)
    assert found()["Python"].state == state


def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch):
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("torch", "polars") else version(name))
    figures, measuring = found()["packages for figures and paper"], found()["packages for measuring"]
    assert (figures.state, figures.found) == (State.WRONG, "without polars")
    assert (measuring.state, measuring.found) == (State.ABSENT, "without torch")
    assert measuring.remedy == "pip install -c constraints/cpu.txt -e '.[train]'"


def test_a_version_that_is_not_of_those_required_is_named(monkeypatch):
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "2.9.1" if name == "torch" else version(name))
    measuring = found()["packages for measuring"]
    assert (measuring.state, measuring.found) == (State.ABSENT, "torch is 2.9.1, not <2.14,>=2.10")


def test_altered_and_missing_records_are_wrong(tmp_path):
    assert found(tmp_path)["committed records"].found.startswith("none in ")
    place = tmp_path / "results/cached/mini/local"
    place.mkdir(parents=True)
    source = ROOT / "results/cached/mini/local/data_parallel.parquet"
    shutil.copy(source, place / "good.parquet")
    assert found(tmp_path)["committed records"].state is State.OK
    (place / "bad.parquet").write_bytes(source.read_bytes()[:-20] + b"x" * 20)
    records = found(tmp_path)["committed records"]
    assert (records.state, records.found) == (State.WRONG, "altered: mini/local/bad.parquet")
    assert "git checkout" in records.remedy


def test_a_slurm_platform_wants_slurm_s_commands(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = found(platform=CONFIG.platform("slurm-h100"))
    assert [findings[name].state for name in ("sbatch", "squeue", "sacct")] == ["wrong", "wrong", "absent"]
    assert "sbatch" not in found()
    assert (findings["git"].state, findings["chromium"].state) == ("wrong", "absent")
    assert run("--platform", "slurm-h100").exit_code == 2


def test_too_little_room_is_wrong_and_too_little_memory_is_said(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: types.SimpleNamespace(free=1e9))
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: types.SimpleNamespace(total=2 * 2**30))
    assert (found()["disk"].state, found()["disk"].found) == (State.WRONG, "1.0 GB free")
    assert (found()["memory"].state, found()["memory"].found) == (State.ABSENT, "2.0 GiB")


def nvml(names, fails=None):
    def begin():
        if fails:
            raise RuntimeError(fails)

    return types.SimpleNamespace(
        nvmlInit=begin, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: len(names),
        nvmlDeviceGetHandleByIndex=lambda index: index, nvmlDeviceGetName=lambda index: names[index],
        nvmlSystemGetDriverVersion=lambda: "580.95",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "state", "said"),
    [
        (nvml(["NVIDIA H100 80GB HBM3"] * 8), "ok", "8 x NVIDIA H100 80GB HBM3; driver 580.95"),
        (nvml([], fails="Driver Not Loaded"), "absent", "none seen: NVML: Driver Not Loaded"),
        (None, "absent", "none seen: nvidia-ml-py is not installed"),
    ],
)
def test_gpus_are_counted_by_name(monkeypatch, module, state, said):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    gpus = found()["GPUs"]
    assert (gpus.state, gpus.found) == (state, said)
