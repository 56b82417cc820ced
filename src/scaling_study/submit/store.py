"""The run store: one folder a run, keyed by `run_id`, claimed atomically, one result by rename.

An attempt is claimed by renaming a prepared folder to the next number. A rename onto an existing attempt fails, so
of two drivers one wins; a folder appears with its claim inside, so a claim is never seen without its owner. An
attempt is over when the run has a result, when it says how it ended, or when its owner is gone.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

import msgspec

from scaling_study.errors import UserError, explain_os_error, write_atomically
from scaling_study.processes import is_alive
from scaling_study.spec import AttemptFiles, Outcome, ProcessIdentity, Run, RunFiles, RunResult, encode_run, run_id
from scaling_study.spec.results import RESULT_SCHEMA_VERSION

HEARTBEAT_S = 10.0
_DEAD_AFTER_S = 6 * HEARTBEAT_S


class RunStore:
    """The runs of one platform.

    Args:
        root: the platform's folder in the store.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def files(self, run: Run) -> RunFiles:
        """The folder of a run, which may not exist yet."""
        return RunFiles(self.root / run_id(run))

    def result(self, run: Run) -> RunResult | None:
        """The result of a run; None if there is none, or if what lies there is damaged or of another run."""
        return _decode_result(self.files(run).result, run)

    def last_failure(self, run: Run) -> RunResult | None:
        """How the latest attempt ended, where it left no result."""
        files, number = self.files(run), self.attempts(run)
        return _decode_result(files.attempt(number).ended, run) if number else None

    def attempts(self, run: Run) -> int:
        """The number of the latest attempt, 0 if there is none."""
        folder = self.files(run).attempts
        numbers = [int(path.name) for path in folder.glob("[0-9][0-9][0-9]*")] if folder.is_dir() else []
        return max(numbers, default=0)

    def claim(self, run: Run, owner: ProcessIdentity) -> int | None:
        """Claim the next attempt at a run.

        Returns:
            Its number, or None: there is a result already, or a live driver holds the run.

        Raises:
            UserError: the store cannot be written.
        """
        latest = self.attempts(run)  # read once: a claim that comes after this look makes the rename below fail
        if self.result(run) is not None or self._is_held(run, latest):
            return None
        files = self.files(run)
        number = latest + 1
        try:
            files.attempts.mkdir(parents=True, exist_ok=True)
            if not files.run.exists():
                write_atomically(files.run, msgspec.json.format(encode_run(run)))
            prepared = AttemptFiles(Path(tempfile.mkdtemp(prefix=".claim-", dir=files.attempts)))
            prepared.folder.chmod(files.attempts.stat().st_mode & 0o777)  # mkdtemp hides it from everybody else
        except OSError as error:
            raise explain_os_error(error, where=str(files.folder)) from error
        write_atomically(prepared.claim, msgspec.json.encode(owner))
        try:
            prepared.folder.rename(files.attempt(number).folder)
        except OSError as error:
            shutil.rmtree(prepared.folder, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return None
            raise explain_os_error(error, where=str(files.folder)) from error
        if self.result(run) is not None:  # another driver finished between the look and the claim
            shutil.rmtree(files.attempt(number).folder, ignore_errors=True)
            return None
        return number

    def is_held(self, run: Run) -> bool:
        """Whether a live driver is at the run."""
        return self._is_held(run, self.attempts(run))

    def _is_held(self, run: Run, number: int) -> bool:
        if not number:
            return False
        attempt = self.files(run).attempt(number)
        if attempt.ended.exists():
            return False
        try:
            owner = msgspec.json.decode(attempt.claim.read_bytes(), type=ProcessIdentity)
            age_s = time.time() - attempt.claim.stat().st_mtime
        except (OSError, msgspec.DecodeError):
            return False
        return is_alive(owner) if owner.host == socket.gethostname() else age_s < _DEAD_AFTER_S

    def heartbeat(self, run: Run, number: int) -> None:
        """Show drivers on other hosts that this one lives."""
        os.utime(self.files(run).attempt(number).claim)

    def end(self, result: RunResult) -> None:
        """Write how an attempt ended: a result where it is one, else the attempt's end."""
        files = self.files(result.run)
        path = files.result if result.outcome.is_result else files.attempt(result.attempt).ended
        write_atomically(path, msgspec.json.encode(result))

    def set_aside(self, run: Run, judged: RunResult | None) -> bool:
        """Move a result that is of no use out of the way, never away, and free the run.

        Args:
            judged: the result that was found of no use; None for one that cannot be read.

        Returns:
            Whether it was moved: not if there is none, or if another driver has put a new one there meanwhile.
        """
        path = self.files(run).result
        if not path.exists() or self.result(run) != judged:
            return False
        self.files(run).attempt(self.attempts(run)).claim.unlink(missing_ok=True)
        kind = "damaged" if judged is None else "outdated"
        path.replace(path.with_suffix(f".{kind}.{time.time_ns()}.json"))
        return True


class _Versioned(msgspec.Struct):
    """The one field that every version of a result has."""

    schema_version: int = RESULT_SCHEMA_VERSION


def _decode_result(path: Path, run: Run) -> RunResult | None:
    try:
        content = path.read_bytes()
        version = msgspec.json.decode(content, type=_Versioned).schema_version
        if version != RESULT_SCHEMA_VERSION:
            raise UserError(
                f"a result of schema version {version}, this code reads {RESULT_SCHEMA_VERSION}",
                where=str(path),
                remedy="Use the code that measured it, or move the folder away to measure the run again.",
            )
        result = msgspec.json.decode(content, type=RunResult)
    except (OSError, msgspec.DecodeError):
        return None
    complete = result.outcome is not Outcome.OK or ((result.ranks or result.calls) and result.environment)
    return result if complete and run_id(result.run) == run_id(run) else None
