"""The files of a run in the store: their names, for those who write them and those who read them.

<run id>/run.json                     the run, every field spelled out
<run id>/result.json                  the result, once there is one
<run id>/timeline/rank-000.parquet    the span table of a rank
<run id>/trace.json.gz                the raw trace of rank 0, of a run that keeps it
<run id>/attempts/001/claim.json      who makes this attempt
rank-000.json   the process of a rank
rank-000.failure.json
progress.json
rendezvous.json where ranks meet
ended.json      how the attempt ended, where it left no result
log/            what each rank printed
"""

from __future__ import annotations

from pathlib import Path


class AttemptFiles:
    """Paths of one attempt at a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def claim(self) -> Path:
        """Who makes this attempt."""
        return self.folder / "claim.json"

    @property
    def progress(self) -> Path:
        """How far the run is."""
        return self.folder / "progress.json"

    @property
    def rendezvous(self) -> Path:
        """Where ranks meet."""
        return self.folder / "rendezvous.json"

    @property
    def ended(self) -> Path:
        """How the attempt ended without a result."""
        return self.folder / "ended.json"

    @property
    def log(self) -> Path:
        """What ranks printed."""
        return self.folder / "log"

    def process(self, rank: int) -> Path:
        """The process of a rank."""
        return self.folder / f"rank-{rank:03d}.json"

    def failure(self, rank: int) -> Path:
        """Why a rank ended."""
        return self.folder / f"rank-{rank:03d}.failure.json"

    def health(self, rank: int) -> Path:
        """What a rank found in a check of nodes."""
        return self.folder / f"rank-{rank:03d}.health.json"

    def output(self, rank: int) -> Path:
        """What a rank printed."""
        return self.log / f"rank-{rank:03d}.log"

    def flight_record(self, rank: int) -> Path:
        """The last collectives of a rank that stalled."""
        return self.log / f"rank-{rank:03d}.flight.json"

    def trace(self, rank: int) -> Path:
        """The raw trace of a rank, until it is reduced."""
        return self.folder / f"rank-{rank:03d}.trace.json"


class RunFiles:
    """Paths of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def run(self) -> Path:
        """The run."""
        return self.folder / "run.json"

    @property
    def result(self) -> Path:
        """Its result."""
        return self.folder / "result.json"

    @property
    def attempts(self) -> Path:
        """The folder of attempts."""
        return self.folder / "attempts"

    def attempt(self, number: int) -> AttemptFiles:
        """One attempt; they are counted from 1."""
        return AttemptFiles(self.attempts / f"{number:03d}")

    @property
    def trace(self) -> Path:
        """The raw trace of rank 0, of a run that keeps it."""
        return self.folder / "trace.json.gz"

    def timeline(self, rank: int) -> Path:
        """The span table of a rank."""
        return self.folder / "timeline" / f"rank-{rank:03d}.parquet"
