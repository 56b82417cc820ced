"""A check of nodes on a real Slurm names the node that is slow, and later jobs avoid it."""

import json
import os
import signal
import threading
import time

import pytest

from tests.slurm.cluster import _environment, _processes

pytestmark = pytest.mark.alone  # what else works on this machine makes other nodes look slow


def ranks_on(node):
    """Process ids of a check's ranks on a node."""
    return [
        pid
        for pid, line in _processes()
        if "submitit.core._submit" in line and f"SLURMD_NODENAME={node}\0" in _environment(pid)
    ]


@pytest.fixture
def slowed():
    """A node whose processes are stopped four fifths of the time."""
    over = threading.Event()

    def slow():
        while not over.is_set():
            for how, seconds in ((signal.SIGSTOP, 0.04), (signal.SIGCONT, 0.01)):
                for pid in ranks_on("ssn3"):
                    try:
                        os.kill(pid, how)
                    except ProcessLookupError:
                        continue
                time.sleep(seconds)

    thread = threading.Thread(target=slow)
    thread.start()
    yield "ssn3"
    over.set()
    thread.join()


def check(study, *options):
    driver = study.start_verb("qualify", "--platform", "cluster", *options)
    code, said = study.finish(driver)
    assert code == 0, said
    return json.loads((study.results / "qualify/cluster.json").read_text()), said


def test_the_slow_node_is_named_and_avoided(study, slowed):
    report, said = check(study)
    assert sorted(report["nodes"]) == ["ssn1", "ssn2", "ssn3", "ssn4"]
    assert {one["node"] for one in report["outliers"]} == {slowed}
    assert report["exclude"] == slowed
    assert f"{slowed}: gemm_tflops" in said
    assert [one.conclusive for one in study.blames()[slowed]] == [True]
    code, said = study.measure()
    assert code == 0, said
    for name in study.run_ids():
        assert f"#SBATCH --exclude={slowed}\n" in (study.attempts(name)[0] / "submission.sh").read_text()


def test_two_ranks_a_node_measure_what_is_between_and_within(study):
    study.platform(tasks_per_node=2)
    report, _ = check(study, "--nodes", "2")
    assert report["ranks"] == 4
    assert report["outliers"] == []  # two nodes do not say which of them is right
    for values in report["nodes"].values():
        assert set(values) == {"gemm_tflops", "memory_gb_per_s", "within_gb_per_s", "between_gb_per_s"}
        assert all(value > 0 for value in values.values())
    assert report["measured"]["latency_us"] > 0
    assert study.blames() == {}


def test_more_nodes_than_a_job_may_have_are_refused(study):
    code, said = study.finish(study.start_verb("qualify", "--platform", "cluster", "--nodes", "5"))
    assert code == 2
    assert "5 nodes are more than a job may have (4)" in said
