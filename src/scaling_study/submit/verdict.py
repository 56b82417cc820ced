"""How an attempt ended, from what its ranks left: the cause is told from its consequences on other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

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


def failures(files: AttemptFiles, ranks: int) -> list[RankFailure]:
    """What ranks reported of their end, and ranks that are gone without a word."""
    found: list[RankFailure] = []
    for rank in range(ranks):
        try:
            found.append(msgspec.json.decode(files.failure(rank).read_bytes(), type=RankFailure))
            continue
        except (OSError, msgspec.DecodeError):
            pass
        process = process_of(files, rank)
        if process is not None and not is_alive(process) and not files.failure(rank).exists():
            found.append(_gone(rank, process, files))
    return found


def _gone(rank: int, process: ProcessIdentity, files: AttemptFiles) -> RankFailure:
    return RankFailure(
        rank=rank,
        host=process.host,
        kind=FailureKind.KILLED,
        message=f"process {process.pid} ended without a word (killed from outside, or out of memory)",
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
    for path in sorted(files.log.glob(f"*_{rank}_log.err")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])
    return ""


def verdict(assignment: Assignment, found: Sequence[RankFailure], started_at: str) -> RunResult:
    """The outcome of an attempt whose ranks failed: the most telling kind, the earliest of it."""
    files = AttemptFiles(Path(assignment.attempt_folder))
    if not found and any(files.folder.glob("rank-???.json")):
        reason = "the process that started the ranks ended without a word (killed from outside)"
        return ended(assignment, Outcome.FAILED, reason, started_at, FailureKind.KILLED)
    if not found:
        reason = f"no rank began: {log_tail(files, 0) or f'see {files.log}'}"
        return ended(assignment, Outcome.FAILED, reason, started_at)
    kinds = list(FailureKind)
    cause = min(found, key=lambda failure: (kinds.index(failure.kind), failure.at_ns, failure.rank))
    outcome = Outcome.OUT_OF_MEMORY if cause.kind is FailureKind.OUT_OF_MEMORY else Outcome.FAILED
    reason = f"rank {cause.rank} on {cause.host}: {cause.message}"
    return ended(assignment, outcome, reason, started_at, cause.kind)


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


def utc_now() -> str:
    """The time now, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
