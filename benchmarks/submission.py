"""Submitting to Slurm: 300 runs of the paper study by our driver and by plain submitit, on a Slurm of 256 nodes.

The Slurm is a private one with all its daemons on this machine. Its partition takes jobs and starts none, so only
submission is timed: from the start of a process to the last answer of sbatch. Commands are counted by what stands
before Slurm's own in the PATH. A submitter's jobs are cancelled before the next one starts.
"""

from __future__ import annotations

import collections
import signal
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import msgspec
from tests.slurm.cluster import Cluster, missing, private_cluster

from benchmarks.lines import Line, limited
from benchmarks.ratios import paired_ratio, spread
from benchmarks.submitters import RUNS, Report, platform, shapes
from scaling_study.submit.slurm.request import settings_of

PEAK_LIMIT_MB = 150.0
NODES = 256
_COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo")
#: Looks at its jobs that our driver takes before it is interrupted: what a driver does for the rest of its life.
_LOOKS = 3
_LIMIT_S = 300.0


class Submission(msgspec.Struct, frozen=True):
    """What one submitter did.

    Attributes:
        seconds: from the start of its process to the last answer of sbatch.
        commands: of Slurm that it called until then and, if it is our driver, in its first looks.
        report: what it says of itself.
    """

    seconds: float
    commands: dict[str, int]
    report: Report


def run(rounds: int) -> list[Line]:
    """A line for each peer, one on commands, one on memory; a single one that says why where there can be no Slurm."""
    what = f"{RUNS} runs submitted to Slurm, {NODES} nodes"
    if reason := missing():
        return [Line(benchmark="submission", what=what, unit="s", reason=f"left out: {reason}")]
    asked = settings_of(platform())
    partitions = (
        f"PartitionName={asked.partition} Nodes=ALL MaxTime={asked.most_minutes} State=DOWN",
        "PartitionName=main Nodes=ssn1 Default=YES State=UP",
    )
    with private_cluster(nodes=NODES, cpus=8 * asked.cpus_per_task, partitions=partitions) as cluster:
        measured = [
            {name: _submit(name, cluster) for name in ("driver", "jobs", "arrays")} for _ in range(max(1, rounds // 2))
        ]
    return _lines(what, measured)


def _submit(name: str, cluster: Cluster) -> Submission:
    with tempfile.TemporaryDirectory(dir=cluster.root) as root:
        folder = Path(root)
        environment = {**cluster.environment, "PATH": f"{_counting(folder)}:{cluster.environment['PATH']}"}
        command = [sys.executable, "-m", "benchmarks.submitters", name, str(folder)]
        started_s = time.time()
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            if name == "driver":
                _wait_for_looks(process, folder)
                process.send_signal(signal.SIGINT)
            process.wait(_LIMIT_S)
        finally:
            process.kill()
        if process.returncode:
            raise RuntimeError(f"{name}: {(folder / 'log').read_text()}")
        answers = [float(line.split()[1]) for line in _lines_of(folder) if line.startswith("sbatch ")]
        known = cluster.run("squeue", "--array", "--noheader", "--format=%i").split()
        if len(known) != RUNS:
            raise RuntimeError(f"{name}: {len(known)} of {RUNS} jobs are known to Slurm")
        cluster.run("scancel", "--partition", settings_of(platform()).partition)
        report = msgspec.json.decode((folder / "report.json").read_bytes(), type=Report)
        return Submission(max(answers) - started_s, dict(_commands(folder)), report)


def _wait_for_looks(process: subprocess.Popen, folder: Path) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while _commands(folder)["squeue"] < _LOOKS and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)


def _counting(folder: Path) -> Path:
    """A folder of commands that note when they have answered, and are Slurm's otherwise."""
    commands = folder / "bin"
    commands.mkdir()
    for name in _COMMANDS:
        path = commands / name
        path.write_text(
            f'#!/bin/bash\nPATH=${{PATH#*:}} {name} "$@"\ncode=$?\necho {name} $EPOCHREALTIME >> {folder}/commands\n'
            "exit $code\n"
        )
        path.chmod(0o755)
    return commands


def _lines_of(folder: Path) -> list[str]:
    path = folder / "commands"
    return path.read_text().splitlines() if path.exists() else []


def _commands(folder: Path) -> collections.Counter[str]:
    return collections.Counter(line.split()[0] for line in _lines_of(folder))


def _lines(what: str, measured: list[dict[str, Submission]]) -> list[Line]:
    """Of all rounds."""
    ours = [one["driver"] for one in measured]
    if any(one.report.torch for one in ours):
        raise RuntimeError("the driver has imported torch")
    submitit = f"submitit {metadata.version('submitit')}"
    peers = {"jobs": f"{submitit}, a job a run", "arrays": f"{submitit}, an array a shape"}
    lines = [
        Line(
            benchmark="submission",
            what=what,
            unit="s",
            ours=spread([one.seconds for one in ours]),
            peer=peer,
            theirs=spread([one[name].seconds for one in measured]),
            ratio=paired_ratio([[(one[name].seconds, one["driver"].seconds)] for one in measured]),
            reason="no claim, no ledger, nobody watches the jobs" if name == "arrays" else "",
        )
        for name, peer in peers.items()
    ]
    said = ", ".join(f"{count} {name}" for name, count in sorted(ours[0].commands.items()))
    counts = [float(sum(one.commands.values())) for one in ours]
    theirs = [float(sum(one["jobs"].commands.values())) for one in measured]
    lines.append(
        Line(
            benchmark="submission",
            what=f"commands of Slurm, the first {_LOOKS} looks at the jobs included",
            unit="calls",
            ours=spread(counts),
            peer=peers["jobs"],
            theirs=spread(theirs),
            ratio=paired_ratio([list(zip(theirs, counts, strict=True))]),
            reason=f"{len(shapes())} shapes; the driver calls {said}; submitit has not looked at its jobs yet",
        )
    )
    peaks_mb = [one.report.peak_bytes / 1e6 for one in ours]
    lines.append(limited("submission", "peak memory of the driver, without torch", "MB", PEAK_LIMIT_MB, peaks_mb))
    return lines
