"""A checkout of the scenario study in a folder of its own, and real Snakemake on it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from scaling_study.records import read_records
from scaling_study.spec import Config, expand, run_id

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


class Checkout:
    """A copy of the workflow with the scenario's configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(ROOT / "Snakefile", folder / "Snakefile")
        shutil.copytree(ROOT / "workflow", folder / "workflow")
        shutil.copytree(Path(__file__).parent / "scenario" / "config", folder / "config")
        self.environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        self.environment.pop("SCALING_STUDY_OWNER_PID", None)

    def command(self, *arguments: str, profile: str = "default", studies: str = "scenario") -> list[str]:
        options = ["--profile", f"workflow/profiles/{profile}"]
        source = "cached" if profile == "cached" else "measure"
        return [str(BIN / "snakemake"), *options, "--config", f"source={source}", f"studies={studies}", *arguments]

    def start(self, *arguments: str, owned: bool = False) -> subprocess.Popen:
        """Start Snakemake in a session of its own; `owned`: by a shell that stands for make."""
        command = self.command(*arguments)
        if owned:
            command = ["bash", "-c", 'SCALING_STUDY_OWNER_PID=$$ "$@" & wait', "make", *command]
        log = (self.folder / "snakemake.log").open("ab")
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )

    def run(self, *arguments: str, **options: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*arguments, **options),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def run_ids(self, sweep: str) -> list[str]:
        config = Config(self.folder / "config")
        return [run_id(run) for run in expand(config.study("scenario"), sweep, config.catalogue)]

    def records(self, sweep: str):
        return read_records(self.folder / f"results/scenario/local/{sweep}.parquet")

    def store(self, name: str) -> Path:
        return self.folder / "results/store/local" / name

    def results(self) -> dict[str, dict]:
        paths = (self.folder / "results/store/local").glob("*/result.json")
        return {path.parent.name: json.loads(path.read_text()) for path in paths}

    def processes(self) -> list[psutil.Process]:
        """Every process that works in this checkout."""
        found = []
        for process in psutil.process_iter():
            try:
                if Path(process.cwd()) == self.folder and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def find(self, kind: str) -> psutil.Process:
        """A process of the checkout: `snakemake`, `driver` or `rank`."""
        marks = {"snakemake": "bin/snakemake", "driver": "bin/scaling-study", "rank": "multiprocessing.forkserver"}
        for process in self.processes():
            try:
                line = process.cmdline()
                parent = process.parent().cmdline() if kind == "rank" else line  # ranks look like their server
            except (psutil.Error, AttributeError):
                continue
            if all(any(marks[kind] in part for part in one) for one in (line, parent)) and "bash" not in line[0]:
                return process
        raise AssertionError(f"no {kind} among {[p.name() for p in self.processes()]}")

    def wait_for(self, condition, what: str, timeout_s: float = 60.0):
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.05)
        log = self.folder / "snakemake.log"
        raise AssertionError(f"{what} did not happen\n{log.read_text() if log.exists() else ''}")

    def wait_until_empty(self, timeout_s: float = 15.0) -> None:
        self.wait_for(lambda: not self.processes(), "the end of every process", timeout_s)


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    made = Checkout(folder.resolve())
    yield made
    for process in made.processes():
        process.send_signal(signal.SIGKILL)
