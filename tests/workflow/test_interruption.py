"""Killed and interrupted at several moments, the study just goes on: no run twice, no process left behind."""

import os
import signal

DATA_PARALLEL = "results/scenario/local/data_parallel.parquet"


def claimed(checkout, name):
    return (checkout.store(name) / "attempts/001/claim.json").exists


def in_progress(checkout, name):
    """Whether a new attempt at the run, none that is there already, is under way."""
    before = len(list(checkout.store(name).glob("attempts/[0-9]*")))

    def condition():
        attempts = sorted(checkout.store(name).glob("attempts/[0-9]*"))
        return len(attempts) > before and (attempts[-1] / "progress.json").exists()

    return condition


def finish_and_check(checkout, kept):
    """The study ends well; what was measured before is still the same measurement."""
    end = checkout.run()
    assert end.returncode == 0, end.stderr
    checkout.wait_until_empty()
    results = checkout.results()
    assert {name: result["started_at"] for name, result in results.items() if name in kept} == kept
    for sweep in ("data_parallel", "pipeline_parallel"):
        records = checkout.records(sweep)
        assert sorted(records["run_id"]) == sorted(checkout.run_ids(sweep))
        assert set(records["outcome"]) == {"ok"}
        assert all(results[row["run_id"]]["started_at"] == row["started_at"] for row in records.to_dicts())


def measured(checkout):
    return {name: result["started_at"] for name, result in checkout.results().items()}


def test_killed_at_several_moments(checkout):
    first, second = checkout.run_ids("data_parallel")

    process = checkout.start("--", DATA_PARALLEL, owned=True)
    checkout.wait_for((checkout.folder / "snakemake.log").exists, "the beginning")
    os.kill(process.pid, signal.SIGKILL)  # before Snakemake has read the workflow
    process.wait(30)
    checkout.wait_until_empty()

    process = checkout.start("--", DATA_PARALLEL, owned=True)
    checkout.wait_for((checkout.folder / "results/logs/data").exists, "the preparation of data")
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    checkout.wait_until_empty()

    moment = claimed(checkout, first)
    process = checkout.start("--", DATA_PARALLEL)
    checkout.wait_for(moment, "the first claim")
    checkout.find("driver").send_signal(signal.SIGKILL)
    assert process.wait(30) != 0
    checkout.wait_until_empty()

    moment = in_progress(checkout, first)
    process = checkout.start("--", DATA_PARALLEL)
    checkout.wait_for(moment, "progress of the first run")
    checkout.find("snakemake").send_signal(signal.SIGKILL)
    process.wait(30)
    checkout.wait_until_empty()

    moment = in_progress(checkout, second)
    process = checkout.start("--", DATA_PARALLEL, owned=True)
    checkout.wait_for(moment, "progress of the second run")
    os.kill(process.pid, signal.SIGKILL)
    checkout.wait_until_empty()

    kept = measured(checkout)
    assert first in kept
    assert second not in kept
    moment = in_progress(checkout, second)
    process = checkout.start("--", DATA_PARALLEL)
    checkout.wait_for(moment, "progress of the second run")
    checkout.find("rank").send_signal(signal.SIGKILL)
    assert process.wait(60) == 0, (checkout.folder / "snakemake.log").read_text()
    finish_and_check(checkout, kept)


def test_interrupted_at_several_moments(checkout):
    first, second = checkout.run_ids("data_parallel")

    moment = in_progress(checkout, first)
    process = checkout.start("--", DATA_PARALLEL)
    checkout.wait_for(moment, "progress of the first run")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) != 0
    checkout.wait_until_empty()

    moment = in_progress(checkout, second)
    process = checkout.start("--", DATA_PARALLEL)
    checkout.wait_for(moment, "progress of the second run")
    checkout.find("driver").send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    checkout.wait_until_empty()

    moment = in_progress(checkout, second)
    process = checkout.start("--", DATA_PARALLEL)
    checkout.wait_for(moment, "progress of the second run")
    checkout.find("snakemake").send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    checkout.wait_until_empty()
    finish_and_check(checkout, measured(checkout))
