"""srun's words name the rank and the node of a task that was killed, and not of those that were ended after it."""

import pytest

from scaling_study.spec import AttemptFiles, FailureKind
from scaling_study.submit.slurm.tasks import TaskEnd, failed_nodes, failures_of_tasks, first_ends, read_log

# as Slurm 22.05.8 prints it after SIGKILL of rank 1
KILLED = """srun: cluster configuration lacks support for cpu binding
submitit INFO (2026-11-30 06:41:04,909) - Starting with JobEnvironment(job_id=2, hostname=vm, global_rank=0(2))
srun: error: ssn2: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=2.0
slurmstepd-ssn1: error: *** STEP 2.0 ON ssn1 CANCELLED AT 2026-11-30T06:41:10 ***
srun: error: ssn1: task 0: Exited with exit code 1
srun: Force Terminated StepId=2.0
"""


def test_the_first_to_end_and_not_those_that_srun_ends():
    assert first_ends(KILLED) == [TaskEnd(1, "ssn2", "Killed")]


def test_tasks_of_a_node_are_told_in_one_line():
    ends = first_ends("srun: error: node7: tasks 3,5-6: Segmentation fault (core dumped)\n")
    assert ends == [TaskEnd(rank, "node7", "Segmentation fault (core dumped)") for rank in (3, 5, 6)]


def test_all_of_them_where_nothing_was_said_before_the_others_were_ended():
    late = "srun: Force Terminated StepId=2.0\nsrun: error: ssn1: task 0: Terminated\n"
    assert first_ends(late) == [TaskEnd(0, "ssn1", "Terminated")]


@pytest.mark.parametrize(
    "log",
    [
        "",
        "srun: error: Unable to create step\n",
        "error: ssn2: task 1: Killed\n",
        "srun: error: ../x: task 1: Killed\n",
    ],
)
def test_no_end_of_a_task(log):
    assert first_ends(log) == []


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("Killed", FailureKind.KILLED),
        ("Terminated", FailureKind.KILLED),
        ("Out Of Memory", FailureKind.OUT_OF_MEMORY),
        ("Exited with exit code 1", FailureKind.ERROR),
        ("Segmentation fault", FailureKind.ERROR),
        ("Bus error (core dumped)", FailureKind.ERROR),
    ],
)
def test_a_failure_has_the_kind_of_its_end_and_what_the_rank_printed_last(how, kind, tmp_path):
    files = AttemptFiles(tmp_path)
    files.log.mkdir()
    files.output(12).write_text("one\ntwo\n")
    (failure,) = failures_of_tasks(f"srun: error: node3: task 12: {how}\n", files)
    assert (failure.rank, failure.host, failure.kind) == (12, "node3", kind)
    assert failure.message == f"its process ended: {how}"
    assert failure.traceback == "one\ntwo"


def test_nodes_that_slurm_lost():
    assert failed_nodes("srun: error: Node failure on ssn3.\nsrun: error: Node failure on ssn3\n") == ["ssn3"]
    assert failed_nodes(KILLED) == []


def test_a_log_that_is_not_there_is_empty(tmp_path):
    assert read_log(tmp_path / "none.out") == ""
