"""How the tasks of a job ended, as srun says in the job's log: it alone names rank and node of one that was killed.

Its words are those of `src/srun` in Slurm 22.05 to 24.11, such as `srun: error: node7: tasks 3,5-6: Killed`.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from scaling_study.spec import AttemptFiles, FailureKind, RankFailure
from scaling_study.submit.verdict import log_tail

_NODES = r"(?P<nodes>[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]*?)"
_TASKS = re.compile(rf"^srun: error: {_NODES}: tasks? (?P<ranks>\d[\d,-]*): (?P<how>.+)$", re.MULTILINE)
_NODE = re.compile(rf"^srun: error: Node failure on {_NODES}\.?$", re.MULTILINE)
_CONSEQUENCES = re.compile(r"^srun: (?:launch/slurm: _step_signal: Terminating|Force Terminated) ", re.MULTILINE)
_FROM_OUTSIDE = ("Killed", "Terminated", "Interrupt", "Hangup")
_MEMORY = ("Out Of Memory",)


class TaskEnd(msgspec.Struct, frozen=True):
    """A task that ended badly, and on which node."""

    rank: int
    node: str
    how: str


def first_ends(log: str) -> list[TaskEnd]:
    """The tasks that ended badly before srun ended the others.

    Args:
        log: what srun said.
    """
    return [
        TaskEnd(rank, match["nodes"], match["how"].strip())
        for match in _TASKS.finditer(_causes(log))
        for rank in _ranks(match["ranks"])
    ]


def failed_nodes(log: str) -> list[str]:
    """Nodes that Slurm lost while the job ran."""
    return sorted({match["nodes"] for match in _NODE.finditer(log)})


def _causes(log: str) -> str:
    """What srun said until it ended the other tasks; all of it if the first line is that already."""
    end = _CONSEQUENCES.search(log)
    return log[: end.start()] if end and _TASKS.search(log[: end.start()]) else log


def _ranks(text: str) -> list[int]:
    """`3,5-6` as 3, 5, 6."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def failures_of_tasks(log: str, files: AttemptFiles) -> list[RankFailure]:
    """The same as failures of ranks, with what each printed last."""
    return [
        RankFailure(
            rank=end.rank,
            host=end.node,
            kind=_kind(end.how),
            message=f"its process ended: {end.how}",
            traceback=log_tail(files, end.rank),
            at_ns=0,
        )
        for end in first_ends(log)
    ]


def _kind(how: str) -> FailureKind:
    if how in _MEMORY:
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.KILLED if how in _FROM_OUTSIDE else FailureKind.ERROR


def read_log(path: Path) -> str:
    """What a job printed; empty where it did not."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
