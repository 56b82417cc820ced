"""Slurm's answers as they come, answers that do not come, and what of the environment reaches a command."""

import os
import stat

import pytest

from scaling_study.submit.slurm.commands import Job, Slurm, scrubbed, scrubbed_environment


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Puts a command on the path that prints what it is given, and remembers its arguments."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def make(name, said="", code=0):
        path = tmp_path / name
        (tmp_path / f"{name}.said").write_text(said)
        path.write_text(
            f'#!/bin/bash\necho "$@" > {tmp_path}/{name}.asked\nenv > {tmp_path}/{name}.env\n'
            f"cat {tmp_path}/{name}.said\nexit {code}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return tmp_path

    return make


def test_the_queue_is_asked_once_for_all_names(fake):
    folder = fake("squeue", "b|12_0|RUNNING|None|n[1-2]\nb|12_1|PENDING|Resources|\n")
    slurm = Slurm()
    assert slurm.queue(["b", "a", "b"]) == [
        Job(name="b", job_id="12_0", word="RUNNING", nodes="n[1-2]"),
        Job(name="b", job_id="12_1", word="PENDING", detail="Resources"),
    ]
    assert "--name=a,b" in (folder / "squeue.asked").read_text()
    assert slurm.calls == 1


def test_accounting_expands_the_waiting_tasks_of_an_array(fake):
    folder = fake("sacct", "b|12_[0-2,5%4]|PENDING|0:0|None assigned\nb|13|CANCELLED by 0|0:15|n1\n")
    found = Slurm().accounting(["b"], "2030-01-31T12:00:00")
    assert [(job.job_id, job.index) for job in found] == [("12_0", 0), ("12_1", 1), ("12_2", 2), ("12_5", 5), ("13", 0)]
    assert (found[0].nodes, found[-1].nodes, found[-1].detail) == ("", "n1", "exit code 0:15")
    assert "--starttime=2030-01-31T12:00:00" in (folder / "sacct.asked").read_text()


@pytest.mark.parametrize("code", [1, 127])
def test_a_command_that_fails_knows_nothing(fake, code):
    fake("squeue", "slurm_load_jobs error: Unable to contact slurm controller", code)
    assert Slurm().queue(["a"]) is None


def test_a_command_that_is_not_there_knows_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Slurm().accounting(["a"], "2030-01-31T12:00:00") is None
    assert not Slurm().cancel(["1"])
    assert Slurm().cancel([])


def test_lines_of_another_kind_are_left_out(fake):
    fake("squeue", "slurm says hello\nb|1|RUNNING|None|n1\n\n")
    assert [job.job_id for job in Slurm().queue(["b"])] == ["1"]


def test_only_where_slurm_is_stays_of_an_enclosing_job():
    inherited = {"SLURM_CONF": "c", "SLURM_CPU_BIND": "x", "SBATCH_PARTITION": "p", "SRUN_DEBUG": "1", "HOME": "h"}
    assert scrubbed(inherited) == {"SLURM_CONF": "c", "HOME": "h"}


def test_the_environment_comes_back(monkeypatch, fake):
    monkeypatch.setenv("SLURM_NTASKS", "7")
    folder = fake("squeue")
    with scrubbed_environment():
        assert "SLURM_NTASKS" not in os.environ
    assert os.environ["SLURM_NTASKS"] == "7"
    Slurm().queue(["a"])
    assert "SLURM_NTASKS" not in (folder / "squeue.env").read_text()
