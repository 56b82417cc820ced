"""What clusters do to runs and drivers: afterwards the study is finished, nothing measured twice, no job left."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from tests.slurm.cluster import _environment, _processes

TWO = 1  # of the runs of the sweep, the one of two ranks


@pytest.fixture(autouse=True)
def long_enough(study):
    """Runs of some seconds, so that something can happen to them."""
    _set_iterations(study, 300)


def _set_iterations(study, count):
    path = study.config / "studies/scenario.yaml"
    path.write_text(re.sub(r"iterations: \d+, discard", f"iterations: {count}, discard", path.read_text()))


def name_of(study, index=TWO):
    return study.run_ids()[index]


def ranks_of(study, name):
    """Process ids of the ranks of a run's latest attempt."""
    paths = sorted(study.attempts(name)[-1].glob("rank-[0-9][0-9][0-9].json"))
    return [json.loads(path.read_text())["pid"] for path in paths]


def finished(study, submitted):
    """The study is finished by one more start, with so many submissions of each run, and no job is left."""
    code, said = study.measure()
    assert code == 0, said
    assert set(study.records()["outcome"]) == {"ok"}
    assert [len(study.entries(name)) for name in study.run_ids()] == submitted
    study.until(lambda: not study.alive())
    return said


def test_jobs_outlive_their_driver_and_the_next_one_watches_them(study):
    driver = study.start()
    study.until_running(name_of(study))
    study.kill(driver)
    assert "watching job" in finished(study, [1, 1])


def test_an_answer_that_was_lost_is_found_by_name(study):
    driver = study.start()
    entry = study.until_running(name_of(study))
    study.kill(driver)
    path = study.attempts(name_of(study))[0] / "job.json"
    path.write_text(json.dumps({**entry, "job_id": None}))  # killed before sbatch's answer was written
    finished(study, [1, 1])
    assert (
        study.entries(name_of(study))[0]["job_id"] == entry["job_id"]
        or (study.store(name_of(study)) / "result.json").exists()
    )


def test_what_was_never_submitted_is_submitted_once(study):
    driver = study.start()
    study.until(lambda: all(study.entries(name) for name in study.run_ids()))
    study.kill(driver)
    study.until(lambda: not study.alive() or not [study.cluster.run("scancel", job[1]) for job in study.alive()])
    name = name_of(study)
    attempt, entry = study.attempts(name)[0], study.entries(name)[0]
    for path in attempt.glob("rank-*"):
        path.unlink()
    (study.store(name) / "result.json").unlink(missing_ok=True)
    (attempt / "job.json").write_text(json.dumps({**entry, "name": "scaling-study-000000000000", "job_id": None}))
    code, said = study.measure()
    assert f"{name}: job scaling-study-000000000000 is not known to Slurm any more" in said
    assert len(study.entries(name)) == 2
    assert code == 0, said
    assert set(study.records()["outcome"]) == {"ok"}


def test_a_cancelled_job_is_told_and_the_next_start_measures_it(study):
    driver = study.start()
    entry = study.until_running(name_of(study))
    study.cluster.run("scancel", entry["job_id"])
    code, said = study.finish(driver)
    assert code == 1
    assert f"{name_of(study)}: failed: job {entry['job_id']} ended as CANCELLED" in said
    finished(study, [1, 2])


def test_a_killed_rank_is_told_within_seconds_and_the_run_started_again_elsewhere(study):
    study.platform(exclude_after=1)
    driver = study.start()
    study.until_running(name_of(study))
    os.kill(ranks_of(study, name_of(study))[1], signal.SIGKILL)
    killed_s = time.monotonic()
    _, log = study.drivers[-1]
    study.until(lambda: "submitting it again" in log.read_text(), 30)
    assert time.monotonic() - killed_s < 20
    node = study.cluster.run("scontrol", "show", "hostnames", study.nodes_of(name_of(study))).split()[1]
    assert f"rank 1 on {node}: its process ended: Killed" in log.read_text()
    code, said = study.finish(driver)
    assert code == 0, said
    assert f"{node}: jobs avoid it from now on" in said
    assert f"#SBATCH --exclude={node}\n" in (study.attempts(name_of(study))[1] / "submission.sh").read_text()
    finished(study, [1, 2])


def test_a_node_that_dies_costs_the_attempt_of_its_run(study):
    driver = study.start()
    study.until_running(name_of(study))
    host = study.cluster.run("squeue", "-h", "-j", study.entries(name_of(study))[0]["job_id"], "-o", "%N")
    node = study.cluster.run("scontrol", "show", "hostnames", host.strip()).split()[-1]
    study.cluster.kill_node(node)
    for pid in ranks_of(study, name_of(study)):
        os.kill(pid, signal.SIGKILL)
    try:
        code, said = study.finish(driver)
        assert code == 0, said
        assert "submitting it again" in said
        assert list(study.blames()) == [node]
    finally:
        study.cluster.start_node(node)
        study.until(lambda: study.cluster.run("sinfo", "-h", "-t", "idle,mixed,alloc", "-o", "%D").strip() == "4", 90)
    finished(study, [1, 2])


def test_a_restarted_slurmd_loses_nothing(study):
    driver = study.start()
    study.until_running(name_of(study))
    for pid, line in _processes():
        if line.startswith("slurmd ") and str(study.cluster.root) in line + _environment(pid):
            os.kill(pid, signal.SIGKILL)
    for node in study.cluster.names:
        study.cluster.start_node(node)
    code, said = study.finish(driver)
    assert code == 0, said
    finished(study, [1, 1])


def test_accounting_may_be_away(study):
    study.cluster.stop_accounting()
    try:
        code, said = study.measure()
        assert code == 0, said
    finally:
        study.cluster.start_accounting()
    finished(study, [1, 1])


def test_a_preempted_run_is_submitted_again(study):
    driver = study.start()
    study.until_running(name_of(study))
    urgent = study.cluster.run(
        "sbatch", "--parsable", "-p", "urgent", "-N", "4", "--ntasks-per-node=8", "--mem=1G", "-o", "/dev/null",
        "--wrap", "sleep 5",
    ).strip()  # fmt: skip
    code, said = study.finish(driver)
    assert code == 0, said
    assert "PREEMPTED" in said
    study.cluster.run("scancel", urgent, check=False)
    submissions = [len(study.entries(name)) for name in study.run_ids()]
    assert submissions[TWO] == 2
    finished(study, submissions)


@pytest.mark.parametrize(("setting", "left"), [("leave", True), ("cancel", False)])
def test_an_interrupted_driver_leaves_or_cancels_its_jobs(study, setting, left):
    study.platform(on_interrupt=setting)
    driver = study.start()
    study.until_running(name_of(study))
    driver.send_signal(signal.SIGINT)
    code, said = study.finish(driver)
    assert code == 130
    assert f"slurm.on_interrupt: {setting}" in said
    if not left:
        study.until(lambda: not study.alive(), 20)
    study.platform()
    code, said = study.measure()
    assert code == 0, said
    assert len(study.entries(name_of(study))) == (1 if left else 2)


def test_wall_time_ends_a_run_and_says_so(study):
    _set_iterations(study, 2_000_000)
    study.platform(attempts=1)
    driver = study.start()
    study.until_running(name_of(study))
    for name in study.run_ids():
        study.cluster.run("scontrol", "update", f"jobid={study.entries(name)[0]['job_id']}", "endtime=now+3")
    code, said = study.finish(driver)
    assert code == 1
    assert "ended as TIMEOUT" in said
    study.until(lambda: not study.alive())


def test_a_rank_that_hangs_ends_the_run_and_leaves_its_stacks(study):
    study.platform(iteration_limit_s=3)
    driver = study.start()
    study.until_running(name_of(study))
    os.kill(ranks_of(study, name_of(study))[1], signal.SIGSTOP)
    code, said = study.finish(driver)
    assert code == 0, said
    assert re.search(r"rank 0 on \S+: no iteration for 3 s after iteration \d+ \(iteration_limit_s\)", said)
    assert re.search(r"\|   File .*, line \d+, in ", said)
    log = study.attempts(name_of(study))[0] / "log"
    assert "most recent call first" in (log / "rank-000.log").read_text()
    assert json.loads((log / "rank-000.flight.json").read_bytes())["entries"]
    finished(study, [1, 2])


def test_a_full_submit_limit_is_waited_for(study):
    study.cluster.run("sacctmgr", "-i", "modify", "user", "root", "set", "maxsubmitjobs=1")
    try:
        code, said = study.measure()
    finally:
        study.cluster.run("sacctmgr", "-i", "modify", "user", "root", "set", "maxsubmitjobs=-1")
    assert code == 0, said
    assert said.count("Slurm takes no jobs now") == 1
    finished(study, [1, 1])


def test_a_folder_that_turns_read_only_loses_nothing(study):
    driver = study.start()
    study.until_running(name_of(study))
    subprocess.run(["mount", "--bind", study.results, study.results], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", study.results], check=True)
        code, said = study.finish(driver)
        assert code == 2
        assert "the file system is read-only" in said
        assert "Traceback" not in said
        study.until(lambda: not study.alive())
    finally:
        subprocess.run(["umount", study.results], check=True)
    there = [(study.store(name) / "result.json").exists() for name in study.run_ids()]
    finished(study, [1 if one else 2 for one in there])


def test_no_process_of_a_run_is_left(study):
    driver = study.start()
    study.until_running(name_of(study))
    pids = ranks_of(study, name_of(study))
    study.cluster.run("scancel", *(entry["job_id"] for name in study.run_ids() for entry in study.entries(name)))
    study.finish(driver)
    study.until(lambda: not any(_is_there(pid) for pid in pids), 20)


def _is_there(pid):
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(done.stdout.strip()) and not done.stdout.startswith("Z")
