"""A sweep on a cluster: what is missing is claimed, submitted as job arrays, and watched until every run has a result.

A driver believes the result file, then what ranks reported, then what Slurm says of the job; it never reads a pickle.
Jobs outlive their driver: whoever comes next finds them in the ledger and watches them. Of several drivers that see an
attempt end, one claims the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from scaling_study.errors import UserError
from scaling_study.processes import identity
from scaling_study.roofline import infeasible_because
from scaling_study.spec import (
    Assignment,
    AttemptFiles,
    Catalogue,
    FailureKind,
    Hardware,
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
from scaling_study.submit.monitor import Monitor
from scaling_study.submit.slurm import ledger
from scaling_study.submit.slurm.commands import Job, Slurm
from scaling_study.submit.slurm.request import Shape, cannot_hold, settings_of, shape_of
from scaling_study.submit.slurm.states import Cause, Phase
from scaling_study.submit.slurm.submission import TryLaterError, submit
from scaling_study.submit.store import HEARTBEAT_S, RunStore
from scaling_study.submit.verdict import ended, reported_failures, utc_now, verdict
from scaling_study.submit.version import code_version

#: A result may appear on this host a little after its job has ended on another.
_GRACE_S = 5.0
_SLOWEST_FACTOR = 6.0


class _Watch(msgspec.Struct):
    """An attempt that was submitted, by this driver or another.

    Attributes:
        unknown_since: when Slurm was last known to know the job, monotonic seconds.
        ended_since: when it was seen to have ended, likewise; None while it goes on.
    """

    run: Run
    number: int
    entry: ledger.Entry
    unknown_since: float
    job: Job | None = None
    ended_since: float | None = None
    ours: bool = False


class SlurmDriver:
    """Measures runs of one Slurm platform.

    Args:
        platform: where.
        catalogue: models and hardware of the runs.
        store: the platform's store, on a file system that nodes share.
        data_folder: prepared data sets, likewise.
        monitor: is told how it goes on.
        expected_s: predicted seconds of runs, by run id.
    """

    def __init__(
        self,
        platform: Platform,
        catalogue: Catalogue,
        store: RunStore,
        data_folder: Path,
        monitor: Monitor,
        expected_s: Mapping[str, float],
    ) -> None:
        self.platform, self.catalogue, self.store = platform, catalogue, store
        self.data_folder, self.monitor, self.me = data_folder, monitor, identity()
        self.manifests: Mapping[str, TokenManifest] = {}
        self.expected_s = expected_s
        self.slurm = Slurm()
        self._asked = settings_of(platform)
        self._watched: dict[str, _Watch] = {}
        self._results: dict[str, RunResult] = {}
        self._failures: dict[str, int] = {}
        self._restarts: dict[str, int] = {}
        self._timeouts: dict[str, int] = {}
        self._claimed: dict[str, tuple[Run, int]] = {}
        self._retry_at, self._delay_s = 0.0, self._asked.poll_s
        self._beat_s = time.monotonic()

    # -- what a verb calls --------------------------------------------------------------------------------------

    def check(self, runs: Sequence[Run]) -> None:
        """Find out before anything is submitted that the platform cannot hold the runs, or the store not be written.

        Raises:
            UserError: says which.
        """
        check_hardware(runs, self.platform)
        for run in runs:
            reason = cannot_hold(run, self.platform, self._hardware(run), self.expected_s.get(run_id(run)))
            if reason:
                raise UserError(
                    f"{run_id(run)}: {reason}",
                    where=f"platform {self.platform.name}",
                    remedy="Choose another platform, or leave the run out.",
                )
        check_writable(self.store.root)

    def measure(self, runs: Sequence[Run]) -> list[RunResult]:
        """The results of all runs, in their order; jobs that others submitted are waited for."""
        waited = False
        try:
            while True:
                before = len(self._results)
                self._look_at_runs(runs)
                self._submit_claimed()
                self._look_at_jobs()
                if len(self._results) == len(runs):
                    return [self._results[run_id(run)] for run in runs]
                waited = self._wait(moved=len(self._results) > before, said=waited)
        except KeyboardInterrupt:
            self._interrupted()
            raise

    # -- runs ---------------------------------------------------------------------------------------------------

    def _look_at_runs(self, runs: Sequence[Run]) -> None:
        for position, run in enumerate(runs, start=1):
            name = run_id(run)
            if name in self._results or name in self._watched or name in self._claimed:
                continue
            result = self.store.result(run)
            changed = changed_since(result, self.catalogue, self.manifests) if result is not None else None
            if result is not None and changed is None:
                self._finish(run, result, fresh=False)
                continue
            if self.store.set_aside(run, result):
                self.monitor.note(f"{name}: its result is {changed or 'damaged'}; measuring it again")
            if not self._adopt(run, position, len(runs)):
                self._claim(run, position, len(runs))

    def _adopt(self, run: Run, position: int, total: int) -> bool:
        """Watch the latest attempt if it was submitted and has not ended; whether it is."""
        number = self.store.attempts(run)
        files = self.store.files(run).attempt(number)
        goes_on = files.claim.exists() and not files.ended.exists()  # a result set aside has freed its claim
        entry = ledger.read(files.folder) if number and goes_on else None
        if entry is None:
            return False
        if entry.job_id is None and self.store.is_held(run):
            return True  # another driver is submitting it at this moment; look again
        self._watched[run_id(run)] = _Watch(run, number, entry, time.monotonic())
        self.monitor.start(run, position, total)
        self.monitor.note(
            f"{run_id(run)}: watching job {entry.job_id or entry.name}, submitted at {entry.submitted_at}"
        )
        return True

    def _claim(self, run: Run, position: int, total: int) -> None:
        number = self.store.claim(run, self.me)
        if number is None:
            return  # a live driver holds it
        self.monitor.start(run, position, total)
        reason = self._infeasible(run)
        if reason is None:
            self._claimed[run_id(run)] = (run, number)
            return
        result = ended(self._assignment(run, number), Outcome.INFEASIBLE, reason, utc_now())
        self.store.end(result)
        self._finish(run, result, fresh=True)

    def _infeasible(self, run: Run) -> str | None:
        if not isinstance(run, TrainingRun):
            return None
        return infeasible_because(run, self.catalogue.models[run.model], self._hardware(run))

    def _finish(self, run: Run, result: RunResult, *, fresh: bool) -> None:
        self._results[run_id(run)] = result
        self._watched.pop(run_id(run), None)
        self.monitor.finish(run, result, fresh=fresh)

    # -- jobs ---------------------------------------------------------------------------------------------------

    def _submit_claimed(self) -> None:
        """Submit what is claimed, one array a shape; what Slurm does not take now is tried again later."""
        if not self._claimed or time.monotonic() < self._retry_at:
            return
        shapes: dict[Shape, list[tuple[Run, int]]] = {}
        for run, number in self._claimed.values():
            shapes.setdefault(self._shape(run), []).append((run, number))
        for shape, members in sorted(shapes.items(), key=lambda item: item[0]):
            assignments = [self._assignment(run, number) for run, number in members]
            try:
                entries = submit(assignments, self.platform, shape, self.store.root / "jobs")
            except TryLaterError as error:
                if not self._found_after_all(members):
                    self.monitor.note(f"Slurm takes no jobs now ({error}); trying again in {self._asked.poll_s:g} s")
                    self._retry_at = time.monotonic() + self._asked.poll_s
                    return
                continue
            for (run, number), entry in zip(members, entries, strict=True):
                del self._claimed[run_id(run)]
                self._watched[run_id(run)] = _Watch(run, number, entry, time.monotonic(), ours=True)

    def _found_after_all(self, members: Sequence[tuple[Run, int]]) -> bool:
        """Whether a submission that looked refused is known to Slurm: the answer was lost, not the request."""
        entries = {run_id(run): ledger.read(self.store.files(run).attempt(number).folder) for run, number in members}
        names = {entry.name for entry in entries.values() if entry}
        jobs = self.slurm.queue(names)
        if not jobs:
            return False
        for run, number in members:
            entry = entries[run_id(run)]
            if entry is not None:
                del self._claimed[run_id(run)]
                self._watched[run_id(run)] = _Watch(run, number, entry, time.monotonic(), ours=True)
        return True

    def _look_at_jobs(self) -> None:
        """Results first, then one query for all jobs, then accounting for those that the queue does not know."""
        for watch in list(self._watched.values()):
            result = self.store.result(watch.run)
            if result is not None:
                self._finish(watch.run, result, fresh=True)
        if not self._watched:
            return
        watches = list(self._watched.values())
        queued = self.slurm.queue(watch.entry.name for watch in watches)
        self._tell(watches, queued or [])
        lost = [watch for watch in watches if watch.job is None or watch.job.state.phase is Phase.UNKNOWN]
        if lost:
            since = min(watch.entry.submitted_at for watch in lost)
            self._tell(lost, self.slurm.accounting((watch.entry.name for watch in lost), since) or [])
        for watch in watches:
            self._follow(watch)

    def _tell(self, watches: Iterable[_Watch], jobs: Sequence[Job]) -> None:
        """Give each watch what Slurm says of its job now."""
        known = {(job.name, job.index): job for job in jobs}
        for watch in watches:
            watch.job = known.get((watch.entry.name, watch.entry.index))
            if watch.job is not None and watch.entry.job_id is None:
                watch.entry = msgspec.structs.replace(watch.entry, job_id=watch.job.job_id)
                ledger.write(self._files(watch).folder, watch.entry)

    def _follow(self, watch: _Watch) -> None:
        """What an attempt's job being where it is means for it."""
        now, phase = time.monotonic(), watch.job.state.phase if watch.job else Phase.UNKNOWN
        if phase in (Phase.WAITING, Phase.RUNNING):
            watch.unknown_since, watch.ended_since = now, None
            self._show(watch)
            return
        gone = phase is Phase.UNKNOWN and now - watch.unknown_since > self._asked.unknown_s
        if phase is Phase.ENDED or gone:
            watch.ended_since = watch.ended_since if watch.ended_since is not None else now
            if now - watch.ended_since >= _GRACE_S:
                self._judge(watch)

    def _judge(self, watch: _Watch) -> None:
        """The job of an attempt has ended: its result after all, or why there is none, and whether to try again."""
        run, name = watch.run, run_id(watch.run)
        result = self.store.result(run)
        if result is not None:
            self._finish(run, result, fresh=True)
            return
        if self._files(watch).ended.exists():  # another driver judged it
            del self._watched[name]
            return
        result = self._why(watch)
        self.store.end(result)
        if result.outcome.is_result:
            self._finish(run, result, fresh=True)
            return
        del self._watched[name]
        if self._tries_again(watch, result):
            self.monitor.note(f"{name}: {result.reason}; submitting it again")
            return
        self._finish(run, result, fresh=True)

    def _why(self, watch: _Watch) -> RunResult:
        """What ranks reported, and where they did not, what Slurm says."""
        assignment, files = self._assignment(watch.run, watch.number), self._files(watch)
        cause = watch.job.state.cause if watch.job else None
        found = reported_failures(files, assignment.ranks)
        if found and cause not in (Cause.INFRASTRUCTURE, Cause.CANCELLED, Cause.TIME_LIMIT):
            return verdict(assignment, found, watch.entry.submitted_at)
        outcome = {
            Cause.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY,
            Cause.TIME_LIMIT: Outcome.TIMEOUT,
        }.get(cause or Cause.FAILED, Outcome.FAILED)
        killed = cause in (None, Cause.INFRASTRUCTURE, Cause.FAILED, Cause.DONE)
        kind = FailureKind.KILLED if killed else FailureKind.ERROR
        return ended(assignment, outcome, self._said(watch), watch.entry.submitted_at, kind)

    def _said(self, watch: _Watch) -> str:
        job = watch.job
        if job is None:
            return f"job {watch.entry.job_id or watch.entry.name} is not known to Slurm any more, and left no result"
        where = f" on {job.nodes}" if job.nodes else ""
        detail = f" ({job.detail})" if job.detail else ""
        return f"job {job.job_id} ended as {job.word}{where}{detail}"

    def _tries_again(self, watch: _Watch, result: RunResult) -> bool:
        """Whether this driver submits the run once more: what broke outside of it does not count as its failure."""
        name, cause = run_id(watch.run), watch.job.state.cause if watch.job else None
        if cause is Cause.CANCELLED:
            return False
        if cause is Cause.INFRASTRUCTURE:
            self._restarts[name] = self._restarts.get(name, 0) + 1
            return self._restarts[name] <= self._asked.restarts
        self._failures[name] = self._failures.get(name, 0) + 1
        if cause is Cause.TIME_LIMIT:
            self._timeouts[name] = self._timeouts.get(name, 0) + 1
        retriable = result.failure is FailureKind.KILLED or result.outcome is Outcome.TIMEOUT
        return retriable and self._failures[name] < self.platform.attempts

    # -- waiting ------------------------------------------------------------------------------------------------

    def _show(self, watch: _Watch) -> None:
        try:
            progress = msgspec.json.decode(self._files(watch).progress.read_bytes(), type=Progress)
        except (OSError, msgspec.DecodeError):
            return
        self.monitor.progress(watch.run, progress)

    def _wait(self, *, moved: bool, said: bool) -> bool:
        """Sleep until the next look; longer and longer while nothing changes. Whether the reason was told."""
        self._delay_s = self._asked.poll_s if moved else min(self._delay_s * 1.3, self._asked.poll_s * _SLOWEST_FACTOR)
        if not (self._watched or self._claimed) and not said:
            self.monitor.note("another driver submits what is left; waiting for it")
            said = True
        deadline = time.monotonic() + self._delay_s
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            if any(self.store.files(watch.run).result.exists() for watch in self._watched.values()):
                break
            self._beat()
        return said

    def _beat(self) -> None:
        """Show drivers on other hosts that the runs which this one has claimed and not submitted yet are held."""
        if time.monotonic() - self._beat_s > HEARTBEAT_S:
            self._beat_s = time.monotonic()
            for run, number in self._claimed.values():
                self.store.heartbeat(run, number)

    def _interrupted(self) -> None:
        """Ask Slurm to end this driver's jobs, or leave them running: as the platform says."""
        mine = [watch.entry.job_id for watch in self._watched.values() if watch.ours and watch.entry.job_id]
        if not mine:
            return
        if self._asked.on_interrupt == "cancel":
            done = "cancelled" if self.slurm.cancel(mine) else "not cancelled (scancel failed)"
            self.monitor.note(f"interrupted: {len(mine)} jobs {done} (slurm.on_interrupt: cancel)")
        else:
            self.monitor.note(
                f"interrupted: {len(mine)} jobs go on; the next start watches them (slurm.on_interrupt: leave)"
            )

    # -- small things -------------------------------------------------------------------------------------------

    def _files(self, watch: _Watch) -> AttemptFiles:
        return self.store.files(watch.run).attempt(watch.number)

    def _hardware(self, run: Run) -> Hardware:
        return self.catalogue.hardware[run.hardware]

    def _shape(self, run: Run) -> Shape:
        shape = shape_of(run, self.platform, self._hardware(run), self.expected_s.get(run_id(run)))
        longer = shape.minutes * 2 ** self._timeouts.get(run_id(run), 0)
        return msgspec.structs.replace(shape, minutes=min(longer, self._asked.most_minutes))

    def _assignment(self, run: Run, number: int) -> Assignment:
        files = self.store.files(run)
        return Assignment(
            run=run,
            model=self.catalogue.models[run.model] if isinstance(run, TrainingRun) else None,
            ranks=ranks_of(run, self._hardware(run)),
            run_folder=str(files.folder.resolve()),
            attempt_folder=str(files.attempt(number).folder.resolve()),
            attempt=number,
            data_folder=str(self.data_folder.resolve()),
            code_version=code_version(),
            threads_per_rank=self.platform.threads_per_rank,
        )
