"""What the submitters did as lines: who was faster, how many commands, and the limit of memory."""

import pytest
from benchmarks import submission
from benchmarks.lines import Verdict
from benchmarks.submission import Submission
from benchmarks.submitters import RUNS, Report, runs, shapes


def round_of(driver_s=2.0, jobs_s=8.0, arrays_s=1.0, peak_bytes=80_000_000, torch=False):
    return {
        "driver": Submission(driver_s, {"sbatch": 39, "squeue": 3}, Report(peak_bytes, torch)),
        "jobs": Submission(jobs_s, {"sbatch": 300}, Report(1, False)),
        "arrays": Submission(arrays_s, {"sbatch": 39}, Report(1, False)),
    }


def test_ours_is_beside_each_peer_and_within_the_limit_of_memory():
    jobs, arrays, commands, memory = submission._lines("what", [round_of(), round_of(jobs_s=6.0)])
    assert (jobs.ours.median, jobs.theirs.median, jobs.ratio.median) == (2.0, 7.0, 3.5)
    assert (arrays.theirs.median, arrays.ratio.median) == (1.0, 0.5)
    assert (commands.ours.median, commands.theirs.median) == (42, 300)
    assert "the driver calls 39 sbatch, 3 squeue" in commands.reason
    assert [line.verdict for line in (jobs, arrays, commands)] == [Verdict.NO_REQUIREMENT] * 3
    assert (memory.ours.median, memory.theirs.median, memory.verdict) == (80.0, 150.0, Verdict.MET)


def test_more_memory_than_the_limit_is_a_miss():
    *_, memory = submission._lines("what", [round_of(peak_bytes=151_000_000)])
    assert memory.verdict is Verdict.MISSED


def test_torch_in_the_driver_is_an_error():
    with pytest.raises(RuntimeError, match="has imported torch"):
        submission._lines("what", [round_of(torch=True)])


def test_where_there_can_be_no_slurm_a_line_says_why(monkeypatch):
    monkeypatch.setattr(submission, "missing", lambda: "a private Slurm needs root")
    (line,) = submission.run(5)
    assert (line.ours, line.reason) == (None, "left out: a private Slurm needs root")


def test_the_runs_are_different_ones_of_few_shapes():
    assert len(set(runs())) == RUNS
    assert sum(len(members) for members in shapes().values()) == RUNS
    assert len(shapes()) < RUNS / 5
