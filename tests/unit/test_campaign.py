"""From a sweep to its records and into the cache, on a platform that measures some of a study's runs."""

import pytest

from scaling_study.campaign import measure_sweep, promote_records, records_of_sweep
from scaling_study.errors import UserError
from scaling_study.processes import identity
from scaling_study.records import read_records
from scaling_study.spec import Config, FailureKind, Outcome, expand, run_id
from scaling_study.submit import Driver, RunStore, SlurmDriver
from tests.unit.samples import run_result

STUDY = """
title: a study
platform: predict
base: {}
sweeps:
  both: {title: both, kind: collective, base: {op: all_reduce, message_bytes: 1024},
         product: {hardware: [gpu, cpu], nodes: [2, 4]}}
  ours: {title: ours, kind: collective, base: {op: all_reduce, message_bytes: 6144, hardware: gpu},
         product: {nodes: [8]}}
  theirs: {title: theirs, kind: collective, base: {op: all_reduce, message_bytes: 1024, hardware: cpu, nodes: 2}}
  later: {title: later, status: planned, kind: collective,
          base: {op: all_reduce, message_bytes: 1024, hardware: gpu, nodes: 16}}
"""


@pytest.fixture
def config(tmp_path):
    for name, content in {
        "studies/it": STUDY,
        "hardware/gpu": "{title: t, gpus_per_node: 1}",
        "hardware/cpu": "{title: t, gpus_per_node: 1}",
        "platforms/cluster": "{title: t, executor: slurm, hardware: gpu, slurm: {partition: p, nodes: 8, "
        "nodes_at_once: 8, most_minutes: 99}}",
        "platforms/here": "{title: t, executor: local, hardware: cpu}",
    }.items():
        path = tmp_path / "config" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return Config(tmp_path / "config")


def runs_of(config, sweep, hardware):
    return [run for run in expand(config.study("it"), sweep, config.catalogue) if run.hardware == hardware]


@pytest.fixture
def measure(config, tmp_path):
    """Gathers a sweep all of whose runs have a result already, unless a driver is told otherwise."""

    def measure(sweep, platform="cluster", hardware="gpu", keep_failures=False):
        store = RunStore(tmp_path / "results" / "store" / platform)
        for run in runs_of(config, sweep, hardware):
            if store.claim(run, identity()):
                store.end(run_result(run, outcome=Outcome.OUT_OF_MEMORY, reason="so"))
        output = tmp_path / "results" / "it" / platform / f"{sweep}.parquet"
        log = tmp_path / "log"
        return measure_sweep(config, "it", sweep, platform, output, log, keep_failures, tmp_path / "results"), output

    return measure


@pytest.mark.parametrize(("platform", "hardware", "kind"), [("cluster", "gpu", SlurmDriver), ("here", "cpu", Driver)])
def test_a_platform_measures_the_runs_of_its_hardware(platform, hardware, kind, config, measure, monkeypatch):
    asked, original = [], kind.measure
    monkeypatch.setattr(kind, "measure", lambda self, runs: asked.append(runs) or original(self, runs))
    failed, output = measure("both", platform, hardware)
    records = read_records(output)
    assert (failed, asked) == ([], [runs_of(config, "both", hardware)])
    assert sorted(records["run_id"]) == sorted(run_id(run) for run in asked[0])
    assert set(records["platform"]) == {platform}


def test_a_sweep_without_the_hardware_of_a_platform_is_refused(measure):
    with pytest.raises(UserError, match=r"platform cluster: no run of theirs is of gpu\. Choose the platform"):
        measure("theirs")


@pytest.mark.parametrize("keep", [False, True])
def test_runs_that_failed_are_named_with_their_logs_or_kept(keep, config, measure, monkeypatch, tmp_path):
    runs = runs_of(config, "both", "gpu")
    bad = run_result(runs[0], outcome=Outcome.FAILED, failure=FailureKind.KILLED, reason="it broke", attempt=3)
    good = run_result(runs[1], outcome=Outcome.OUT_OF_MEMORY, reason="so")
    monkeypatch.setattr(SlurmDriver, "measure", lambda self, runs: [bad, good])
    failed, output = measure("both", keep_failures=keep)
    if keep:
        assert failed == []
        assert sorted(read_records(output)["outcome"]) == ["failed", "out_of_memory"]
        return
    log = tmp_path / "results" / "store" / "cluster" / run_id(runs[0]) / "attempts" / "003" / "log"
    assert failed == [f"{run_id(runs[0])}: failed: it broke\n    log: {log}"]
    assert not output.exists()


# -- the cache ------------------------------------------------------------------------------------------------------


def test_a_platform_promotes_the_sweeps_that_have_its_hardware(config, measure, tmp_path):
    outputs = [measure(sweep)[1] for sweep in ("both", "ours")]
    copies = promote_records(config, config.study("it"), "cluster", tmp_path / "results")
    assert copies == [
        tmp_path / "results" / "cached" / "it" / "cluster" / f"{name}.parquet" for name in ("both", "ours")
    ]
    assert [copy.read_bytes() for copy in copies] == [output.read_bytes() for output in outputs]


def test_a_part_of_a_study_is_not_promoted(config, measure, tmp_path):
    measure("both")
    with pytest.raises(UserError, match=r"records of ours are missing\. Measure the whole study it first"):
        promote_records(config, config.study("it"), "cluster", tmp_path / "results")
    assert not (tmp_path / "results" / "cached").exists()


def test_a_sweep_that_is_measured_as_time_allows_may_be_left_out_or_be_in_part(config, measure, tmp_path):
    path = config.root / "studies" / "it.yaml"
    path.write_text(path.read_text().replace("ours: {title: ours,", "ours: {title: ours, as_time_allows: true,"))
    partly = Config(config.root)
    measure("both")
    copies = promote_records(partly, partly.study("it"), "cluster", tmp_path / "results")
    assert [copy.stem for copy in copies] == ["both"]
    measure("ours")
    path.write_text(path.read_text().replace("nodes: [8]", "nodes: [8, 6]"))
    grown = Config(config.root)
    copies = promote_records(grown, grown.study("it"), "cluster", tmp_path / "results")
    assert [copy.stem for copy in copies] == ["both", "ours"]


def test_predictions_are_of_every_sweep(config, measure, tmp_path):
    for name in ("both", "ours"):
        output = measure(name)[1]
        copy = tmp_path / "results" / "it" / "predict" / output.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(output.read_bytes())
    with pytest.raises(UserError, match=r"records of theirs are missing"):
        promote_records(config, config.study("it"), "predict", tmp_path / "results")


def test_records_of_a_study_that_has_changed_are_not_promoted(config, measure, tmp_path):
    for name in ("both", "ours"):
        measure(name)
    path = config.root / "studies" / "it.yaml"
    path.write_text(path.read_text().replace("nodes: [8]", "nodes: [8, 6]"))
    changed = Config(config.root)
    with pytest.raises(UserError, match=r"ours\.parquet: the records are not those of the sweep: 1 of its runs are"):
        promote_records(changed, changed.study("it"), "cluster", tmp_path / "results")
    assert not (tmp_path / "results" / "cached").exists()


def test_records_of_two_platforms_stand_together(config, measure):
    paths = tuple(
        measure("both", platform, hardware)[1] for platform, hardware in (("cluster", "gpu"), ("here", "cpu"))
    )
    records = records_of_sweep(config, config.study("it"), "both", paths)
    assert records["hardware"].to_list() == ["gpu", "gpu", "cpu", "cpu"]
    assert set(records["run_id"]) == {run_id(run) for run in expand(config.study("it"), "both", config.catalogue)}


def test_a_log_has_a_line_a_run(measure, tmp_path):
    measure("both")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.split(" ", 1)[1].split(" ")[0] for line in lines] == ["out_of_memory"] * 2
    assert all(line.endswith("(there already): so") for line in lines)
