"""How an attempt ended, from what its ranks left: the cause is told from its consequences on other ranks."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec

from scaling_study.processes import is_alive
from scaling_study.spec import (
    Assignment,
    AttemptFiles,
    FailureKind,
    Outcome,
    ProcessIdentity,
    RankFailure,
    RunResult,
)

_LOG_LINES = 8
_OUTCOMES = {FailureKind.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY, FailureKind.STALLED: Outcome.TIMEOUT}
_SIGNALS_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SERVER_GONE = 255  # multiprocessing's exit code of a process whose server ended first


def failures(
    files: AttemptFiles, ranks: int, exit_codes: Mapping[int, int] = MappingProxyType({})
) -> list[RankFailure]:
    """What ranks reported of their end, and ranks that are gone without a word.

    Args:
        files: of the attempt.
        ranks: how many it has.
        exit_codes: of the ranks whose process is known to have ended.
    """
    found: list[RankFailure] = []
    for rank in range(ranks):
        process, code = process_of(files, rank), exit_codes.get(rank)
        ended = code is not None or (process is not None and not is_alive(process))
        reported = _reported(files, rank)  # after the look at the process: a report is written before its end
        if reported is not None or ended:
            found.append(reported or _gone(rank, process, code, files))
    return found


def reported_failures(files: AttemptFiles, ranks: int) -> list[RankFailure]:
    """What ranks reported of their end, whichever host they were on."""
    return [failure for rank in range(ranks) if (failure := _reported(files, rank)) is not None]


def _reported(files: AttemptFiles, rank: int) -> RankFailure | None:
    try:
        return msgspec.json.decode(files.failure(rank).read_bytes(), type=RankFailure)
    except (OSError, msgspec.DecodeError):
        return None


def _gone(rank: int, process: ProcessIdentity | None, code: int | None, files: AttemptFiles) -> RankFailure:
    """A rank that ended without a report that can be read: from outside, or by a fault below Python."""
    name = f"process {process.pid}" if process else "its process"
    from_outside = code is None or code == _SERVER_GONE or -code in _SIGNALS_FROM_OUTSIDE
    if from_outside:
        how = "without a word (killed from outside, or out of memory)"
    else:
        how = f"by {signal.Signals(-code).name}" if code and code < 0 else f"with exit code {code}"
    return RankFailure(
        rank=rank,
        host=process.host if process else socket.gethostname(),
        kind=FailureKind.KILLED if from_outside else FailureKind.ERROR,
        message=f"{name} ended {how}",
        traceback=log_tail(files, rank),
        at_ns=0,
    )


def process_of(files: AttemptFiles, rank: int) -> ProcessIdentity | None:
    """The process of a rank, once it has said who it is."""
    try:
        return msgspec.json.decode(files.process(rank).read_bytes(), type=ProcessIdentity)
    except (OSError, msgspec.DecodeError):
        return None


def log_tail(files: AttemptFiles, rank: int) -> str:
    """The last lines that a rank printed."""
    try:
        lines = files.output(rank).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_LOG_LINES:])


def verdict(assignment: Assignment, found: Sequence[RankFailure], started_at: str) -> RunResult:
    """The outcome of an attempt some of whose ranks failed: the most telling kind, the earliest of it."""
    kinds = list(FailureKind)
    cause = min(found, key=lambda failure: (kinds.index(failure.kind), failure.at_ns, failure.rank))
    outcome = _OUTCOMES.get(cause.kind, Outcome.FAILED)
    reason = f"rank {cause.rank} on {cause.host}: {cause.message}"
    result = ended(assignment, outcome, reason, started_at, cause.kind)
    return msgspec.structs.replace(result, evidence=cause.traceback or None)


def ended(
    assignment: Assignment, outcome: Outcome, reason: str, started_at: str, failure: FailureKind | None = None
) -> RunResult:
    """A result without a measurement."""
    return RunResult(
        run=assignment.run,
        model=assignment.model,
        outcome=outcome,
        reason=reason,
        failure=failure,
        attempt=assignment.attempt,
        started_at=started_at,
        finished_at=utc_now(),
    )


def with_evidence(result: RunResult) -> str:
    """Why a run has no measurement, and below it the last lines of the rank that is the cause."""
    lines = (result.evidence or "").splitlines()[-_LOG_LINES:]
    return "\n".join([result.reason or result.outcome.value, *(f"    | {line}" for line in lines)])


def utc_now() -> str:
    """The time now, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
