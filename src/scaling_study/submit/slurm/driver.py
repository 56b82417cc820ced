"""A sweep on a cluster: what is missing is claimed, submitted as job arrays, and watched until every run has a result.

A driver believes the result file, then what ranks reported, then what Slurm says of the job; it never reads a pickle.
Jobs outlive their driver: whoever comes next finds them in the ledger and watches them. Of several drivers that see an
attempt end, one claims the next.
"""

from __future__ import annotations

import math
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
    steps_of,
)
from scaling_study.submit.checks import changed_since, check_hardware, check_writable
from scaling_study.submit.monitor import Monitor
from scaling_study.submit.slurm import ledger, nodes
from scaling_study.submit.slurm.commands import Job, Slurm
from scaling_study.submit.slurm.request import Shape, cannot_hold, settings_of, shape_of
from scaling_study.submit.slurm.states import NODE_WORDS, Cause, Phase
from scaling_study.submit.slurm.submission import TryLaterError, submit
from scaling_study.submit.slurm.tasks import failed_nodes, failures_of_tasks, read_log
from scaling_study.submit.store import HEARTBEAT_S, RunStore
from scaling_study.submit.verdict import ended, reported_failures, utc_now, verdict, with_evidence
from scaling_study.submit.version import code_digest, code_version

#: A result may appear on this host a little after its job has ended on another.
_GRACE_S = 5.0
_SLOWEST_FACTOR = 6.0
#: A rank has stalled when a step takes longer than so many expected ones, and than so long.
_STALLED_STEPS, _LEAST_STALL_S = 20, 60.0


class _Watch(msgspec.Struct):
    """An attempt that was submitted, by this driver or another.

    Attributes:
        unknown_since: when Slurm was last known to know the job, monotonic seconds.
        ended_since: when it was seen to have ended, likewise; None while it goes on.
        ours: this driver submitted it.
        seen: this driver saw it go on.
    """

    run: Run
    number: int
    entry: ledger.Entry
    unknown_since: float
    job: Job | None = None
    ended_since: float | None = None
    ours: bool = False
    seen: bool = False


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
        self._unanswered: dict[str, float] = {}  # names of submissions, and since when Slurm has answered without them
        self._retry_at, self._retry_s, self._delay_s = 0.0, 0.0, self._asked.poll_s
        self._beat_s, self._waits, self._is_silent = time.monotonic(), False, False

    # -- what a verb calls --------------------------------------------------------------------------------------

    def check(self, runs: Sequence[Run]) -> None:
        """Find out before anything is submitted that the platform cannot hold the runs, or the store not be written.

        Raises:
            UserError: says which.
        """
        check_hardware(runs, self.platform, self.catalogue.hardware[self.platform.hardware])
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
        try:
            while True:
                before = len(self._results)
                held = self._look_at_runs(runs)
                self._submit_claimed()
                released = self._look_at_jobs()
                if len(self._results) == len(runs):
                    return [self._results[run_id(run)] for run in runs]
                if not released:
                    self._wait(moved=len(self._results) > before, held=held)
        except KeyboardInterrupt:
            self._interrupted()
            raise

    # -- runs ---------------------------------------------------------------------------------------------------

    def _look_at_runs(self, runs: Sequence[Run]) -> bool:
        """Find results, watch attempts, claim what is free; whether other drivers hold some."""
        held = False
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
            number, entry = self._open_attempt(run)
            if entry is None:
                held |= not self._claim(run, position, len(runs))
            elif entry.job_id is None and self.store.is_held(run):
                held = True  # another driver is submitting it at this moment
            else:
                self._adopt(run, number, entry, position, len(runs))
        return held

    def _open_attempt(self, run: Run) -> tuple[int, ledger.Entry | None]:
        """The latest attempt and its job, if it was submitted and has not ended."""
        number = self.store.attempts(run)
        files = self.store.files(run).attempt(number)
        goes_on = files.claim.exists() and not files.ended.exists()  # a result that is set aside has freed its claim
        return number, ledger.read(files.folder) if number and goes_on else None

    def _adopt(self, run: Run, number: int, entry: ledger.Entry, position: int, total: int) -> None:
        """Watch an attempt that another driver submitted, or this one before it was started again."""
        self._watched[run_id(run)] = _Watch(run, number, entry, time.monotonic())
        self.monitor.start(run, position, total)
        self.monitor.note(
            f"{run_id(run)}: watching job {entry.job_id or entry.name}, submitted at {entry.submitted_at}"
        )

    def _claim(self, run: Run, position: int, total: int) -> bool:
        """Claim the next attempt, to be submitted; False while a live driver holds the run."""
        number = self.store.claim(run, self.me)
        if number is None:
            return False
        self.monitor.start(run, position, total)
        reason = self._infeasible(run)
        if reason is None:
            self._claimed[run_id(run)] = (run, number)
            return True
        result = ended(self._assignment(run, number), Outcome.INFEASIBLE, reason, utc_now())
        self.store.end(result)
        self._finish(run, result, fresh=True)
        return True

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
        if self._retry_s:
            self._drop_ended()
        shapes: dict[Shape, list[tuple[Run, int]]] = {}
        for run, number in self._claimed.values():
            shapes.setdefault(self._shape(run), []).append((run, number))
        unsure = False
        for shape, members in sorted(shapes.items(), key=lambda item: item[0]):
            found = self._found_after_all(members)
            if found is None:
                unsure = True
                continue
            if found:
                self._retry_s = 0.0
                continue
            assignments = [self._assignment(run, number) for run, number in members]
            try:
                entries = submit(assignments, self.platform, shape, self._jobs, self._avoided())
            except TryLaterError as error:
                if error.unanswered:
                    names = {entry.name for entry in self._entries(members).values()}
                    self._unanswered |= dict.fromkeys(names, math.inf)
                self._refused(error)
                return
            self._retry_s = 0.0
            for (run, number), entry in zip(members, entries, strict=True):
                del self._claimed[run_id(run)]
                self._watched[run_id(run)] = _Watch(run, number, entry, time.monotonic(), ours=True)
        if unsure:
            self._refused(TryLaterError("an earlier submission may still be taken"))

    def _drop_ended(self) -> None:
        """Give up claims whose attempt has ended since the last try, by a job of a lost answer or another driver."""
        for name, (run, number) in list(self._claimed.items()):
            if self.store.result(run) is not None or self.store.files(run).attempt(number).ended.exists():
                del self._claimed[name]

    def _refused(self, error: TryLaterError) -> None:
        """Slurm takes no jobs now: try again, later and later; said once."""
        if not self._retry_s:
            self.monitor.note(f"Slurm takes no jobs now ({error}); trying again until it does")
        self._retry_s = min(2 * self._retry_s or self._asked.poll_s, self._asked.poll_s * _SLOWEST_FACTOR)
        self._retry_at = time.monotonic() + self._retry_s

    def _found_after_all(self, members: Sequence[tuple[Run, int]]) -> bool | None:
        """Whether an earlier submission that looked refused is known to Slurm: its answer was lost, not the request.

        A request that was not answered may be taken later still. Like a job, it counts as gone once Slurm has answered
        without it for `unknown_s`.

        Returns:
            None while Slurm does not say, or may yet take it.
        """
        entries = self._entries(members)
        names = {entry.name for entry in entries.values()}
        jobs = self.slurm.queue(names) if names else []
        now = time.monotonic()
        if jobs is None:
            self._unanswered |= {name: math.inf for name in names if name in self._unanswered}
            return None
        if not jobs:
            since = {name: min(now, self._unanswered[name]) for name in names if name in self._unanswered}
            self._unanswered |= since
            return None if any(now - at_s <= self._asked.unknown_s for at_s in since.values()) else False
        for name, entry in entries.items():
            run, number = self._claimed.pop(name)
            self._watched[name] = _Watch(run, number, entry, now, ours=True)
        return True

    def _entries(self, members: Sequence[tuple[Run, int]]) -> dict[str, ledger.Entry]:
        """The ledger's entries of attempts that were submitted before, by run id."""
        read = {run_id(run): ledger.read(self.store.files(run).attempt(number).folder) for run, number in members}
        return {name: entry for name, entry in read.items() if entry is not None}

    def _look_at_jobs(self) -> bool:
        """Results first, then one query for all jobs, then accounting for those that the queue does not know.

        Returns:
            whether a run has become free to be claimed.
        """
        for watch in list(self._watched.values()):
            result = self.store.result(watch.run)
            if result is not None:
                self._finish(watch.run, result, fresh=True)
        if not self._watched:
            return False
        watches = list(self._watched.values())
        for watch in (one for one in watches if one.entry.job_id is None):  # whoever submitted it may know by now
            watch.entry = ledger.read(self._files(watch).folder) or watch.entry
        queued = self.slurm.queue(watch.entry.name for watch in watches)
        self._tell(watches, queued or [])
        lost = [watch for watch in watches if watch.job is None or watch.job.state.phase is Phase.UNKNOWN]
        if lost:
            since = min(watch.entry.submitted_at for watch in lost)
            self._tell(lost, self.slurm.accounting((watch.entry.name for watch in lost), since) or [])
        self._silent(queued is None, [watch for watch in lost if watch.job is None])
        for watch in watches:
            self._follow(watch)
        return any(run_id(watch.run) not in self._watched | self._results for watch in watches)

    def _silent(self, silent: bool, lost: Sequence[_Watch]) -> None:
        """Silence is no answer: a job of which nothing is known goes on while squeue is silent; that is said once."""
        if not silent:
            self._is_silent = False
            return
        for watch in lost:
            watch.unknown_since = time.monotonic()
        if lost and not self._is_silent:
            self._is_silent = True
            self.monitor.note("squeue does not answer; waiting until it does")

    def _tell(self, watches: Iterable[_Watch], jobs: Sequence[Job]) -> None:
        """Give each watch what Slurm says of its job now."""
        known = {(job.name, job.index): job for job in jobs}
        for watch in watches:
            ended = watch.job if watch.job and watch.job.state.phase is Phase.ENDED else None  # Slurm may forget it
            watch.job = known.get((watch.entry.name, watch.entry.index), ended)
            if watch.job is not None and watch.entry.job_id is None:
                watch.entry = msgspec.structs.replace(watch.entry, job_id=watch.job.job_id)
                ledger.write(self._files(watch).folder, watch.entry)

    def _follow(self, watch: _Watch) -> None:
        """What an attempt's job being where it is means for it."""
        now, phase = time.monotonic(), watch.job.state.phase if watch.job else Phase.UNKNOWN
        if phase in (Phase.WAITING, Phase.RUNNING):
            watch.unknown_since, watch.ended_since, watch.seen = now, None, True
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
            judged = self.store.last_failure(run)
            if judged is not None and judged.attempt == watch.number and not self._tries_again(watch, judged):
                self._finish(run, judged, fresh=True)
            return
        result = self._why(watch)
        self.store.end(result)
        if result.outcome.is_result:
            self._finish(run, result, fresh=True)
            return
        del self._watched[name]
        self._blame(watch, result)
        if self._tries_again(watch, result):
            self.monitor.note(f"{name}: {with_evidence(result)}; submitting it again")
            return
        self._finish(run, result, fresh=True)

    def _why(self, watch: _Watch) -> RunResult:
        """Slurm's reason where it ended the job itself, else what ranks reported and srun says of the others."""
        assignment, files = self._assignment(watch.run, watch.number), self._files(watch)
        cause = watch.job.state.cause if watch.job else None
        if cause in (None, Cause.FAILED, Cause.DONE):
            found = reported_failures(files, assignment.ranks)
            told = {failure.rank for failure in found}
            found += [one for one in failures_of_tasks(self._log(watch), files) if one.rank not in told]
            if found:
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

    def _blame(self, watch: _Watch, result: RunResult) -> None:
        """Write down which nodes an attempt failed on, where it was a node's fault, and say which are avoided now."""
        job, log, before = watch.job, self._log(watch), set(self._avoided())
        at_fault = set(failed_nodes(log))
        if job is not None and job.word.split(" ")[0] in NODE_WORDS:
            at_fault |= set(self.slurm.lost_of(job.nodes)) if job.nodes else set()
        if result.failure is FailureKind.KILLED and (job is None or job.state.cause is Cause.FAILED):
            ends = failures_of_tasks(log, self._files(watch))
            at_fault |= {end.host for end in ends if end.kind is FailureKind.KILLED}
        for node in sorted(at_fault):
            of = f"{run_id(watch.run)}.{watch.number}"
            one = nodes.Blame(of=of, why=result.reason or result.outcome, at=utc_now())
            nodes.blame(self.store.root, node, one)
        for node in sorted(set(self._avoided()) - before):
            folder = nodes.folder_of(self.store.root) / node
            self.monitor.note(
                f"{node}: jobs avoid it from now on, after repeated failures (delete {folder} to forgive)"
            )

    def _avoided(self) -> list[str]:
        return nodes.avoided(self.store.root, self._asked.exclude_after)

    def _tries_again(self, watch: _Watch, result: RunResult) -> bool:
        """Whether this driver submits the run once more: what broke outside of it does not count as its failure."""
        name, cause = run_id(watch.run), watch.job.state.cause if watch.job else None
        if not (watch.ours or watch.seen):
            return True  # it ended before this start, which measures again what failed
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

    def _wait(self, *, moved: bool, held: bool) -> None:
        """Sleep until the next look; longer and longer while nothing changes."""
        self._delay_s = self._asked.poll_s if moved else min(self._delay_s * 1.3, self._asked.poll_s * _SLOWEST_FACTOR)
        if held and not (self._watched or self._claimed or self._waits):
            self.monitor.note("another driver submits what is left; waiting for it")
            self._waits = True
        deadline = time.monotonic() + self._delay_s
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            if any(self.store.files(watch.run).result.exists() for watch in self._watched.values()):
                break
            self._beat()

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

    @property
    def _jobs(self) -> Path:
        return self.store.root / "jobs"

    def _log(self, watch: _Watch) -> str:
        """What srun and rank 0's launcher said."""
        return read_log(self._jobs / watch.entry.name / f"{watch.entry.job_id}_0_log.out")

    def _files(self, watch: _Watch) -> AttemptFiles:
        return self.store.files(watch.run).attempt(watch.number)

    def _hardware(self, run: Run) -> Hardware:
        return self.catalogue.hardware[run.hardware]

    def _shape(self, run: Run) -> Shape:
        shape = shape_of(run, self.platform, self._hardware(run), self.expected_s.get(run_id(run)))
        longer = shape.minutes * 2 ** self._timeouts.get(run_id(run), 0)
        return msgspec.structs.replace(shape, minutes=min(longer, self._asked.most_minutes))

    def _step_limit_s(self, run: Run) -> float:
        """Several expected steps; the platform's limit where nothing is expected, or that is longer."""
        limit_s, expected_s = self.platform.iteration_limit_s, self.expected_s.get(run_id(run))
        if expected_s is None:
            return limit_s
        return min(limit_s, max(_STALLED_STEPS * expected_s / steps_of(run), _LEAST_STALL_S))

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
            code_digest=code_digest(),
            threads_per_rank=self.platform.threads_per_rank,
            gpu=self._hardware(run) if self._hardware(run).device_names else None,
            first_step_limit_s=self.platform.first_iteration_limit_s,
            step_limit_s=self._step_limit_s(run),
        )
