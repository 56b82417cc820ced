"""What was submitted for an attempt, written before sbatch is called and again after it has answered.

A driver that dies between the two leaves an entry without a job: whoever comes next asks Slurm for the name, which no
other submission has, and so learns whether there is a job. Nothing is submitted twice.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from scaling_study.errors import write_atomically


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The job of one attempt.

    Attributes:
        name: of the job, unique to one call of sbatch.
        index: the attempt's place in the array.
        job_id: `12`, or `12_3` in an array; None until sbatch has answered.
        submitted_at: when sbatch was about to be called, local time, `2030-01-31T12:00:00`.
        minutes: of wall time asked for.
        nodes: asked for.
        script: the sbatch file.
    """

    name: str
    index: int
    job_id: str | None
    submitted_at: str
    minutes: int
    nodes: int
    script: str | None = None


def path_of(attempt_folder: Path) -> Path:
    """Where the entry of an attempt lies."""
    return attempt_folder / "job.json"


def read(attempt_folder: Path) -> Entry | None:
    """The entry of an attempt; None where it was not submitted, or cannot be read."""
    try:
        return msgspec.json.decode(path_of(attempt_folder).read_bytes(), type=Entry)
    except (OSError, msgspec.DecodeError):
        return None


def write(attempt_folder: Path, entry: Entry) -> None:
    """Write the entry of an attempt, on the disk before anything follows.

    Raises:
        UserError: the store cannot be written.
    """
    write_atomically(path_of(attempt_folder), msgspec.json.encode(entry))
