"""A private Slurm for all tests of this folder, and the scenario study on it."""

from __future__ import annotations

import atexit
import functools
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import polars as pl
import pytest

from scaling_study.spec import Config, TrainingRun, expand, run_id
from scaling_study.submit.slurm.nodes import blamed
from tests.slurm.cluster import missing, private_cluster

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "tests/workflow/scenario/config"
PLATFORM = """
title: a private Slurm of four nodes
executor: slurm
hardware: cpu
first_iteration_limit_s: 60
iteration_limit_s: 20
run_limit_s: 120
slurm:
  partition: main
  nodes: 4
  nodes_at_once: 4
  tasks_per_node: 1
  memory_gib_per_node: 1
  least_minutes: 1
  most_minutes: 10
  start_up_minutes: 1
  poll_s: 0.5
  unknown_s: 10
  environment: {GLOO_SOCKET_IFNAME: lo}
"""


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.slurm)
    items.sort(key=lambda item: item.path.stem != "test_mini")  # the longest first, where several workers share them


@pytest.fixture(scope="session")
def cluster():
    if reason := missing():
        pytest.skip(reason)
    with private_cluster() as made:
        yield made


@functools.cache
def prepared(config_folder, study_name):
    """The folder of a study's data, prepared once for all tests."""
    config, folder = Config(config_folder), Path(tempfile.mkdtemp(prefix="scaling-study-data-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    study = config.study(study_name)
    runs = [run for sweep in study.sweeps for run in expand(study, sweep, config.catalogue)]
    verb = [sys.executable, "-m", "scaling_study.cli", "--config", str(config_folder), "prepare"]
    for data in sorted({run.protocol.data for run in runs if isinstance(run, TrainingRun)}):
        subprocess.run([*verb, data, "--results", str(folder)], check=True, capture_output=True)
    return folder / "data"


class Study:
    """A checkout's worth of the scenario study, and drivers of it."""

    def __init__(self, cluster, folder, config=SCENARIO, name="scenario"):
        self.cluster, self.folder, self.name = cluster, folder, name
        self.config = folder / "config"
        shutil.copytree(config, self.config)
        self.platform()
        self.drivers = []
        shutil.copytree(prepared(config, name), self.results / "data")

    def platform(self, **changes):
        """(Re)write the platform's file; `changes` are of its `slurm` settings."""
        text = PLATFORM
        for name, value in changes.items():
            lines = [line for line in text.splitlines() if line.strip().partition(":")[0] != name]
            top = name in ("attempts", "first_iteration_limit_s", "iteration_limit_s", "run_limit_s")
            lines.insert(2 if top else len(lines), f"{'' if top else '  '}{name}: {value}")
            text = "\n".join(lines) + "\n"
        (self.config / "platforms/cluster.yaml").write_text(text)

    def command(self, *arguments):
        return [sys.executable, "-m", "scaling_study.cli", "--config", str(self.config), *arguments]

    @property
    def results(self):
        return self.folder / "results"

    def output(self, sweep):
        return self.results / f"{self.name}/cluster/{sweep}.parquet"

    def start(self, sweep="data_parallel"):
        """A driver in the background; its words go to a file."""
        output = str(self.output(sweep))
        return self.start_verb("measure", self.name, sweep, "--platform", "cluster", "--output", output)

    def start_verb(self, *arguments):
        """A verb in the background."""
        log = self.folder / f"driver-{len(self.drivers)}.log"
        with log.open("w") as file:
            driver = subprocess.Popen(
                self.command(*arguments, "--results", str(self.results)),
                env=self.cluster.environment, stdout=file, stderr=subprocess.STDOUT, cwd=self.folder,
            )  # fmt: skip
        self.drivers.append((driver, log))
        return driver

    def finish(self, driver, timeout_s=180):
        """The exit code of a driver and what it said."""
        code = driver.wait(timeout_s)
        return code, next(log for one, log in self.drivers if one is driver).read_text()

    def measure(self, sweep="data_parallel"):
        return self.finish(self.start(sweep))

    def kill(self, driver, how=signal.SIGKILL):
        driver.send_signal(how)
        driver.wait(30)

    # -- what there is ------------------------------------------------------------------------------------------

    def run_ids(self, sweep="data_parallel"):
        config = Config(self.config)
        return [run_id(run) for run in expand(config.study(self.name), sweep, config.catalogue)]

    def store(self, name):
        return self.results / "store/cluster" / name

    def attempts(self, name):
        return sorted((self.store(name) / "attempts").glob("[0-9]*"))

    def entries(self, name):
        """The ledger of every attempt at a run that was submitted."""
        paths = [attempt / "job.json" for attempt in self.attempts(name)]
        return [msgspec.json.decode(path.read_bytes()) for path in paths if path.exists()]

    def records(self, sweep="data_parallel"):
        return pl.read_parquet(self.output(sweep))

    def jobs(self):
        """Names and states of all jobs of this study that Slurm knows, pending and running first."""
        runs = [path.name for path in (self.results / "store/cluster").glob("*_*")]
        names = {entry["name"] for run in runs for entry in self.entries(run)}
        lines = self.cluster.run("squeue", "--array", "-h", "--states=all", "-o", "%j|%i|%T").splitlines()
        return [line.split("|") for line in lines if line.split("|")[0] in names]

    def blames(self):
        """The failures of nodes that were written down, by node."""
        return blamed(self.results / "store/cluster")

    def nodes_of(self, name, attempt=0):
        """The nodes of an attempt's job, in Slurm's notation."""
        job_id = self.entries(name)[attempt]["job_id"]
        return self.cluster.run("squeue", "-h", "--states=all", "-j", job_id, "-o", "%N").strip()

    def alive(self):
        return [job for job in self.jobs() if job[2] in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING")]

    def until(self, holds, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while not (found := holds()):
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {self.jobs()}"
            time.sleep(0.1)
        return found

    def end(self):
        """Leave no driver and no job."""
        for driver, _ in self.drivers:
            if driver.poll() is None:
                driver.kill()
        for _, job_id, _ in self.alive() if (self.results / "store/cluster").exists() else []:
            self.cluster.run("scancel", job_id, check=False)

    def until_running(self, name, attempt=-1):
        """Wait until a run is at its iterations."""
        self.until(lambda: self.attempts(name) and (self.attempts(name)[attempt] / "progress.json").exists(), 120)
        return self.entries(name)[attempt]


@pytest.fixture
def study(cluster, tmp_path):
    made = Study(cluster, tmp_path)
    yield made
    made.end()
