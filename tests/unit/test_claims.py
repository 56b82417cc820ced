"""The verb `claims`: verdicts for people and machines, of the cache or of other records."""

from __future__ import annotations

import csv
import shutil

import pytest

from scaling_study import claims as verb
from scaling_study.errors import UserError
from scaling_study.present.claims import read_acknowledged
from scaling_study.spec import Place, Verdict
from tests.unit.samples import CONFIG, ROOT

CACHE = ROOT / "results" / "cached"


def test_files_are_found_below_folders_without_timelines(tmp_path) -> None:
    (tmp_path / "paper/predict/timelines").mkdir(parents=True)
    for name in ("paper/predict/one.parquet", "paper/predict/timelines/run.parquet", "other.parquet"):
        (tmp_path / name).touch()
    found = verb.parquet_files([tmp_path / "paper", tmp_path / "other.parquet"])
    assert [path.name for path in found] == ["one.parquet", "other.parquet"]


@pytest.mark.parametrize(("name", "message"), [("nowhere", "no such file or folder"), ("", "there are no records")])
def test_no_records_are_an_error(tmp_path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        verb.parquet_files([tmp_path / name])


def test_evidence_knows_its_places_and_the_models_tables() -> None:
    evidence = verb.evidence_of(CONFIG, [CACHE])
    assert set(evidence.frames[Place.LOCAL]) == set(CONFIG.study("mini").sweeps)
    assert not evidence.frames[Place.CLUSTER]
    assert evidence.sensitivity is not None
    assert verb.evidence_of(CONFIG, [CACHE / "mini"]).sensitivity is None


def test_machines_get_every_claim_with_its_value_and_what_it_was(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CACHE, tmp_path / "results/cached")
    path = tmp_path / verb.ACKNOWLEDGED
    rows = list(csv.reader(path.open(encoding="utf-8")))
    rows = [[*row[:2], "holds"] if row[:2] == ["dp-majority-exposed", "model"] else row for row in rows]
    with path.open("w", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    verb.run_claims(CONFIG, (), None, acknowledging=False, as_json=True)
    import json

    found = {(one["id"], one["place"]): one for one in json.loads(capsys.readouterr().out)}
    assert len(found) == 3 * len(CONFIG.claims.claims)
    drop = found["dp-throughput-drop", "model"]
    assert drop["provenance"] == "predicted"
    assert drop["verdict"] == "holds in shape only"
    assert drop["value"] == pytest.approx(-0.16, abs=5e-4)
    assert drop["interval"] == pytest.approx([-0.209, -0.1216], abs=5e-4)
    assert [key for key, one in found.items() if "was" in one] == [("dp-majority-exposed", "model")]
    verb.run_claims(CONFIG, (), None, acknowledging=False, as_json=False)
    assert "- dp-majority-exposed (model): does not hold, was holds" in capsys.readouterr().out
    verb.run_claims(CONFIG, (), tmp_path / "table.csv", acknowledging=True, as_json=False)
    assert "Not as acknowledged" not in capsys.readouterr().out
    assert read_acknowledged(path)["dp-majority-exposed", Place.MODEL] is Verdict.FAILS
    assert (tmp_path / "table.csv").read_text(encoding="utf-8").count("\n") == 1 + 3 * len(CONFIG.claims.claims)


def test_only_verdicts_on_committed_records_are_acknowledged() -> None:
    with pytest.raises(UserError, match="Promote the records first"):
        verb.run_claims(CONFIG, (CACHE,), None, acknowledging=True, as_json=False)


def test_people_see_what_holds_what_does_not_and_why(capsys, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    verb.run_claims(CONFIG, (), None, acknowledging=False, as_json=False)
    said = capsys.readouterr().out
    assert "measured on a cluster: 30 not testable here" in said
    assert "What does not come out as the sources say:" in said
    assert "- dp-throughput-drop, predicted, holds in shape only: change of words/s per GPU" in said
    assert "expected \N{MINUS SIGN}37.22% ± 5 points, which would need slowdown of computation" in said
    assert "- coordination-table, predicted, does not hold: change of words/s from pacing off" in said
    assert "No constant of the model is fitted on a claim" in said


def test_a_study_of_something_else_is_kept_apart(tmp_path) -> None:
    for name in ("paper", "gpu-check"):
        source = CACHE / name / "predict" / "context_length.parquet"
        (tmp_path / name / "predict").mkdir(parents=True)
        (tmp_path / name / "predict" / source.name).write_bytes(source.read_bytes())
    alone = verb.evidence_of(CONFIG, [tmp_path / "paper"])
    assert (
        verb.evidence_of(CONFIG, [tmp_path])
        .frames[Place.MODEL]["context_length"]
        .equals(alone.frames[Place.MODEL]["context_length"])
    )
