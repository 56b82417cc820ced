"""The driver of a cluster against a Slurm of which every answer is scripted: what it submits, and what it concludes."""

import itertools
import os
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling_study.errors import UserError
from scaling_study.processes import identity
from scaling_study.spec import FailureKind, Outcome, ProcessIdentity, Progress, run_id
from scaling_study.submit.slurm import ledger
from tests.unit.samples import TINY, bounded, run_result, training_run
from tests.unit.submit.slurm.simulated import GOOD, MINUTES, Cluster, Fate, driver_of, entry, use

RUN = training_run()
RUNS = [training_run(repeat=repeat) for repeat in range(3)]
FOUR = training_run(dp=4)
#: Too large for `PART`, whose memory is 1 GiB.
HUGE = msgspec.structs.replace(TINY, hidden=8192, ffn=32768)

LOST = Fate(end="NODE_FAIL")
SILENT = Fate(end="FAILED")


@pytest.fixture
def cluster(monkeypatch):
    return use(Cluster(), monkeypatch)


@pytest.fixture
def driver(cluster, tmp_path):
    """Makes drivers of one store."""
    return lambda **settings: driver_of(tmp_path, **settings)


def outcomes(results):
    return [result.outcome for result in results]


def submissions(cluster):
    return [names for _, _, names in cluster.calls]


# -- what is submitted ----------------------------------------------------------------------------------------------


def test_where_there_is_a_result_nothing_is_submitted(cluster, driver):
    one = driver()
    one.store.claim(RUN, one.me)
    one.store.end(run_result(RUN, model=TINY))
    assert one.measure([RUN]) == [run_result(RUN, model=TINY)]
    assert (cluster.calls, cluster.queued_s, cluster.now_s) == ([], [], 0.0)
    assert one.monitor.finished == [(run_id(RUN), False)]


def test_missing_runs_of_one_shape_are_one_submission(cluster, driver):
    one, runs = driver(), [*RUNS, FOUR]
    one.store.claim(RUNS[1], one.me)
    one.store.end(run_result(RUNS[1], model=TINY))
    results = one.measure(runs)
    assert [(result.run, result.outcome) for result in results] == [(run, Outcome.OK) for run in runs]
    assert submissions(cluster) == [[run_id(RUNS[0]), run_id(RUNS[2])], [run_id(FOUR)]]
    assert [(shape.nodes, shape.tasks_per_node, shape.minutes) for _, shape, _ in cluster.calls] == [
        (1, 2, MINUTES), (2, 2, MINUTES),
    ]  # fmt: skip
    assert one.monitor.started == [(run_id(run), position, 4) for position, run in ((1, RUN), (3, RUNS[2]), (4, FOUR))]


def test_runs_of_other_lengths_are_submissions_of_their_own(cluster, driver):
    one = driver(expected_s={run_id(RUNS[0]): 60.0, run_id(RUNS[1]): 600.0})
    one.measure(RUNS[:2])
    assert [(shape.minutes, names) for _, shape, names in cluster.calls] == [
        (1 + 2, [run_id(RUNS[0])]), (1 + 15, [run_id(RUNS[1])]),
    ]  # fmt: skip


def test_a_run_that_cannot_fit_ends_at_once(cluster, driver):
    one = driver()
    one.catalogue.models["tiny"] = HUGE
    (result,) = one.measure([RUN])
    assert (result.outcome, result.attempt) == (Outcome.INFEASIBLE, 1)
    assert "need" in result.reason
    assert (cluster.calls, cluster.now_s) == ([], 0.0)
    assert one.store.result(RUN) == result


@pytest.mark.parametrize("outdated", [True, False])
def test_a_result_of_no_use_is_measured_again_at_once(outdated, cluster, driver):
    """Its job is no longer of interest, whatever Slurm says of it."""
    driver().measure([RUN])
    one = driver(attempts=1)
    path = one.store.files(RUN).result
    older = run_result(RUN, model=msgspec.structs.replace(TINY, layers=7))
    path.write_bytes(msgspec.json.encode(older) if outdated else b"{")
    begun_s = cluster.now_s
    assert outcomes(one.measure([RUN])) == [Outcome.OK]
    assert cluster.calls[1][0] == begun_s
    assert "measuring it again" in one.monitor.notes[0]


def test_progress_is_shown_while_a_job_runs(cluster, driver):
    one = driver()

    def write():
        content = msgspec.json.encode(Progress(done=3, total=7))
        one.store.files(RUN).attempt(1).progress.write_bytes(content)

    cluster.at[20.0] = write
    one.measure([RUN])
    assert set(one.monitor.shown) == {(run_id(RUN), 3)}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (training_run(dp=16, nodes=8, global_batch=16), r"platform it.*it needs 8 nodes, a job may have 4"),
        (training_run(hardware="other"), r"needs other"),
    ],
)
def test_what_a_platform_cannot_hold_is_said_before_anything_is_submitted(run, said, cluster, driver):
    with pytest.raises(UserError, match=said):
        driver().check([RUN, run])
    driver().check([RUN, FOUR])
    assert cluster.calls == []


# -- attempts that are there ----------------------------------------------------------------------------------------


def left_behind(cluster, driver, job_id, fate=GOOD, known=True):
    """An attempt of a driver that is gone: claimed, in the ledger, and known to Slurm."""
    other = driver()
    other.me = ProcessIdentity(host=other.me.host, pid=other.me.pid, started="1.00")
    assert other.store.claim(RUN, other.me) == 1
    one = entry("theirs", job_id=job_id)
    ledger.write(other.store.files(RUN).attempt(1).folder, one)
    if known:
        cluster.fates[run_id(RUN)] = [fate]
        cluster.add(other._assignment(RUN, 1), one, "77")
    return one


@pytest.mark.parametrize("job_id", ["77", None])
def test_a_job_of_a_driver_that_is_gone_is_watched(job_id, cluster, driver):
    """Without an id, the answer of sbatch was lost: Slurm knows the name."""
    left_behind(cluster, driver, job_id)
    one = driver()
    assert outcomes(one.measure([RUN])) == [Outcome.OK]
    assert (cluster.calls, one.store.attempts(RUN)) == ([], 1)
    assert ledger.read(one.store.files(RUN).attempt(1).folder).job_id == "77"
    assert "watching job" in one.monitor.notes[0]


def test_an_attempt_that_never_reached_slurm_is_submitted_again(cluster, driver):
    left_behind(cluster, driver, None, known=False)
    one = driver(unknown_s=100.0)
    assert outcomes(one.measure([RUN])) == [Outcome.OK]
    ((at_s, _, names),) = cluster.calls
    assert names == [run_id(RUN)]
    assert 100.0 < at_s < 300.0
    assert one.store.attempts(RUN) == 2
    lost = msgspec.json.decode(one.store.files(RUN).attempt(1).ended.read_bytes())
    assert (lost["outcome"], lost["failure"]) == ("failed", "killed")


def test_what_another_driver_is_submitting_is_waited_for(cluster, driver):
    other = driver()
    other.store.claim(RUN, other.me)
    cluster.at[30.0] = lambda: other.store.end(run_result(RUN, model=TINY))
    one = driver()
    assert outcomes(one.measure([RUN])) == [Outcome.OK]
    assert (cluster.calls, one.monitor.finished) == ([], [(run_id(RUN), False)])
    assert one.monitor.notes == ["another driver submits what is left; waiting for it"]


def test_a_submission_that_goes_on_elsewhere_is_not_taken_for_a_lost_one(cluster, driver):
    """An entry without a job whose driver lives: between the two writes of the ledger."""
    other = driver()
    other.store.claim(RUN, other.me)
    folder = other.store.files(RUN).attempt(1).folder
    ledger.write(folder, entry("theirs"))

    def answered():
        cluster.add(other._assignment(RUN, 1), entry("theirs"), "77")
        ledger.write(folder, entry("theirs", job_id="77"))

    cluster.at[500.0] = answered
    one = driver(unknown_s=60.0)
    assert outcomes(one.measure([RUN])) == [Outcome.OK]
    assert (cluster.calls, one.store.attempts(RUN)) == ([], 1)


# -- how jobs end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "reports", "outcome", "jobs"),
    [
        ("COMPLETED", None, Outcome.FAILED, 3),
        ("FAILED", None, Outcome.FAILED, 3),
        (None, None, Outcome.FAILED, 3),
        ("FAILED", FailureKind.KILLED, Outcome.FAILED, 3),
        ("FAILED", FailureKind.ERROR, Outcome.FAILED, 1),
        ("FAILED", FailureKind.NOT_FINITE, Outcome.FAILED, 1),
        ("FAILED", FailureKind.OUT_OF_MEMORY, Outcome.OUT_OF_MEMORY, 1),
        ("OUT_OF_MEMORY", None, Outcome.OUT_OF_MEMORY, 1),
        ("TIMEOUT", None, Outcome.TIMEOUT, 3),
        ("TIMEOUT", FailureKind.ERROR, Outcome.TIMEOUT, 3),
        ("DEADLINE", None, Outcome.TIMEOUT, 3),
        ("CANCELLED by 7", None, Outcome.FAILED, 1),
        ("CANCELLED by 7", FailureKind.KILLED, Outcome.FAILED, 1),
        ("PREEMPTED", None, Outcome.FAILED, 1 + 5),
        ("NODE_FAIL", FailureKind.PEER_LOST, Outcome.FAILED, 1 + 5),
        ("BOOT_FAIL", None, Outcome.FAILED, 1 + 5),
    ],
)
def test_every_end_has_its_outcome_and_its_number_of_attempts(word, reports, outcome, jobs, cluster, driver):
    cluster.fates[run_id(RUN)] = [Fate(end=word, reports=reports)] * 10
    one = driver(attempts=3, restarts=5)
    (result,) = one.measure([RUN])
    assert (result.outcome, len(cluster.jobs), result.attempt) == (outcome, jobs, jobs)
    assert (one.store.result(RUN) is not None) == outcome.is_result
    assert one.store.last_failure(RUN) == (None if outcome.is_result else result)
    assert cluster.doubled == []


@pytest.mark.parametrize(("attempts", "jobs"), [(1, 1), (4, 4)])
def test_a_run_that_is_killed_is_tried_as_often_as_the_platform_says(attempts, jobs, cluster, driver):
    cluster.fates[run_id(RUN)] = [SILENT] * 10
    driver(attempts=attempts).measure([RUN])
    assert len(cluster.jobs) == jobs


def test_what_broke_outside_of_a_run_does_not_count_as_its_failure(cluster, driver):
    cluster.fates[run_id(RUN)] = [LOST, SILENT, LOST, GOOD]
    (result,) = driver(attempts=2, restarts=2).measure([RUN])
    assert (result.outcome, result.attempt) == (Outcome.OK, 4)


def test_runs_are_counted_apart(cluster, driver):
    for run in RUNS:
        cluster.fates[run_id(run)] = [SILENT, GOOD]
    assert outcomes(driver(attempts=2).measure(RUNS)) == [Outcome.OK] * 3
    assert [len(cluster.of(run)) for run in RUNS] == [2, 2, 2]


def test_a_time_limit_doubles_up_to_the_longest_that_a_job_may_have(cluster, driver):
    cluster.fates[run_id(RUN)] = [Fate(end="TIMEOUT")] * 3
    (result,) = driver(attempts=4, most_minutes=30).measure([RUN])
    assert result.outcome is Outcome.OK
    assert [shape.minutes for _, shape, _ in cluster.calls] == [11, 22, 30, 30]


@pytest.mark.parametrize("word", ["FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED by 7", "NODE_FAIL", "ODD", None])
def test_the_result_wins_over_the_word_of_slurm(word, cluster, driver):
    cluster.fates[run_id(RUN)] = [Fate(end=word, result=True, reports=FailureKind.ERROR)]
    assert outcomes(driver().measure([RUN])) == [Outcome.OK]
    assert len(cluster.jobs) == 1


def test_a_result_that_appears_just_after_the_end_of_its_job_is_waited_for(cluster, driver):
    cluster.fates[run_id(RUN)] = [Fate(end="COMPLETED")]
    one = driver(poll_s=2.0)
    cluster.at[49.0] = lambda: one.store.end(run_result(RUN, model=TINY))  # the job ends at 45 s
    assert outcomes(one.measure([RUN])) == [Outcome.OK]
    assert len(cluster.jobs) == 1


@pytest.mark.parametrize("word", ["ODD", None])
def test_a_job_that_slurm_does_not_know_for_a_while_is_waited_for(word, cluster, driver):
    steps = ((20.0, word), (20.0, "PENDING"), (80.0, word), (20.0, "RUNNING"), (80.0, word))
    cluster.fates[run_id(RUN)] = [Fate(steps=steps, result=True)]
    assert outcomes(driver(unknown_s=120.0).measure([RUN])) == [Outcome.OK]
    assert len(cluster.jobs) == 1


def test_a_job_that_slurm_has_forgotten_is_judged_after_its_time_and_not_before(cluster, driver):
    cluster.fates[run_id(RUN)] = [Fate(end=None), GOOD]
    assert outcomes(driver(unknown_s=500.0).measure([RUN])) == [Outcome.OK]
    assert cluster.calls[1][0] > 500.0


def test_an_end_that_was_seen_once_holds_where_slurm_forgets_the_job_soon_after(cluster, driver):
    steps = ((30.0, "RUNNING"), (20.0, "CANCELLED by 7"))
    cluster.fates[run_id(RUN)] = [Fate(steps=steps, end=None), GOOD]
    driver().measure([RUN])
    assert len(cluster.jobs) == 1


# -- a Slurm that does not answer -----------------------------------------------------------------------------------

HOUR = Fate(steps=((10.0, "PENDING"), (3600.0, "RUNNING")), result=True)


def test_a_queue_that_is_down_for_less_than_the_time_judges_nothing(cluster, driver):
    cluster.fates[run_id(RUN)] = [HOUR]
    cluster.queue_down = lambda now_s: now_s % 400 < 110
    assert outcomes(driver(unknown_s=120.0).measure([RUN])) == [Outcome.OK]
    assert len(cluster.jobs) == 1


def test_a_slurm_that_does_not_answer_has_forgotten_nothing(cluster, driver):
    cluster.fates[run_id(RUN)] = [HOUR]
    cluster.queue_down = lambda now_s: 100 < now_s < 1000
    driver(unknown_s=120.0).measure([RUN])
    assert cluster.doubled == []


def test_accounting_answers_for_a_queue_that_is_down(cluster, driver):
    cluster.fates[run_id(RUN)] = [HOUR]
    cluster.queue_down, cluster.accounting_down = (lambda now_s: 100 < now_s < 3000), (lambda now_s: False)
    assert outcomes(driver(unknown_s=60.0).measure([RUN])) == [Outcome.OK]
    assert len(cluster.jobs) == 1


def test_accounting_says_how_a_job_ended_that_the_queue_has_forgotten(cluster, driver):
    """Well before the time after which an unknown job counts as gone, and with the reason."""
    cluster.fates[run_id(RUN)] = [Fate(end="OUT_OF_MEMORY")]
    cluster.queue_down, cluster.accounting_down = (lambda now_s: now_s > 40), (lambda now_s: False)
    (result,) = driver(unknown_s=10_000.0).measure([RUN])
    assert (result.outcome, len(cluster.jobs)) == (Outcome.OUT_OF_MEMORY, 1)
    assert "OUT_OF_MEMORY" in result.reason
    assert cluster.now_s < 300


def test_accounting_is_not_asked_for_what_the_queue_knows(cluster, driver):
    cluster.accounting_down = lambda now_s: pytest.fail("accounting was asked")
    assert outcomes(driver().measure(RUNS)) == [Outcome.OK] * 3


def far_and_near(driver):
    """Drivers on two hosts, and what makes the claim of the far one look as if it had died."""
    far, near = driver(), driver()
    far.me = ProcessIdentity(host="another-host.example", pid=1, started="1.00")
    claim = far.store.files(RUN).attempt(1).claim
    return far, near, lambda: os.utime(claim, (0, 0))


# -- submissions that fail ------------------------------------------------------------------------------------------


def test_what_slurm_does_not_take_now_is_tried_again_later_and_later(cluster, driver):
    cluster.answers = ["refused"] * 8
    one = driver(poll_s=10.0)
    assert outcomes(one.measure([RUN])) == [Outcome.OK]
    at_s = [at_s for at_s, _, _ in cluster.calls]
    gaps_s = [after - before for before, after in itertools.pairwise(at_s)]
    assert len(at_s) == 9
    assert gaps_s[0] >= 10.0
    assert gaps_s[-1] > 4 * gaps_s[0]
    assert (len(cluster.jobs), one.store.attempts(RUN)) == (1, 1)
    assert all("Slurm takes no jobs now (AssocMaxSubmitJobLimit)" in note for note in one.monitor.notes)


def test_a_result_in_between_does_not_hasten_the_next_try(cluster, driver):
    cluster.answers = ["taken", "refused"]
    cluster.fates[run_id(RUN)] = [Fate(steps=((3.0, "RUNNING"),), result=True)]
    driver(poll_s=10.0).measure([RUN, FOUR])
    _, (refused_s, _, _), (again_s, _, _) = cluster.calls
    assert again_s - refused_s >= 10.0


def test_other_shapes_wait_with_the_one_that_is_refused(cluster, driver):
    cluster.answers = ["refused"]
    assert outcomes(driver().measure([RUN, FOUR])) == [Outcome.OK] * 2
    assert submissions(cluster) == [[run_id(RUN)], [run_id(RUN)], [run_id(FOUR)]]


def test_a_submission_whose_answer_was_lost_is_not_submitted_twice(cluster, driver):
    cluster.answers = ["lost"]
    one = driver()
    assert outcomes(one.measure([*RUNS, FOUR])) == [Outcome.OK] * 4
    assert submissions(cluster) == [[run_id(run) for run in RUNS], [run_id(FOUR)]]
    assert [ledger.read(one.store.files(run).attempt(1).folder).job_id for run in RUNS] == ["1_0", "1_1", "1_2"]


def test_a_lost_answer_is_not_submitted_twice_where_the_queue_is_down_as_well(cluster, driver):
    cluster.answers, cluster.queue_down = ["lost"], (lambda now_s: now_s < 5)
    driver().measure([RUN])
    assert cluster.doubled == []


def test_what_slurm_takes_after_sbatch_has_given_up_is_not_submitted_twice(cluster, driver):
    cluster.answers = ["late"]
    one = driver()
    assert outcomes(one.measure(RUNS)) == [Outcome.OK] * 3
    assert submissions(cluster) == [[run_id(run) for run in RUNS]]


def test_an_unanswered_submission_counts_as_gone_once_the_queue_has_answered_without_it_for_long(cluster, driver):
    cluster.answers, cluster.queue_down = ["nowhere"], (lambda now_s: 100 < now_s < 400)
    assert outcomes(driver(unknown_s=120.0).measure([RUN])) == [Outcome.OK]
    _, (again_s, _, _) = cluster.calls
    assert 340.0 + 120.0 < again_s < 400.0 + 120.0 + 60.0  # the last silence, and looks a minute apart


def test_one_look_that_misses_it_is_not_enough_however_rare_looks_are(cluster, driver):
    cluster.answers, cluster.late_s = ["refused"] * 4 + ["late"], 400.0
    cluster.fates[run_id(RUN)] = [HOUR]
    driver(poll_s=60.0, unknown_s=120.0).measure([RUN])
    assert cluster.doubled == []
    assert len(cluster.jobs) == 1


def test_a_result_of_a_job_whose_answer_was_lost_is_believed_though_slurm_has_forgotten_it(cluster, driver):
    cluster.answers = ["lost"]
    cluster.fates[run_id(RUN)] = [Fate(steps=((3.0, "PENDING"), (4.0, "RUNNING")), end=None, result=True)]
    assert outcomes(driver().measure([RUN])) == [Outcome.OK]
    assert len(cluster.jobs) == 1


def test_who_hung_in_sbatch_while_another_took_over_does_not_submit_the_old_attempt(cluster, driver):
    cluster.fates[run_id(RUN)] = [HOUR]
    far, near, grow_old = far_and_near(driver)
    cluster.answers, cluster.asked_s = ["nowhere"], 300.0
    cluster.at[60.0] = grow_old
    cluster.side_by_side(lambda: far.measure([RUN]), lambda: near.measure([RUN]))
    assert cluster.doubled == []
    assert [job.assignment.attempt for job in cluster.jobs] == [2]


def test_other_shapes_do_not_wait_for_a_submission_that_was_not_answered(cluster, driver):
    cluster.answers = ["nowhere"]
    driver(unknown_s=1000.0).measure([RUN, FOUR])
    at_s = {names[0]: now_s for now_s, _, names in cluster.calls}
    assert at_s[run_id(FOUR)] < 100.0
    assert at_s[run_id(RUN)] > 1000.0


def test_what_was_found_after_all_makes_the_next_refusal_a_first_one(cluster, driver):
    cluster.answers = ["lost", "refused"]
    one = driver(poll_s=10.0)
    one.measure([RUN, FOUR])
    _, (refused_s, _, _), (again_s, _, _) = cluster.calls
    assert again_s - refused_s < 30.0
    assert [note for note in one.monitor.notes if "AssocMaxSubmitJobLimit" in note]


def test_a_refusal_is_tried_again_without_such_a_wait(cluster, driver):
    cluster.answers = ["refused"]
    driver(poll_s=10.0, unknown_s=1000.0).measure([RUN])
    (refused_s, _, _), (again_s, _, _) = cluster.calls
    assert again_s - refused_s < 60.0


def test_a_refusal_for_good_is_one_error(cluster, driver, monkeypatch):
    def refuse(*_, **__):
        raise UserError("sbatch refuses the job")

    monkeypatch.setattr("scaling_study.submit.slurm.driver.submit", refuse)
    with pytest.raises(UserError, match="sbatch refuses the job"):
        driver().measure([RUN])


def test_claims_that_wait_for_slurm_are_kept_alive(cluster, driver):
    cluster.answers = ["refused"] * 3
    one, seen = driver(), []
    claim = one.store.files(RUN).attempt(1).claim
    cluster.at[5.0] = lambda: os.utime(claim, (0, 0))
    cluster.at[30.0] = lambda: seen.append(claim.stat().st_mtime)
    one.measure([RUN])
    assert seen[0] > 0


# -- waiting --------------------------------------------------------------------------------------------------------


def test_looks_become_rarer_while_nothing_changes_and_frequent_after_progress(cluster, driver):
    cluster.fates[run_id(RUNS[0])] = [Fate(steps=((2000.0, "RUNNING"),), result=True)]
    cluster.fates[run_id(RUNS[1])] = [Fate(steps=((4000.0, "RUNNING"),), result=True)]
    driver(poll_s=10.0).measure(RUNS[:2])
    before = [at_s for at_s in cluster.queued_s if at_s < 2000]
    after = [at_s for at_s in cluster.queued_s if at_s > 2000]
    for looks in (before, after):
        gaps_s = [after_s - before_s for before_s, after_s in itertools.pairwise(looks)]
        assert gaps_s == sorted(gaps_s) or max(gaps_s) == pytest.approx(60.0, abs=0.2)
        assert gaps_s[0] < 15
        assert gaps_s[-1] == pytest.approx(60.0, abs=0.2)
    assert len(cluster.queued_s) < 90


def test_a_result_ends_the_wait_for_the_next_look(cluster, driver):
    cluster.fates[run_id(RUN)] = [HOUR]
    driver(poll_s=100.0).measure([RUN])
    assert cluster.now_s - 3610 < 3


def test_the_last_result_ends_the_driver_without_a_word(cluster, driver):
    one = driver(poll_s=100.0)
    one.measure([RUN])
    assert one.monitor.notes == []
    assert cluster.now_s < 50  # the job has ended after 45 s


def test_who_submits_a_run_again_does_not_wait_for_others(cluster, driver):
    cluster.fates[run_id(RUN)] = [SILENT]
    one = driver()
    one.measure([RUN])
    assert not any("another driver" in note for note in one.monitor.notes)


# -- interruption ---------------------------------------------------------------------------------------------------


def _interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("what", ["leave", "cancel"])
def test_an_interruption_leaves_jobs_or_cancels_those_of_this_driver(what, cluster, driver):
    left_behind(cluster, driver, "77", fate=HOUR)
    for run in RUNS:
        cluster.fates.setdefault(run_id(run), []).append(HOUR)
    cluster.at[20.0] = _interrupt
    one = driver(on_interrupt=what)
    with pytest.raises(KeyboardInterrupt):
        one.measure(RUNS)
    assert cluster.cancelled == ([] if what == "leave" else ["1_0", "1_1"])
    assert f"(slurm.on_interrupt: {what})" in one.monitor.notes[-1]
    assert "2 jobs" in one.monitor.notes[-1]


def test_an_interruption_before_anything_is_submitted_says_nothing(cluster, driver):
    cluster.answers = ["refused"] * 5
    cluster.at[20.0] = _interrupt
    one = driver(on_interrupt="cancel")
    with pytest.raises(KeyboardInterrupt):
        one.measure([RUN])
    assert cluster.cancelled == []
    assert not any("interrupted" in note for note in one.monitor.notes)


def test_the_next_start_watches_what_was_left(cluster, driver):
    for run in RUNS:
        cluster.fates[run_id(run)] = [HOUR]
    cluster.at[20.0] = _interrupt
    with pytest.raises(KeyboardInterrupt):
        driver().measure(RUNS)
    assert outcomes(driver().measure(RUNS)) == [Outcome.OK] * 3
    assert len(cluster.calls) == 1


# -- several drivers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fates", [[], [LOST, GOOD], [SILENT, LOST, GOOD], [Fate(end="TIMEOUT"), GOOD]])
def test_two_drivers_share_the_attempts_of_a_run(fates, cluster, driver):
    for run in RUNS:
        cluster.fates[run_id(run)] = list(fates)
    one, other = driver(), driver()
    found = cluster.side_by_side(lambda: one.measure(RUNS[:2]), lambda: other.measure(RUNS[1:]))
    assert [outcomes(results) for results in found] == [[Outcome.OK] * 2] * 2
    assert [len(cluster.of(run)) for run in RUNS] == [max(1, len(fates))] * 3
    assert cluster.doubled == []


@pytest.mark.parametrize("fate", [Fate(end="CANCELLED by 7"), Fate(end="FAILED", reports=FailureKind.ERROR)])
def test_what_one_driver_gives_up_no_other_submits_again(fate, cluster, driver):
    cluster.fates[run_id(RUN)] = [fate] * 5
    one, other = driver(), driver()
    cluster.side_by_side(lambda: one.measure([RUN]), lambda: other.measure([RUN]))
    assert len(cluster.jobs) == 1


def test_a_claim_that_was_taken_over_is_not_submitted(cluster, driver):
    """Slurm hangs for longer than the claims of a driver on another host count as alive."""
    cluster.fates[run_id(RUN)] = [HOUR]
    far, near, grow_old = far_and_near(driver)
    cluster.answers, cluster.answers_in_s, cluster.queue_down = ["refused"], 60.0, lambda now_s: now_s < 65
    cluster.at = {0.9: grow_old, 65.0: lambda: setattr(cluster, "answers_in_s", 0.1)}
    cluster.side_by_side(lambda: far.measure([RUN]), lambda: near.measure([RUN]))
    assert cluster.doubled == []


# -- whatever Slurm does --------------------------------------------------------------------------------------------

#: An example is hours of a driver.
few = settings(bounded, max_examples=25)

_unknown = st.tuples(st.floats(1, 40), st.sampled_from([None, "ODD"]))
_waiting = st.tuples(st.floats(0, 60), st.sampled_from(["PENDING", "CONFIGURING", "REQUEUED"]))
_running = st.tuples(st.floats(0, 150), st.sampled_from(["RUNNING", "SUSPENDED", "COMPLETING"]))
_ends = st.sampled_from(
    ["COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED by 7", "PREEMPTED", "NODE_FAIL", "ODD", None]
)
_fates = st.builds(
    lambda steps, end, result, reports: Fate(steps=tuple(steps), end=end, result=result, reports=reports),
    st.tuples(_waiting, _unknown, _running) | st.tuples(_unknown, _waiting, _running) | st.tuples(_waiting, _running),
    _ends,
    st.booleans(),
    st.none() | st.sampled_from(FailureKind),
)
_scripts = st.fixed_dictionaries(
    {
        "fates": st.lists(st.lists(_fates, max_size=4), min_size=len(RUNS), max_size=len(RUNS)),
        "answers": st.lists(st.sampled_from(["taken", "refused", "lost", "late", "nowhere"]), max_size=6),
        "down_s": st.lists(st.integers(0, 20).map(lambda number: 200 * number), max_size=5),
        "accounting": st.booleans(),
    }
)


def scripted(script, monkeypatch):
    """A Slurm of a random script, which is never silent for as long as a job may be unknown nor after a lost answer."""
    unsure = {"lost", "late"} & set(script["answers"])
    cluster, seen = use(Cluster(), monkeypatch), ((90.0, "PENDING"),) if unsure else ()
    for run, fates in zip(RUNS, script["fates"], strict=True):
        cluster.fates[run_id(run)] = [msgspec.structs.replace(fate, steps=(*seen, *fate.steps)) for fate in fates]
    cluster.answers = list(script["answers"])
    cluster.accounting_down = lambda now_s: not script["accounting"]

    def down(now_s):
        just_asked = any(now_s - at_s < 5 for at_s, _, _ in cluster.calls)
        return not just_asked and any(0 <= now_s - begin_s < 40 for begin_s in script["down_s"])

    cluster.queue_down = down
    return cluster


def check(cluster, store, results):
    """Each run has one end: the result that a job wrote, or a failure; never two jobs at a time."""
    assert cluster.doubled == []
    assert [result.run for result in results] == RUNS
    for run, result in zip(RUNS, results, strict=True):
        jobs = cluster.of(run)
        assert 1 <= len(jobs) <= len({job.assignment.attempt for job in jobs})
        assert not any(job.lives(cluster.now_s) for job in jobs)
        wrote = any(job.left and job.fate.result for job in jobs)
        assert (result.outcome is Outcome.OK) == wrote
        assert (store.result(run) == result) == result.outcome.is_result


@few
@given(_scripts)
def test_whatever_slurm_answers_every_run_ends_once(script):
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as folder:
        cluster = scripted(script, monkeypatch)
        one = driver_of(Path(folder))
        check(cluster, one.store, one.measure(RUNS))
        assert sorted(name for name, _ in one.monitor.finished) == sorted(map(run_id, RUNS))
        assert all(len(cluster.of(run)) <= 2 + 2 for run in RUNS)  # attempts and restarts


@few
@given(_scripts, st.floats(0, 600))
def test_whenever_a_driver_is_interrupted_the_next_goes_on(script, at_s):
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as folder:
        cluster, dead = scripted(script, monkeypatch), []
        monkeypatch.setattr("scaling_study.submit.store.is_alive", lambda owner: owner not in dead)
        cluster.at[at_s] = _interrupt
        one, other = driver_of(Path(folder)), driver_of(Path(folder))
        one.me = msgspec.structs.replace(identity(), started="1.00")
        try:
            results = one.measure(RUNS)
        except KeyboardInterrupt:
            dead.append(one.me)
            results = other.measure(RUNS)
        check(cluster, one.store, results)


@few
@given(_scripts)
def test_whatever_slurm_answers_two_drivers_never_have_two_jobs_of_a_run(script):
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as folder:
        cluster = scripted(script, monkeypatch)
        one, other = driver_of(Path(folder)), driver_of(Path(folder))
        found = cluster.side_by_side(lambda: one.measure(RUNS), lambda: other.measure(RUNS))
        assert cluster.doubled == []
        assert [[result.run for result in results] for results in found] == [RUNS, RUNS]
