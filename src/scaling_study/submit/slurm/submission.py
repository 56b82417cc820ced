"""One call of sbatch, through submitit: the runs of one shape as an array, or a single run as a job of its own."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from scaling_study.errors import UserError
from scaling_study.spec import Assignment, Platform
from scaling_study.submit import node
from scaling_study.submit.slurm import ledger
from scaling_study.submit.slurm.commands import scrubbed_environment
from scaling_study.submit.slurm.request import Shape, parameters

#: What sbatch says when it may take the same job later; anything else is a mistake that waiting does not mend.
_LATER = (
    "MaxSubmitJobs",
    "MaxJobCount",
    "job submit limit",
    "Job violates accounting/QOS policy",
    "Unable to contact slurm controller",
    "Connection refused",
)
#: The same where the request may have reached Slurm all the same: just its answer did not come.
_UNANSWERED = (
    "Socket timed out",
    "temporarily unavailable",
    "Zero Bytes were transmitted",
    "(receive failure)",
    "(send failure)",
    "(shutdown failure)",
)


class TryLaterError(Exception):
    """Slurm does not take jobs now.

    Attributes:
        unanswered: it may have taken them all the same, or do so yet.
    """

    def __init__(self, said: str, *, unanswered: bool = False) -> None:
        super().__init__(said)
        self.unanswered = unanswered


def new_name() -> str:
    """A job name that no other submission has."""
    return f"scaling-study-{os.urandom(6).hex()}"


def submit(
    assignments: Sequence[Assignment], platform: Platform, shape: Shape, folder: Path, avoid: Sequence[str] = ()
) -> list[ledger.Entry]:
    """Submit attempts of one shape; each has its entry in the ledger before and after.

    Args:
        assignments: of the attempts, claimed already.
        folder: of submitit, on a file system that nodes share.
        avoid: nodes that the jobs are not to have.

    Returns:
        the entries, in order.

    Raises:
        TryLaterError: Slurm does not take them now; their entries have no job.
        UserError: it never will.
    """
    name, now = new_name(), time.strftime("%Y-%m-%dT%H:%M:%S")
    entries = [
        ledger.Entry(name=name, index=index, job_id=None, submitted_at=now, minutes=shape.minutes, nodes=shape.nodes)
        for index in range(len(assignments))
    ]
    for assignment, entry in zip(assignments, entries, strict=True):
        ledger.write(Path(assignment.attempt_folder), entry)
    payloads = [msgspec.json.encode(one).decode() for one in assignments]
    jobs, script = sbatch(node.start_rank, payloads, parameters(platform, shape, name, avoid), folder / name, platform)
    known = []
    for assignment, entry, job_id in zip(assignments, entries, jobs, strict=True):
        attempt = Path(assignment.attempt_folder)
        kept = _keep(script, attempt)
        known.append(msgspec.structs.replace(entry, job_id=job_id, script=kept))
        ledger.write(attempt, known[-1])
    return known


def sbatch(
    task: Callable[[str, str], None],
    payloads: Sequence[str],
    asked: Mapping[str, Any],
    folder: Path,
    platform: Platform,
) -> tuple[list[str], Path | None]:
    """Job ids, one a payload, and the file that sbatch was given.

    Args:
        task: of every rank; it is given a payload and no address.
        asked: parameters of submitit's executor.
        folder: of submitit.

    Raises:
        TryLaterError: Slurm does not take them now.
        UserError: it never will.
    """
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        with scrubbed_environment(), contextlib.redirect_stderr(io.StringIO()):  # submitit prints what sbatch says
            executor = submitit.SlurmExecutor(folder=folder, max_num_timeout=0)
            executor.update_parameters(**asked)
            jobs = executor.map_array(task, payloads, [""] * len(payloads))
    except (FailedJobError, FailedSubmissionError) as error:
        said = " ".join(str(error).split())
        unanswered = any(word.lower() in said.lower() for word in _UNANSWERED)
        if unanswered or any(word.lower() in said.lower() for word in _LATER):
            raise TryLaterError(said, unanswered=unanswered) from error
        raise UserError(
            f"sbatch refuses the job: {said}",
            where=f"platform {platform.name}",
            remedy="Mend the platform's file.",
        ) from error
    except RuntimeError as error:  # submitit found no srun
        raise UserError(str(error), where=f"platform {platform.name}", remedy="Run this on a login node.") from error
    scripts = sorted(folder.glob("*.sh"))
    return [job.job_id for job in jobs], scripts[-1] if scripts else None


def _keep(script: Path | None, attempt: Path) -> str | None:
    """A copy of the sbatch file beside the attempt."""
    if script is None:
        return None
    kept = attempt / "submission.sh"
    shutil.copyfile(script, kept)
    return str(kept)
