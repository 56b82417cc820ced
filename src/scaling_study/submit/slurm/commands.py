"""Slurm's commands: one batched query, each optional; what is not known now is None, and never an error.

Nothing that an enclosing job has put into the environment reaches a command, or a driver that runs inside a job would
hand its own core binding, node count or job name on to every run. Only `SLURM_CONF`, which says where Slurm is, stays.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from scaling_study.submit.slurm.states import State, state_of

_LIMIT_S = 60.0
_KEPT = ("SLURM_CONF",)
_SCRUBBED = ("SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_")
_QUEUE_FORMAT = "%j|%i|%T|%r|%N"
_LOST = "down,fail,no_respond"
_ACCOUNTING_FORMAT = "JobName,JobID,State,ExitCode,NodeList"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What Slurm says of one job or one task of an array.

    Attributes:
        name: under which it was submitted.
        job_id: `12`, or `12_3` in an array.
        word: its state, in Slurm's word.
        detail: squeue's reason or sacct's exit code.
        nodes: in Slurm's notation; empty before it runs.
    """

    name: str
    job_id: str
    word: str
    detail: str = ""
    nodes: str = ""

    @property
    def state(self) -> State:
        """What the word means."""
        return state_of(self.word)

    @property
    def index(self) -> int:
        """Place in its array; 0 for a job of its own."""
        _, _, index = self.job_id.partition("_")
        return int(index) if index.isdecimal() else 0


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what an enclosing job has put there."""
    return {k: v for k, v in environment.items() if k in _KEPT or not k.startswith(_SCRUBBED)}


@contextlib.contextmanager
def scrubbed_environment() -> Iterator[None]:
    """The environment of this process, scrubbed meanwhile: submitit calls sbatch with it."""
    saved = dict(os.environ)
    kept = scrubbed(saved)
    for name in set(saved) - set(kept):
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(saved)


class Slurm:
    """The commands of the cluster, counted."""

    def __init__(self) -> None:
        self.calls = 0

    def queue(self, names: Iterable[str]) -> list[Job] | None:
        """Jobs with these names that Slurm's controller still knows; None while it does not answer."""
        wanted = ",".join(sorted(set(names)))
        command = ["squeue", "--array", "--noheader", "--states=all", f"--name={wanted}", f"--format={_QUEUE_FORMAT}"]
        said = self._run(command)
        return None if said is None else [_queued(line) for line in said.splitlines() if line.count("|") >= 4]

    def accounting(self, names: Iterable[str], since: str) -> list[Job] | None:
        """The same of those that its data base knows; None without accounting.

        Args:
            since: when the first of them was submitted, `2030-01-31T12:00:00`, local time.
        """
        command = ["sacct", "--allocations", "--noheader", "--parsable2", f"--name={','.join(sorted(set(names)))}"]
        said = self._run([*command, f"--starttime={since}", f"--format={_ACCOUNTING_FORMAT}"])
        if said is None:
            return None
        return [job for line in said.splitlines() if line.count("|") >= 4 for job in _accounted(line)]

    def lost_of(self, nodes: str) -> list[str]:
        """Those of some nodes that Slurm holds for down or failing; none while it does not answer.

        Args:
            nodes: in Slurm's notation.
        """
        said = self._run(["sinfo", "--noheader", "--Node", f"--nodes={nodes}", f"--states={_LOST}", "--format=%N"])
        return sorted(set(said.split())) if said else []

    def cancel(self, job_ids: Sequence[str]) -> bool:
        """Ask Slurm to end jobs; whether it took the request."""
        return not job_ids or self._run(["scancel", *job_ids]) is not None

    def _run(self, command: list[str]) -> str | None:
        self.calls += 1
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LIMIT_S, env=scrubbed(os.environ), check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None


def _queued(line: str) -> Job:
    name, job_id, word, reason, nodes = line.split("|", 4)
    return Job(name=name, job_id=job_id, word=word, detail="" if reason == "None" else reason, nodes=nodes)


def _accounted(line: str) -> list[Job]:
    """The jobs of a line: tasks of an array that wait share one."""
    name, job_id, word, code, nodes = line.split("|", 4)
    known = nodes if nodes != "None assigned" else ""
    ids = _expanded(job_id)
    return [Job(name=name, job_id=one, word=word, detail=f"exit code {code}", nodes=known) for one in ids]


def _expanded(job_id: str) -> list[str]:
    """`12_[0-2,5%4]` as `12_0`, `12_1`, `12_2`, `12_5`; another as it is."""
    array, bracket, rest = job_id.partition("_[")
    if not bracket:
        return [job_id]
    found = []
    for part in rest.rstrip("]").partition("%")[0].split(","):
        first, _, last = part.partition("-")
        found += [f"{array}_{index}" for index in range(int(first), int(last or first) + 1)]
    return found
