"""A Slurm of which every answer is scripted, on a clock of its own: a driver's hours pass in milliseconds.

A job follows its `Fate`; what it leaves in the store appears when its last step ends. Several drivers take turns: each
goes on until it sleeps or waits for Slurm, then the one that wakes first.
"""

import threading
from pathlib import Path

import msgspec

from scaling_study.spec import (
    AttemptFiles,
    Catalogue,
    Executor,
    FailureKind,
    Platform,
    RankFailure,
    RunFiles,
    SlurmSettings,
    run_id,
)
from scaling_study.submit import RunStore, SlurmDriver
from scaling_study.submit.slurm import ledger
from scaling_study.submit.slurm.commands import Job
from scaling_study.submit.slurm.submission import TryLaterError
from tests.unit.samples import PART, TINY, run_result

DRIVER = "scaling_study.submit.slurm.driver"
#: Long before any driver of a test should have come to its end.
_TOO_LATE_S = 30_000.0
#: Start-up of a minute, and runs that nothing predicts: 11 minutes.
MINUTES = 11
SETTINGS = SlurmSettings(
    partition="main", nodes=4, nodes_at_once=4, most_minutes=30, least_minutes=1, start_up_minutes=1.0, restarts=2
)


class Fate(msgspec.Struct, frozen=True):
    """What becomes of a job.

    Attributes:
        steps: seconds and the word of squeue meanwhile; None where Slurm does not know the job.
        end: the word afterwards.
        result: whether `result.json` appears at the end.
        reports: how rank 0 says it failed, at the end.
    """

    steps: tuple[tuple[float, str | None], ...] = ((15.0, "PENDING"), (30.0, "RUNNING"))
    end: str | None = "COMPLETED"
    result: bool = False
    reports: FailureKind | None = None


GOOD = Fate(result=True)


class Submitted:
    """A job as the simulated Slurm has it."""

    def __init__(self, job_id, entry, assignment, at_s, fate):
        self.job_id, self.entry, self.assignment, self.at_s, self.fate = job_id, entry, assignment, at_s, fate
        self.cancelled_s, self.left = None, False
        self.run_id, self.length_s = run_id(assignment.run), sum(seconds for seconds, _ in fate.steps)

    def word(self, now_s):
        if self.cancelled_s is not None:
            return "CANCELLED by 7"
        passed_s = now_s - self.at_s
        for seconds, word in self.fate.steps:
            if passed_s < seconds:
                return word
            passed_s -= seconds
        return self.fate.end

    def lives(self, now_s):
        """Whether it may still do something, whatever Slurm says of it."""
        return self.cancelled_s is None and now_s - self.at_s < self.length_s

    def leave(self):
        """What ranks write at their end."""
        self.left = True
        if self.cancelled_s is not None:
            return
        files = AttemptFiles(Path(self.assignment.attempt_folder))
        if self.fate.reports:
            failure = RankFailure(rank=0, host="n1", kind=self.fate.reports, message="it", traceback="", at_ns=1)
            files.failure(0).write_bytes(msgspec.json.encode(failure))
        if self.fate.result:
            path = RunFiles(Path(self.assignment.run_folder)).result
            result = run_result(self.assignment.run, model=TINY, attempt=self.assignment.attempt)
            path.write_bytes(msgspec.json.encode(result))


class Cluster:
    """Slurm, `sbatch` and the clock.

    Attributes:
        fates: of a run's jobs, in the order of their submission, by run id; `GOOD` where there is none left.
        answers: of sbatch, one a call: `taken`, `refused`, or none: `lost` where Slurm has taken the jobs, `late` where
            it takes them `late_s` later, `nowhere` where it never does; then `taken`.
        asked_s: how long sbatch takes where it gets no answer.
        queue_down, accounting_down: whether the command fails at a second; accounting is not there by default.
        answers_in_s: how long squeue and sacct take.
        at: what is planned at which second.
        doubled: run ids that were submitted while a job of theirs lived.
    """

    def __init__(self):
        self.now_s, self.jobs, self.fates, self.answers = 0.0, [], {}, []
        self.queue_down, self.accounting_down = (lambda now_s: False), (lambda now_s: True)
        self.calls, self.queued_s, self.cancelled, self.doubled = [], [], [], []
        self.answers_in_s, self.asked_s, self.late_s, self.at = 0.1, 0.5, 60.0, {}
        self._turns = None

    # -- the clock ----------------------------------------------------------------------------------------------

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        if self._turns is not None and threading.current_thread() in self._turns:
            self._turns[threading.current_thread()].sleep(self.now_s + seconds)
        else:
            self.go_to(self.now_s + seconds)

    def go_to(self, now_s):
        """Let time pass: jobs end, and what a test has planned happens."""
        assert now_s < _TOO_LATE_S, "the driver comes to no end"
        self.now_s = max(self.now_s, now_s)
        for job in self.jobs:
            if not job.left and not job.lives(self.now_s):
                job.leave()
        for planned_s in [planned_s for planned_s in sorted(self.at) if planned_s <= self.now_s]:
            self.at.pop(planned_s)()

    def side_by_side(self, *calls):
        """What several drivers return, which take turns."""
        ready = threading.Semaphore(0)
        turns = [_Turn(call, ready) for call in calls]
        self._turns = {turn.thread: turn for turn in turns}
        for turn in turns:
            turn.thread.start()
            ready.acquire()
        while waiting := [turn for turn in turns if not turn.done]:
            turn = min(waiting, key=lambda one: one.wakes_s)
            self.go_to(turn.wakes_s)
            turn.go.release()
            ready.acquire()
        return [turn.returned() for turn in turns]

    # -- Slurm's commands ---------------------------------------------------------------------------------------

    def queue(self, names):
        wanted = set(names)
        self.sleep(self.answers_in_s)
        self.queued_s.append(self.now_s)
        return None if self.queue_down(self.now_s) else self._known(wanted)

    def accounting(self, names, since):
        wanted = set(names)
        self.sleep(self.answers_in_s)
        return None if self.accounting_down(self.now_s) else self._known(wanted)

    def _known(self, names):
        found = [(job, job.word(self.now_s)) for job in self.jobs if job.entry.name in names]
        return [Job(name=job.entry.name, job_id=job.job_id, word=word) for job, word in found if word is not None]

    def cancel(self, job_ids):
        self.cancelled += job_ids
        for job in self.jobs:
            if job.job_id in job_ids and job.lives(self.now_s):
                job.cancelled_s = self.now_s
        return True

    def submit(self, assignments, platform, shape, folder, *_, **__):
        """In the place of `submission.submit`."""
        answer = self.answers.pop(0) if self.answers else "taken"
        self.calls.append((self.now_s, shape, [run_id(one.run) for one in assignments]))
        number = len(self.calls)
        entries = [entry(f"job-{number}", index, shape) for index in range(len(assignments))]
        for assignment, one in zip(assignments, entries, strict=True):
            ledger.write(Path(assignment.attempt_folder), one)
        self.sleep(0.5)
        ids = [f"{number}_{index}" for index in range(len(entries))] if len(entries) > 1 else [str(number)]

        def take():
            for assignment, one, job_id in zip(assignments, entries, ids, strict=True):
                self.add(assignment, one, job_id)

        if answer in ("taken", "lost"):
            take()
        if answer == "late":
            self.at[self.now_s + self.late_s] = take
        self.sleep(0.5 if answer in ("taken", "refused") else self.asked_s)
        if answer == "refused":
            raise TryLaterError("AssocMaxSubmitJobLimit")
        if answer != "taken":
            raise TryLaterError("Socket timed out", unanswered=True)
        known = [msgspec.structs.replace(one, job_id=job_id) for one, job_id in zip(entries, ids, strict=True)]
        for assignment, one in zip(assignments, known, strict=True):
            ledger.write(Path(assignment.attempt_folder), one)
        return known

    def add(self, assignment, one, job_id):
        """A job that Slurm has taken."""
        name = run_id(assignment.run)
        if any(job.run_id == name and job.lives(self.now_s) for job in self.jobs):
            self.doubled.append(name)
        fates = self.fates.get(name, [])
        job = Submitted(job_id, one, assignment, self.now_s, fates.pop(0) if fates else GOOD)
        self.jobs.append(job)
        return job

    def of(self, run):
        """The jobs of a run."""
        return [job for job in self.jobs if job.run_id == run_id(run)]


class _Turn:
    """A driver in a thread of its own that waits for its turn whenever it sleeps."""

    def __init__(self, call, ready):
        self.go, self.ready, self.done, self.wakes_s = threading.Semaphore(0), ready, False, 0.0
        self._call, self._outcome = call, None
        self.thread = threading.Thread(target=self._work, daemon=True)

    def _work(self):
        try:
            self._outcome = (self._call(), None)
        except BaseException as error:
            self._outcome = (None, error)
        self.done = True
        self.ready.release()

    def sleep(self, wakes_s):
        self.wakes_s = wakes_s
        self.ready.release()
        self.go.acquire()

    def returned(self):
        value, error = self._outcome
        if error is not None:
            raise error
        return value


class Told:
    """A monitor that remembers."""

    def __init__(self):
        self.started, self.shown, self.finished, self.notes = [], [], [], []

    def start(self, run, position, total):
        self.started.append((run_id(run), position, total))

    def progress(self, run, progress):
        self.shown.append((run_id(run), progress.done))

    def finish(self, run, result, *, fresh):
        assert not fresh or run_id(run) in [name for name, _, _ in self.started]
        self.finished.append((run_id(run), fresh))

    def note(self, message):
        self.notes.append(message)


def entry(name, index=0, shape=None, job_id=None):
    minutes, nodes = (shape.minutes, shape.nodes) if shape else (MINUTES, 1)
    return ledger.Entry(
        name=name, index=index, job_id=job_id, submitted_at="2030-01-31T12:00:00", minutes=minutes, nodes=nodes
    )


def use(cluster, monkeypatch):
    """Put the simulated Slurm in the place of the real one."""
    monkeypatch.setattr(f"{DRIVER}.Slurm", lambda: cluster)
    monkeypatch.setattr(f"{DRIVER}.submit", cluster.submit)
    monkeypatch.setattr(f"{DRIVER}.time", cluster)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    return cluster


def driver_of(folder, expected_s=None, attempts=2, hardware=PART, **settings):
    """A driver of one platform whose store is in a folder."""
    platform = Platform(
        name="it", title="t", executor=Executor.SLURM, hardware=hardware.name, run_limit_s=600.0, attempts=attempts,
        slurm=msgspec.structs.replace(SETTINGS, **settings),
    )  # fmt: skip
    catalogue = Catalogue(models={"tiny": TINY}, hardware={hardware.name: hardware})
    return SlurmDriver(platform, catalogue, RunStore(folder / "store"), folder / "data", Told(), expected_s or {})
