"""The workflow on the scenario study: what reruns, what does not, and that cached and fresh records never mix."""

import json
import shutil
import subprocess
import time

import polars as pl
import pytest

from scaling_study.records import read_records, write_records
from tests.workflow.conftest import BIN, Checkout

FIGURE = "figures/scenario/hst-04"
SWEEPS = ("data_parallel", "pipeline_parallel", "collectives")
DATA_PARALLEL, PIPELINE_PARALLEL, COLLECTIVES = (f"results/scenario/local/{sweep}.parquet" for sweep in SWEEPS)
RECORDS = ("--", DATA_PARALLEL, PIPELINE_PARALLEL, COLLECTIVES)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A checkout whose study is measured and promoted; tests copy it."""
    folder = tmp_path_factory.mktemp("measured") / "checkout"
    folder.mkdir()
    checkout = Checkout(folder.resolve())
    end = checkout.run()
    assert end.returncode == 0, end.stderr
    promoted = run_verb(checkout, "promote", "scenario", "--platform", "local")
    assert promoted.returncode == 0, promoted.stderr
    return checkout


@pytest.fixture
def copy(measured, tmp_path):
    """The measured checkout, copied with its modification times."""
    copied = Checkout.__new__(Checkout)
    copied.folder, copied.environment = (tmp_path / "copy").resolve(), measured.environment
    shutil.copytree(measured.folder, copied.folder)
    return copied


def run_verb(checkout, *arguments):
    command = [str(BIN / "scaling-study"), *arguments]
    return subprocess.run(
        command, cwd=checkout.folder, env=checkout.environment, capture_output=True, text=True, check=False
    )


def attempts(checkout):
    folders = (checkout.folder / "results/store/local").glob("*/attempts/[0-9]*")
    return sorted(str(folder.relative_to(checkout.folder)) for folder in folders)


def test_everything_is_there_and_measured(measured):
    assert len(attempts(measured)) == 5
    shared = set(measured.run_ids("data_parallel")) & set(measured.run_ids("pipeline_parallel"))
    assert len(shared) == 1
    drawn = json.loads((measured.folder / f"{FIGURE}.vl.json").read_text())
    assert sorted(run["run_id"] for run in drawn["usermeta"]["runs"]) == sorted(measured.run_ids("data_parallel"))
    assert {run["provenance"] for run in drawn["usermeta"]["runs"]} == {"measured"}
    for suffix in ("svg", "png"):
        assert (measured.folder / f"{FIGURE}.{suffix}").stat().st_size > 5000
    assert (measured.folder / "figures/scenario/layouts.csv").read_text().count("\n") == 3


def test_claims_are_judged_by_what_was_measured(copy):
    path = copy.folder / "figures/scenario/claims.csv"
    verdicts = {(row["id"], row["place"]): row for row in pl.read_csv(path, infer_schema=False).to_dicts()}
    assert verdicts["more-ranks", "local"]["verdict"] == "holds"
    assert verdicts["more-ranks", "local"]["provenance"] == "measured"
    assert verdicts["on-gpus", "local"]["verdict"] == "not testable here"
    assert "about GPUs" in verdicts["on-gpus", "local"]["reason"]
    claims = copy.folder / "config/claims.yaml"
    claims.write_text(claims.read_text().replace("{above: 0}", "{below: 0}", 1))
    end = copy.run("--", "figures/scenario/claims.csv")
    assert end.returncode == 0, end.stderr
    verdicts = {(row["id"], row["place"]): row for row in pl.read_csv(path, infer_schema=False).to_dicts()}
    assert verdicts["more-ranks", "local"]["verdict"] == "does not hold"


def test_nothing_to_do_is_quick_and_does_nothing(copy):
    start_s = time.monotonic()
    end = copy.run()
    assert time.monotonic() - start_s < 5
    assert end.returncode == 0
    assert "Nothing to be done" in end.stdout + end.stderr


def test_another_clone_with_the_same_store_measures_nothing(measured, checkout):
    for folder in ("results/store", "results/data"):
        shutil.copytree(measured.folder / folder, checkout.folder / folder)
    before = attempts(checkout)
    end = checkout.run(*RECORDS, f"{FIGURE}.svg")
    assert end.returncode == 0, end.stderr
    assert attempts(checkout) == before
    for path in ("results/scenario/local/data_parallel.parquet", f"{FIGURE}.svg", f"{FIGURE}.vl.json"):
        assert (checkout.folder / path).read_bytes() == (measured.folder / path).read_bytes()


def test_cosmetic_edits_measure_nothing(copy):
    study = copy.folder / "config/studies/scenario.yaml"
    text = study.read_text()
    study.write_text(
        "# a comment\n\n"
        + text.replace("nodes: [1, 2]", "nodes:   [ 1,2 ]").replace("micro_batch: 2", "micro_batch:  2")
    )
    rules = copy.folder / "workflow/rules/measure.smk"
    rules.write_text("# a comment\n" + rules.read_text())
    before = attempts(copy)
    end = copy.run()
    assert end.returncode == 0, end.stderr
    assert attempts(copy) == before


def test_a_lost_record_file_is_gathered_without_measuring(copy):
    path = copy.folder / DATA_PARALLEL
    content = path.read_bytes()
    path.unlink()
    before = attempts(copy)
    assert copy.run(*RECORDS).returncode == 0
    assert attempts(copy) == before
    assert path.read_bytes() == content


def test_a_damaged_record_file_is_gathered_without_measuring(copy):
    path = copy.folder / PIPELINE_PARALLEL
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"x" + content[len(content) // 2 + 1 :])
    before = attempts(copy)
    end = copy.run()
    assert end.returncode == 0, end.stderr
    assert "is damaged" in end.stderr
    assert attempts(copy) == before
    assert path.read_bytes() == content
    assert "Nothing to be done" in copy.run().stderr


def test_a_changed_run_is_measured_and_no_other(copy):
    study = copy.folder / "config/studies/scenario.yaml"
    study.write_text(study.read_text().replace("product: {nodes: [1, 2]}", "product: {nodes: [1, 2, 3]}"))
    before = set(attempts(copy))
    end = copy.run(*RECORDS)
    assert end.returncode == 0, end.stderr
    new = set(attempts(copy)) - before
    assert {path.split("/")[3] for path in new} == set(copy.run_ids("data_parallel")) - {
        p.split("/")[3] for p in before
    }
    assert len(new) == 1


def test_a_damaged_result_is_measured_again(copy):
    name = copy.run_ids("data_parallel")[0]
    (copy.store(name) / "result.json").write_text('{"run": ')
    (copy.folder / DATA_PARALLEL).unlink()
    before = set(attempts(copy))
    end = copy.run(*RECORDS)
    assert end.returncode == 0, end.stderr
    assert {path.split("/")[3] for path in set(attempts(copy)) - before} == {name}


def test_cached_draws_from_the_cache_alone_and_fresh_draws_again(copy):
    cached = copy.folder / "results/cached/scenario/local/data_parallel.parquet"
    assert cached.read_bytes() == (copy.folder / "results/scenario/local/data_parallel.parquet").read_bytes()
    fresh_figure = (copy.folder / f"{FIGURE}.svg").read_bytes()
    slower = read_records(cached).with_columns(pl.col("words_per_second") / 2)
    write_records(cached, slower.to_dicts())
    end = copy.run("--", f"{FIGURE}.svg", profile="cached")
    assert end.returncode == 0, end.stderr
    assert (copy.folder / f"{FIGURE}.svg").read_bytes() != fresh_figure
    end = copy.run("--", f"{FIGURE}.svg")
    assert end.returncode == 0, end.stderr
    assert (copy.folder / f"{FIGURE}.svg").read_bytes() == fresh_figure


def test_a_redraw_that_fails_keeps_the_figure(copy):
    figure = (copy.folder / f"{FIGURE}.svg").read_bytes()
    cached = copy.folder / "results/cached/scenario/local/data_parallel.parquet"
    cached.write_bytes(cached.read_bytes()[:-20])
    end = copy.run("--", f"{FIGURE}.svg", profile="cached")
    assert end.returncode != 0
    assert "Restore it from git" in end.stderr
    assert (copy.folder / f"{FIGURE}.svg").read_bytes() == figure


def test_one_figure_that_cannot_be_drawn_costs_no_other(copy):
    other = copy.folder / "figures/scenario/hst-03b.svg"
    content = other.read_bytes()
    other.unlink()
    cached = copy.folder / "results/cached/scenario/local/data_parallel.parquet"
    cached.write_bytes(cached.read_bytes()[:-20])
    end = copy.run(profile="cached")
    assert end.returncode != 0
    assert "scenario/hst-04: " in end.stderr
    assert "Restore it from git" in end.stderr
    assert other.read_bytes() == content


def test_the_cached_profile_cannot_measure(copy):
    shutil.rmtree(copy.folder / "results/scenario")
    end = copy.run("--", "results/scenario/local/data_parallel.parquet", profile="cached")
    assert end.returncode != 0
    assert "MissingRuleException" in end.stderr
    shutil.rmtree(copy.folder / "results/cached")
    end = copy.run(profile="cached")
    assert end.returncode != 0
    assert "there are no committed records" in end.stderr
    assert "Traceback" not in end.stderr


def test_cached_records_of_other_runs_are_refused(copy):
    study = copy.folder / "config/studies/scenario.yaml"
    study.write_text(study.read_text().replace("iterations: 120", "iterations: 300"))
    end = copy.run(profile="cached")
    assert end.returncode != 0
    assert "of runs that the sweep does not have" in end.stderr


def test_a_second_workflow_run_is_refused(copy):
    (copy.folder / "results/scenario/local/data_parallel.parquet").unlink()
    shutil.rmtree(copy.store(copy.run_ids("data_parallel")[0]))
    first = copy.start(*RECORDS)
    copy.wait_for(lambda: any(copy.store(copy.run_ids("data_parallel")[0]).glob("attempts/*")), "the first claim")
    second = copy.run()
    assert second.returncode != 0
    assert "another workflow run is at work" in second.stderr
    assert first.wait(60) == 0


def test_an_unknown_study_or_key_is_one_clear_message(copy):
    end = copy.run(studies="nowhere")
    assert end.returncode != 0
    assert "there is no nowhere.yaml" in end.stderr
    assert "Traceback" not in end.stderr
    study = copy.folder / "config/studies/scenario.yaml"
    study.write_text(study.read_text().replace("product:", "produkt:", 1))
    end = copy.run()
    assert "unknown key 'produkt'" in end.stderr
    assert "Did you mean 'product'?" in end.stderr
