"""The committed records are those of the studies as they are configured now, and predictions those of the code."""

from collections import Counter

import pytest
from polars.testing import assert_frame_equal

from scaling_study.campaign import records_of_sweep
from scaling_study.claims import ACKNOWLEDGED, judged_by
from scaling_study.prediction import predict_sweep, write_timeline
from scaling_study.present.claims import changes, claims_table, read_acknowledged
from scaling_study.records import read_records
from scaling_study.spec import PREDICT, Outcome, Place, Verdict
from scaling_study.timeline import read_timeline_file
from tests.unit.samples import CONFIG, ROOT, is_committed

CACHED = sorted(p for p in (ROOT / "results/cached").glob("*/*/*.parquet") if p.parent.name != "model")
PREDICTED = sorted((ROOT / "results/cached").glob("*/predict/*.parquet"))
#: Sums of floats differ in their last bits from one processor to another.
RELATIVE = 1e-6


def test_the_mini_study_is_in_the_cache():
    cached = {path.stem for path in CACHED if path.parts[-3:-1] == ("mini", "local")}
    assert cached == set(CONFIG.study("mini").sweeps)


@pytest.mark.parametrize("name", ["paper", "gpu-check"])
def test_the_whole_study_is_predicted_in_the_cache(name):
    study = CONFIG.study(name)
    predicted = {path.stem for path in PREDICTED if path.parts[-3] == name}
    assert predicted == {sweep for sweep, one in study.sweeps.items() if one.status == "ready"}


def test_the_timelines_of_the_paper_study_are_in_the_cache():
    study = CONFIG.study("paper")
    runs = {run for figure in study.figures.values() for run in figure.timelines}
    timelines = (ROOT / "results/cached/paper/predict/timelines").glob("*.parquet")
    assert {path.stem for path in timelines} == runs


@pytest.mark.parametrize("path", CACHED, ids=lambda path: "-".join(path.with_suffix("").parts[-3:]))
def test_committed_records_are_of_the_studys_runs(path):
    study, platform, sweep = path.with_suffix("").parts[-3:]
    records = records_of_sweep(CONFIG, CONFIG.study(study), sweep, (path,))
    assert all(Outcome(one).is_result for one in set(records["outcome"]))
    assert set(records["provenance"]) == {"predicted" if platform == PREDICT else "measured"}
    if study == "mini":
        assert set(records["outcome"]) == {Outcome.OK}
    if platform != PREDICT:
        assert not any("dirty" in version for version in records["code_version"])


@pytest.mark.parametrize("path", PREDICTED, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_committed_predictions_are_those_of_the_code(path, tmp_path):
    predict_sweep(CONFIG, path.parts[-3], path.stem, tmp_path / path.name)
    assert_frame_equal(read_records(tmp_path / path.name), read_records(path), rel_tol=RELATIVE, abs_tol=1e-12)


def test_committed_timelines_are_those_of_the_code(tmp_path):
    folder = ROOT / "results/cached/paper/predict/timelines"
    for path in folder.glob("*.parquet"):
        write_timeline(CONFIG, "paper", path.stem, tmp_path / path.name)
        found, expected = (read_timeline_file(one) for one in (tmp_path / path.name, path))
        assert_frame_equal(found, expected, check_exact=False, rel_tol=RELATIVE, abs_tol=2)


@pytest.mark.parametrize("path", sorted((ROOT / "config/studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_platform_of_a_study_exists(path):
    name = CONFIG.study(path.stem).platform
    assert name == PREDICT or CONFIG.platform(name)


def test_committed_verdicts_are_those_of_the_records():
    """A verdict that changes is looked at by somebody: `scaling-study claims --acknowledge` says so."""
    judged = judged_by(CONFIG, [ROOT / "results/cached"])
    assert [str(one) for one in changes(judged, read_acknowledged(ROOT / ACKNOWLEDGED))] == []


def test_the_committed_table_of_claims_is_that_of_the_records():
    table = claims_table(judged_by(CONFIG, [ROOT / "results/cached"]))
    assert is_committed("figures/paper/claims.csv", table.write_csv().encode())


def test_the_readme_counts_the_verdicts_that_there_are():
    judged = [one for one in judged_by(CONFIG, [ROOT / "results/cached"]) if one.place is Place.MODEL]
    counts = Counter(one.verdict for one in judged)
    said = (
        f"As predicted, {counts[Verdict.HOLDS]} hold, {counts[Verdict.SHAPE]} hold in shape only"
        f" and {counts[Verdict.FAILS]} do not"
    )
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert said in text
    assert f"what the sources say as {len(CONFIG.claims.claims)} assertions" in text
