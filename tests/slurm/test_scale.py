"""At full size: every run of the paper study as sbatch would get it, and a job of 2,048 tasks on 256 nodes.

The nodes are 512 slurmds on this machine, as many as the largest jobs of the study have. They have the partitions,
account and QOS of the example platforms, each partition as many nodes as the platform says that a job may have.
"""

import collections
import json
import os
import shlex
import sys
import time
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from scaling_study.errors import UserError
from scaling_study.spec import (
    Assignment,
    AttemptFiles,
    Config,
    Outcome,
    RunFiles,
    can_measure,
    expand,
    ranks_of,
    run_id,
)
from scaling_study.submit import RunStore, SlurmDriver
from scaling_study.submit.expected import expected_seconds
from scaling_study.submit.slurm import ledger
from scaling_study.submit.slurm.commands import Slurm
from scaling_study.submit.slurm.request import Shape, settings_of, shape_of
from scaling_study.submit.slurm.states import Phase
from scaling_study.submit.slurm.submission import submit
from tests.slurm import probe
from tests.slurm.cluster import missing, private_cluster
from tests.slurm.conftest import ROOT

pytestmark = pytest.mark.alone  # thousands of processes leave nothing of two cores to others

CONFIG = Config(ROOT / "config")
PLATFORMS = [CONFIG.platform(path.stem) for path in sorted((ROOT / "config/platforms").glob("slurm-*.yaml"))]
H100 = CONFIG.platform("slurm-h100")
NODES, EACH = 256, 8
(LARGE,) = (run for run in expand(CONFIG.study("paper"), "data_parallel", CONFIG.catalogue) if run.nodes == NODES)
#: What an interactive job leaves in the environment of a driver that is started inside of it.
PLANTED = {
    "SLURM_NTASKS": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_NODELIST": "elsewhere[1-3]", "SLURM_PROCID": "5",
    "SLURM_CPU_BIND": "mask_cpu:0x1", "SLURM_MEM_PER_CPU": "1", "SLURM_PLANTED": "1", "SLURM_EXPORT_ENV": "NONE",
    "SBATCH_PARTITION": "nowhere", "SBATCH_PLANTED": "1", "SRUN_CPUS_PER_TASK": "3",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    if reason := missing():
        pytest.skip(reason)
    asked = [settings_of(platform) for platform in PLATFORMS]
    partitions = [
        f"PartitionName={one.partition} Nodes=ssn[1-{one.nodes}] MaxNodes={one.nodes} MaxTime={one.most_minutes} "
        f"AllowAccounts={one.account} AllowQos={one.qos} State=UP"
        for one in asked
    ]
    default = "PartitionName=main Nodes=ssn1 Default=YES State=UP"
    cpus = max(one.cpus_per_task for one in asked) * EACH
    with private_cluster(nodes=max(one.nodes for one in asked), cpus=cpus, partitions=[*partitions, default]) as made:
        yield made


@pytest.fixture
def slurm(cluster, monkeypatch):
    """The private Slurm as the one that this process finds."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, cluster.environment[name])
    return cluster


@pytest.fixture
def passed(slurm, tmp_path, monkeypatch):
    """sbatch only tests what it is given; the file of those that passed, a line each."""
    lines, folder = tmp_path / "passed", tmp_path / "bin"
    folder.mkdir()
    lines.touch()
    sbatch = folder / "sbatch"
    sbatch.write_text(
        "#!/bin/bash\n"
        f'said=$(PATH=${{PATH#*:}} sbatch --test-only "$1" 2>&1) || {{ echo "$said" >&2; exit 1; }}\n'
        f'echo "$said" >> {lines}\n'
        f'echo "Submitted batch job $(wc -l < {lines})"\n'
    )
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lines


# -- every run of the study ---------------------------------------------------------------------------------------


def sweeps_of(platform):
    """The runs of the study that a platform measures, sweep by sweep."""
    study = CONFIG.study("paper")
    sweeps = [expand(study, name, CONFIG.catalogue) for name, sweep in study.sweeps.items() if sweep.status == "ready"]
    hardware = CONFIG.catalogue.hardware[platform.hardware]
    own = [[run for run in runs if can_measure(run, hardware)] for runs in sweeps]
    return [runs for runs in own if runs]


class Hurried:
    """A clock on which a driver that begins to wait is interrupted."""

    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def sleep(_):
        raise KeyboardInterrupt


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.name)
def test_slurm_would_take_every_run_as_the_driver_submits_it(platform, passed, tmp_path, monkeypatch):
    monkeypatch.setattr("scaling_study.submit.slurm.driver.time", Hurried)
    store, submitted = RunStore(tmp_path / "store"), {}
    for runs in sweeps_of(platform):
        expected_s = expected_seconds(runs, CONFIG.catalogue, CONFIG.root)
        driver = SlurmDriver(platform, CONFIG.catalogue, store, tmp_path / "data", mock.Mock(), expected_s)
        driver.check(runs)
        with pytest.raises(KeyboardInterrupt):
            driver.measure(runs)
        submitted |= {run_id(run): run for run in runs}
    names = set()
    for run in submitted.values():
        hardware, files = CONFIG.catalogue.hardware[run.hardware], store.files(run).attempt(1)
        entry = ledger.read(files.folder)
        if entry is None:  # what can fit no memory costs no job
            assert store.result(run).outcome is Outcome.INFEASIBLE, run_id(run)
            continue
        assert entry.job_id is not None, run_id(run)
        script = (files.folder / "submission.sh").read_text()
        assert f"#SBATCH --nodes={ranks_of(run, hardware) // EACH}\n" in script
        assert f"#SBATCH --ntasks-per-node={EACH}\n" in script
        assert f"#SBATCH --gpus-per-node={EACH}\n" in script
        assert f"#SBATCH --account={settings_of(platform).account}\n" in script
        names.add(entry.name)
    said = passed.read_text().splitlines()
    assert len(said) == len(names)  # each file for sbatch was tested once
    assert all(f"in partition {settings_of(platform).partition}" in line for line in said)


@pytest.mark.parametrize(
    ("changes", "shape", "reason"),
    [
        ({"account": "nobody"}, Shape(1, EACH, 15), "Invalid account"),
        ({"qos": "gold"}, Shape(1, EACH, 15), "Invalid qos"),
        ({"partition": "h200"}, Shape(1, EACH, 15), "invalid partition"),
        ({"constraint": "ib"}, Shape(1, EACH, 15), "Invalid feature"),
        ({}, Shape(513, EACH, 15), "More processors requested than permitted"),
        ({}, Shape(1, EACH + 1, 15), "Requested node configuration is not available"),
        ({}, Shape(1, EACH, 10_000), "time limit"),
    ],
    ids=["account", "qos", "partition", "constraint", "nodes", "tasks", "time"],
)
def test_slurm_would_refuse_what_a_platform_does_not_have(changes, shape, reason, passed, tmp_path):
    changed = msgspec.structs.replace(H100, slurm=msgspec.structs.replace(settings_of(H100), **changes))
    with pytest.raises(UserError, match=f"(?i){reason}"):
        submit([assignment_of(LARGE, tmp_path)], changed, shape, tmp_path / "jobs")


def assignment_of(run, folder):
    attempt = RunFiles(folder / run_id(run)).attempt(1)
    attempt.folder.mkdir(parents=True)
    return Assignment(
        run=run, model=CONFIG.catalogue.models[run.model], ranks=run.ranks,
        run_folder=str(folder / run_id(run)), attempt_folder=str(attempt.folder), attempt=1, data_folder="",
        code_version="v", threads_per_rank=1,
    )  # fmt: skip


# -- 2,048 ranks at once ------------------------------------------------------------------------------------------


def test_2048_tasks_on_256_nodes_find_their_places_and_each_other(slurm, tmp_path, monkeypatch):
    assignment, shape = assignment_of(LARGE, tmp_path), shape_of(LARGE, H100, CONFIG.catalogue.hardware["h100"], 60.0)
    attempt = AttemptFiles(Path(assignment.attempt_folder))
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PROBE", json.dumps({"folder": str(attempt.folder), "limit_s": 360}))
    monkeypatch.setattr(sys, "executable", interpreter(tmp_path))
    (entry,) = submit([assignment], H100, shape, tmp_path / "jobs")
    assert until_it_ends(entry.name) == "COMPLETED"

    reports = json.loads((attempt.folder / "reports.json").read_bytes())
    places = [Place(report) for report in reports]
    assert sorted(place.rank for place in places) == list(range(NODES * EACH))
    assert {place.ranks for place in places} == {NODES * EACH}
    (nodes,) = {place.nodes for place in places}  # every rank has the same list
    assert list(nodes) == sorted(set(nodes), key=lambda name: int(name.removeprefix("ssn")))
    assert len(nodes) == NODES
    locals_of = collections.defaultdict(list)
    for place in sorted(places, key=lambda place: place.rank):
        locals_of[place.node].append(place.local_rank)
        assert nodes[place.rank // EACH] == place.node
    assert locals_of == {node: list(range(EACH)) for node in nodes}

    meeting = json.loads(attempt.rendezvous.read_bytes())
    assert {(report["host"], report["port"]) for report in reports} == {(meeting["host"], meeting["port"])}
    assert meeting["host"] == nodes[0]

    command = ["-u", "-m", "submitit.core._submit", str(tmp_path / "jobs" / entry.name)]
    assert {tuple(report["arguments"]) for report in reports} == {tuple(command)}
    for report in reports:
        environment = report["environment"]
        assert {name for name, value in PLANTED.items() if environment.get(name) == value} <= {"SLURM_PROCID"}
        assert "SLURM_PLANTED" not in environment
        assert "SBATCH_PLANTED" not in environment
        assert environment["SLURM_JOB_NAME"] == entry.name
        assert settings_of(H100).environment.items() <= environment.items()


class Place:
    """Where a rank is, as `start_rank` asks submitit for it."""

    def __init__(self, report):
        from submitit import JobEnvironment

        with mock.patch.dict(os.environ, report["environment"], clear=True):
            job = JobEnvironment()
            self.rank, self.local_rank, self.ranks = job.global_rank, job.local_rank, job.num_tasks
            self.nodes = tuple(job.hostnames)
        self.node = report["environment"]["SLURMD_NODENAME"]


def interpreter(folder):
    """The probe as a program that is called as Python is; as light as Python can be."""
    path = folder / "probe"
    path.write_text(f"#!{shlex.quote(sys.executable)} -IS\n{Path(probe.__file__).read_text()}")
    path.chmod(0o755)
    return str(path)


def until_it_ends(name, limit_s=400):
    """The last word of Slurm on a job."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        jobs = Slurm().queue([name])
        if jobs and jobs[0].state.phase is Phase.ENDED:
            return jobs[0].word
        time.sleep(1)
    return f"not within {limit_s} s: {jobs}"
