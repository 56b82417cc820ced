"""What the store of a cluster holds at this moment: attempts that go on, and results by outcome."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from scaling_study.errors import UserError
from scaling_study.spec import AttemptFiles, Progress, RunFiles
from scaling_study.submit.slurm import ledger, nodes
from scaling_study.submit.slurm.commands import Job, Slurm


class OpenAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that was submitted and has not ended, as far as the store knows.

    Attributes:
        state: Slurm's word, with the reason; `unknown` where Slurm does not know the job or does not answer.
        done: iterations or calls so far; `total` of them, 0 before it has begun.
    """

    run_id: str
    attempt: int
    job_id: str | None
    name: str
    state: str
    nodes: str = ""
    done: int = 0
    total: int = 0


class FailingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that runs failed on.

    Attributes:
        last: why, the last time.
        avoided: whether jobs avoid it.
    """

    node: str
    failures: int
    last: str
    avoided: bool


def open_attempts(store_root: Path, slurm: Slurm | None = None) -> list[OpenAttempt]:
    """Attempts that go on, by run id."""
    found = [
        (folder.name, int(attempt.folder.name), entry, attempt)
        for folder in sorted(store_root.glob("*_*"))
        if not RunFiles(folder).result.exists() and (attempt := _latest(RunFiles(folder))) is not None
        if attempt.claim.exists() and not attempt.ended.exists() and (entry := ledger.read(attempt.folder)) is not None
    ]
    jobs = (slurm or Slurm()).queue(entry.name for _, _, entry, _ in found) if found else []
    known = {(job.name, job.index): job for job in jobs or []}
    return [_open(*one, known.get((one[2].name, one[2].index))) for one in found]


def _latest(files: RunFiles) -> AttemptFiles | None:
    numbers = [int(path.name) for path in files.attempts.glob("[0-9][0-9][0-9]*")] if files.attempts.is_dir() else []
    return files.attempt(max(numbers)) if numbers else None


def _open(name: str, number: int, entry: ledger.Entry, attempt: AttemptFiles, job: Job | None) -> OpenAttempt:
    try:
        progress = msgspec.json.decode(attempt.progress.read_bytes(), type=Progress)
    except (OSError, msgspec.DecodeError):
        progress = Progress(done=0, total=0)
    state = "unknown" if job is None else f"{job.word} ({job.detail})" if job.detail else job.word
    return OpenAttempt(
        run_id=name,
        attempt=number,
        job_id=job.job_id if job else entry.job_id,
        name=entry.name,
        state=state,
        nodes=job.nodes if job else "",
        done=progress.done,
        total=progress.total,
    )


class _Outcome(msgspec.Struct):
    outcome: str


def outcomes(store_root: Path) -> dict[str, int]:
    """How many runs have a result, by outcome."""
    counts: Counter[str] = Counter()
    for path in store_root.glob("*_*/result.json"):
        try:
            counts[msgspec.json.decode(path.read_bytes(), type=_Outcome).outcome] += 1
        except (OSError, msgspec.DecodeError):
            counts["damaged"] += 1
    return dict(sorted(counts.items()))


def failing_nodes(store_root: Path, exclude_after: int) -> list[FailingNode]:
    """Nodes that runs failed on, by name.

    Args:
        exclude_after: failures after which jobs avoid a node.
    """
    avoided = set(nodes.avoided(store_root, exclude_after))
    return [
        FailingNode(
            node=name, failures=len(blames), last=max(blames, key=lambda one: one.at).why, avoided=name in avoided
        )
        for name, blames in nodes.blamed(store_root).items()
    ]


def cancel(store_root: Path, run_ids: tuple[str, ...], slurm: Slurm | None = None) -> list[OpenAttempt]:
    """Ask Slurm to end the jobs of runs, or of all that go on; the attempts whose job Slurm was asked to end.

    Raises:
        UserError: a run has no job that goes on, or Slurm does not take the request.
    """
    commands = slurm or Slurm()
    going = {one.run_id: one for one in open_attempts(store_root, commands)}
    if unknown := sorted(set(run_ids) - set(going)):
        raise UserError(
            f"no job of {unknown[0]} goes on",
            where=str(store_root),
            remedy="`scaling-study status` lists those that do.",
        )
    chosen = [one for name, one in going.items() if not run_ids or name in run_ids]
    known = [one for one in chosen if one.job_id]
    ids = [str(one.job_id) for one in known]
    if ids and not commands.cancel(ids):
        raise UserError("scancel failed", where=", ".join(ids), remedy="Try again, or cancel them by hand.")
    return known
