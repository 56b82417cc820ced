"""The exact file that sbatch gets (compared with a golden one), and the ledger before and after its answer."""

import os
import re
import stat
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from scaling_study.errors import UserError
from scaling_study.spec import Assignment, Executor, Platform, SlurmSettings
from scaling_study.submit.slurm import ledger
from scaling_study.submit.slurm.request import Shape
from scaling_study.submit.slurm.submission import TryLaterError, submit
from tests.unit.samples import training_run

GOLDEN = Path(__file__).parent / "golden"
PLATFORM = Platform(
    name="it",
    title="t",
    executor=Executor.SLURM,
    hardware="part",
    slurm=SlurmSettings(
        partition="gpu", account="lab", qos="high", constraint="h100&ib", exclude="n[1-3],n7", nodes=64,
        nodes_at_once=8, cpus_per_task=12, exclusive=True, most_minutes=240, setup=("module load cuda",),
        environment={"NCCL_DEBUG": "WARN"},
    ),
)  # fmt: skip


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """A fake of sbatch that keeps the file it gets and answers as it is told; and an srun to be found."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(answer="Submitted batch job 77", code=0):
        (folder / "answer").write_text(answer)
        to = ">&2" if code else ""
        for name, body in {
            "srun": "exit 0",
            "sbatch": f'cp "$1" {folder}/file; env > {folder}/env; cat {folder}/answer {to}; exit {code}',
        }.items():
            path = folder / name
            path.write_text(f"#!/bin/bash\n{body}\n")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return folder

    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return make


def assignments(tmp_path, count):
    made = []
    for number in range(count):
        attempt = tmp_path / f"run-{number}/attempts/001"
        attempt.mkdir(parents=True)
        made.append(
            Assignment(
                run=training_run(repeat=number), model=None, ranks=2, run_folder=str(attempt.parents[1]),
                attempt_folder=str(attempt), attempt=1, data_folder="", code_version="v", threads_per_rank=1,
            )
        )  # fmt: skip
    return made


def as_golden(text, tmp_path):
    """The file without what differs from machine to machine."""
    text = re.sub(r"scaling-study-[0-9a-f]{12}", "scaling-study-NAME", text.replace(str(tmp_path), "FOLDER"))
    return text.replace(sys.executable, "PYTHON")


@pytest.mark.parametrize(("count", "name"), [(1, "one.sh"), (3, "array.sh")])
def test_the_file_for_sbatch_is_the_golden_one(sbatch, tmp_path, count, name):
    """Refresh by UPDATE_GOLDEN=1."""
    folder = sbatch()
    submit(assignments(tmp_path, count), PLATFORM, Shape(2, 8, 45), tmp_path / "jobs")
    found = as_golden((folder / "file").read_text(), tmp_path)
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(found)
    assert found == (GOLDEN / name).read_text()


def test_every_attempt_has_its_place_in_the_array_and_a_copy_of_the_file(sbatch, tmp_path):
    sbatch()
    made = assignments(tmp_path, 3)
    entries = submit(made, PLATFORM, Shape(2, 8, 45), tmp_path / "jobs")
    assert [(entry.job_id, entry.index, entry.minutes, entry.nodes) for entry in entries] == [
        ("77_0", 0, 45, 2), ("77_1", 1, 45, 2), ("77_2", 2, 45, 2),
    ]  # fmt: skip
    for assignment, entry in zip(made, entries, strict=True):
        assert ledger.read(Path(assignment.attempt_folder)) == entry
        assert f"--job-name={entry.name}" in Path(entry.script).read_text()


def test_a_single_run_is_no_array(sbatch, tmp_path):
    sbatch()
    (entry,) = submit(assignments(tmp_path, 1), PLATFORM, Shape(1, 8, 45), tmp_path / "jobs")
    assert entry.job_id == "77"


@pytest.mark.parametrize(
    ("said", "unanswered"),
    [
        ("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Job violates accounting/QOS policy", False),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", False),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (receive failure)", True),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", True),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping: resource temporarily unavailable", True),
    ],
)
def test_what_slurm_may_take_later_keeps_its_entry_without_a_job(sbatch, tmp_path, said, unanswered):
    sbatch(said, code=1)
    made = assignments(tmp_path, 2)
    with pytest.raises(TryLaterError) as caught:
        submit(made, PLATFORM, Shape(2, 8, 45), tmp_path / "jobs")
    assert caught.value.unanswered == unanswered
    assert [ledger.read(Path(one.attempt_folder)).job_id for one in made] == [None, None]


def test_what_slurm_never_takes_is_one_error(sbatch, tmp_path):
    sbatch("sbatch: error: invalid partition specified: gpu", code=1)
    with pytest.raises(UserError, match=r"platform it: sbatch refuses the job: .*invalid partition"):
        submit(assignments(tmp_path, 1), PLATFORM, Shape(2, 8, 45), tmp_path / "jobs")


def test_sbatch_sees_nothing_of_an_enclosing_job(sbatch, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "7")
    monkeypatch.setenv("SLURM_CONF", "/there")
    folder = sbatch()
    submit(assignments(tmp_path, 1), PLATFORM, Shape(2, 8, 45), tmp_path / "jobs")
    said = (folder / "env").read_text()
    assert "SLURM_NTASKS" not in said
    assert "SLURM_CONF=/there" in said


@pytest.mark.parametrize("content", [b"", b"{", b'{"name": 1}'])
def test_an_entry_that_cannot_be_read_is_none(tmp_path, content):
    ledger.path_of(tmp_path).write_bytes(content)
    assert ledger.read(tmp_path) is None


def test_an_entry_comes_back(tmp_path):
    entry = ledger.Entry(name="n", index=3, job_id=None, submitted_at="2030-01-31T12:00:00", minutes=15, nodes=2)
    ledger.write(tmp_path, entry)
    assert ledger.read(tmp_path) == entry
    assert msgspec.json.decode(ledger.path_of(tmp_path).read_bytes())["job_id"] is None


def test_memory_does_not_grow_with_the_tasks_of_an_array(sbatch, tmp_path):
    """64 jobs of 2,048 tasks: as much as the largest array of the paper study."""
    sbatch()
    many = assignments(tmp_path, 64)
    submit(many[:2], PLATFORM, Shape(2, 8, 45), tmp_path / "jobs")  # what is imported
    tracemalloc.start()
    submit(many, PLATFORM, Shape(256, 8, 45), tmp_path / "jobs")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 5e6
