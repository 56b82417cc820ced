"""What Slurm's words for a job's state mean for a run: whether the job still goes on, and why it ended.

Every state of Slurm's documentation (squeue, "JOB STATE CODES"; sacct, likewise; 22.05 to 24.11) has its entry; a word
that is none of them is `UNKNOWN`, which is waited out and then counts as gone. A state says why a job ended; how long
it ran says nothing.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """Whether a job may still do something."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Cause(StrEnum):
    """Why a job ended.

    `INFRASTRUCTURE`: preemption, nodes, reservations, federation; the run is not to blame, and is submitted again.
    """

    DONE = "done"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    INFRASTRUCTURE = "infrastructure"


class State(msgspec.Struct, frozen=True):
    """What a word means; `cause` is None unless the job has ended."""

    phase: Phase
    cause: Cause | None = None


_WAITING, _RUNNING = State(Phase.WAITING), State(Phase.RUNNING)
_LOST = State(Phase.ENDED, Cause.INFRASTRUCTURE)
UNKNOWN = State(Phase.UNKNOWN)

STATES: dict[str, State] = {
    "BOOT_FAIL": _LOST,
    "CANCELLED": State(Phase.ENDED, Cause.CANCELLED),
    "COMPLETED": State(Phase.ENDED, Cause.DONE),
    "COMPLETING": _RUNNING,
    "CONFIGURING": _WAITING,
    "DEADLINE": State(Phase.ENDED, Cause.TIME_LIMIT),
    "FAILED": State(Phase.ENDED, Cause.FAILED),
    "LAUNCH_FAILED": _LOST,
    "NODE_FAIL": _LOST,
    "OUT_OF_MEMORY": State(Phase.ENDED, Cause.OUT_OF_MEMORY),
    "PENDING": _WAITING,
    "POWER_UP_NODE": _WAITING,
    "PREEMPTED": _LOST,
    "RECONFIG_FAIL": _LOST,
    "REQUEUED": _WAITING,
    "REQUEUE_FED": _WAITING,
    "REQUEUE_HOLD": _WAITING,
    "RESIZING": _RUNNING,
    "RESV_DEL_HOLD": _WAITING,
    "REVOKED": _LOST,
    "RUNNING": _RUNNING,
    "SIGNALING": _RUNNING,
    "SPECIAL_EXIT": _WAITING,
    "STAGE_OUT": _RUNNING,
    "STOPPED": _RUNNING,
    "SUSPENDED": _RUNNING,
    "TIMEOUT": State(Phase.ENDED, Cause.TIME_LIMIT),
    "UPDATE_DB": _RUNNING,
}

#: Words for the failure of a node.
NODE_WORDS = frozenset({"BOOT_FAIL", "LAUNCH_FAILED", "NODE_FAIL"})


def state_of(word: str) -> State:
    """The state that a word of squeue or sacct stands for, `CANCELLED by 1000` and `CANCELLED+` included."""
    first = word.strip().split(" ")[0].rstrip("+").upper() if word.strip() else ""
    return STATES.get(first, UNKNOWN)
