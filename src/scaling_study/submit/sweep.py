"""A sweep on this machine: measure what is missing, one run after another, and wait for what others measure.

Runs that a live driver holds are waited for; those of a dead driver are taken over. A run whose rank was killed from
outside is started again, as often as the platform says; one that failed by itself is not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from scaling_study.errors import UserError
from scaling_study.processes import identity
from scaling_study.roofline import infeasible_because
from scaling_study.spec import (
    Assignment,
    Catalogue,
    FailureKind,
    Outcome,
    Platform,
    Progress,
    Run,
    RunResult,
    TokenManifest,
    TrainingRun,
    ranks_of,
    run_id,
)
from scaling_study.submit.checks import changed_since, check_hardware, check_writable
from scaling_study.submit.local import alone_on_this_machine, run_locally
from scaling_study.submit.monitor import Monitor
from scaling_study.submit.store import HEARTBEAT_S, RunStore
from scaling_study.submit.verdict import ended, utc_now
from scaling_study.submit.version import code_version

_WAIT_S = 0.5


class Driver:
    """Measures runs of one platform.

    Args:
        platform: where.
        catalogue: models and hardware of the runs.
        store: the platform's store.
        data_folder: prepared data sets.
        monitor: is told how it goes on.

    Attributes:
        manifests: of the runs' data sets.
        keep_traces_of: ids of runs whose raw trace is kept.
    """

    def __init__(
        self, platform: Platform, catalogue: Catalogue, store: RunStore, data_folder: Path, monitor: Monitor
    ) -> None:
        self.platform, self.catalogue, self.store = platform, catalogue, store
        self.data_folder, self.monitor, self.me = data_folder, monitor, identity()
        self.manifests: Mapping[str, TokenManifest] = {}
        self.keep_traces_of: frozenset[str] = frozenset()
        self._beat_s = time.monotonic()

    def measure(self, runs: Sequence[Run]) -> list[RunResult]:
        """The results of all runs, in their order; those that another driver holds are waited for."""
        results: dict[str, RunResult] = {}
        waiting = False
        while len(results) < len(runs):
            before = len(results)
            for position, run in enumerate(runs, start=1):
                if run_id(run) in results:
                    continue
                result, fresh = self._obtain(run, position, len(runs))
                if result is not None:
                    results[run_id(run)] = result
                    self.monitor.finish(run, result, fresh=fresh)
            if len(results) == before:
                if not waiting:
                    self.monitor.note("another driver measures what is left; waiting for it")
                waiting = True
                time.sleep(_WAIT_S)
        return [results[run_id(run)] for run in runs]

    def check(self, runs: Sequence[Run]) -> None:
        """Find out before anything starts that the platform cannot measure the runs, or the store not be written.

        Raises:
            UserError: says which.
        """
        check_hardware(runs, self.platform, self.catalogue.hardware[self.platform.hardware])
        check_writable(self.store.root)

    def _obtain(self, run: Run, position: int, total: int) -> tuple[RunResult | None, bool]:
        """The result of a run and whether it was measured now; None while another driver holds the run."""
        result = self.store.result(run)
        changed = changed_since(result, self.catalogue, self.manifests) if result is not None else None
        if result is not None and changed is None:
            return result, False
        if self.store.set_aside(run, result):
            self.monitor.note(f"{run_id(run)}: its result is {changed or 'damaged'}; measuring it again")
        number = self.store.claim(run, self.me)
        if number is None:
            return None, False
        self.monitor.start(run, position, total)
        return self._attempts(run, number), True

    def _attempts(self, run: Run, number: int) -> RunResult:
        for left in range(self.platform.attempts - 1, -1, -1):
            result = self._attempt(run, number)
            if result.failure is not FailureKind.KILLED or not left:
                break
            self.monitor.note(f"{run_id(run)}: {result.reason}; starting it again")
            claimed = self.store.claim(run, self.me)
            if claimed is None:
                break
            number = claimed
        return result

    def _attempt(self, run: Run, number: int) -> RunResult:
        files, hardware = self.store.files(run), self.catalogue.hardware[run.hardware]
        model = self.catalogue.models[run.model] if isinstance(run, TrainingRun) else None
        assignment = Assignment(
            run=run,
            model=model,
            ranks=ranks_of(run, hardware),
            run_folder=str(files.folder.resolve()),
            attempt_folder=str(files.attempt(number).folder.resolve()),
            attempt=number,
            data_folder=str(self.data_folder.resolve()),
            code_version=code_version(),
            threads_per_rank=self.platform.threads_per_rank,
            gpu=hardware if hardware.device_names else None,
            first_step_limit_s=self.platform.first_iteration_limit_s,
            step_limit_s=self.platform.iteration_limit_s,
            owner=self.me,
            keep_trace=run_id(run) in self.keep_traces_of,
        )
        infeasible = infeasible_because(run, model, hardware) if isinstance(run, TrainingRun) and model else None
        if infeasible:
            result: RunResult | None = ended(assignment, Outcome.INFEASIBLE, infeasible, utc_now())
        else:
            with alone_on_this_machine(lambda: self.monitor.note("another run is at work on this machine; waiting")):
                result = run_locally(assignment, self.platform, lambda progress: self._goes_on(run, number, progress))
        if result is not None:
            self.store.end(result)
            return result
        written = self.store.result(run)
        if written is None:
            raise UserError("the result that ranks wrote cannot be read", where=str(files.result), remedy="Run again.")
        return written

    def _goes_on(self, run: Run, number: int, progress: Progress) -> None:
        self.monitor.progress(run, progress)
        if time.monotonic() - self._beat_s > HEARTBEAT_S:
            self._beat_s = time.monotonic()
            self.store.heartbeat(run, number)
