"""The scenario study through a real Slurm: its records, the jobs that were asked for, and nothing twice."""

import msgspec

from scaling_study.records import SCHEMA, read_records
from scaling_study.spec import RunResult


def test_a_sweep_is_measured_by_jobs(study):
    code, said = study.measure()
    assert code == 0, said
    records = read_records(study.output("data_parallel"))
    assert sorted(records["run_id"]) == sorted(study.run_ids())
    assert dict(records.schema) == SCHEMA
    assert set(records["outcome"]) == {"ok"}
    assert set(records["platform"]) == {"cluster"}
    for name in study.run_ids():
        (entry,) = study.entries(name)
        assert entry["job_id"]
        script = (study.attempts(name)[0] / "submission.sh").read_text()
        assert f"#SBATCH --job-name={entry['name']}" in script
    study.until(lambda: not study.alive())  # ranks leave after the result


def test_runs_of_one_shape_are_an_array(study):
    code, said = study.measure("collectives")
    assert code == 0, said
    (first,), (second,) = (study.entries(name) for name in study.run_ids("collectives"))
    assert first["name"] == second["name"]
    assert first["job_id"].partition("_")[0] == second["job_id"].partition("_")[0]
    assert {first["job_id"].partition("_")[2], second["job_id"].partition("_")[2]} == {"0", "1"}


def test_ranks_of_two_nodes_report_two_hosts_in_the_job(study):
    study.measure()
    name = next(one for one in study.run_ids() if "_n2_" in one)
    result = msgspec.json.decode((study.store(name) / "result.json").read_bytes(), type=RunResult)
    assert len(result.ranks) == 2
    script = (study.attempts(name)[0] / "submission.sh").read_text()
    assert "#SBATCH --nodes=2" in script
    assert "#SBATCH --ntasks-per-node=1" in script


def test_a_second_start_submits_nothing(study):
    study.measure()
    before = {name: study.entries(name) for name in study.run_ids()}
    code, _ = study.measure()
    assert code == 0
    assert {name: study.entries(name) for name in study.run_ids()} == before


def test_sweeps_side_by_side_share_a_run(study):
    drivers = [study.start("data_parallel"), study.start("pipeline_parallel")]
    outcomes = [study.finish(driver) for driver in drivers]
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    (shared,) = set(study.run_ids("data_parallel")) & set(study.run_ids("pipeline_parallel"))
    assert len(study.entries(shared)) == 1


INHERITED = {"SLURM_CPU_BIND": "mask_cpu:0x1", "SLURM_NTASKS": "7", "SBATCH_PARTITION": "nowhere"}


def test_nothing_of_an_enclosing_job_reaches_a_run(study, monkeypatch):
    for name, value in INHERITED.items():
        monkeypatch.setenv(name, value)
    code, said = study.measure()
    assert code == 0, said
