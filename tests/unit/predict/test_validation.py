"""The verb `validate`, from a table to errors per source."""

import polars as pl
import pytest

from scaling_study.cli import main
from scaling_study.predict.rows import read_rows
from scaling_study.predict.validation import reports, validate
from tests.unit.predict.setups import LIBRARY
from tests.unit.predict.test_rows import GOOD
from tests.unit.samples import ROOT


def table(tmp_path, *rows):
    path = tmp_path / "runs.csv"
    pl.DataFrame(rows).write_csv(path)
    return path


def test_every_row_comes_back_with_a_prediction_or_a_reason(tmp_path):
    good = {**GOOD, "outcome": "ok", "step_time_s": "1.5"}
    path = table(tmp_path, good, {**good, "gpu": "TPU"}, {**good, "tp": None}, {**good, "dp": "x"})
    found = validate(path, LIBRARY)
    assert found.height == 4
    assert set(GOOD) < set(found.columns)
    assert found["measured_step_time_s"].to_list() == [1.5] * 4
    first = found.row(0, named=True)
    assert first["predicted_step_time_low_s"] < first["predicted_step_time_s"] < first["predicted_step_time_high_s"]
    assert 0.2 < first["predicted_mfu"] < 0.6
    assert first["predicted_memory_gib"] > 10
    assert first["predicted_outcome"] == "ok"
    assert first["reason"] is None
    for row in found.iter_rows(named=True):
        assert (row["reason"] is None) == (row["predicted_step_time_s"] is not None)


def test_a_table_of_nothing_but_bad_rows(tmp_path):
    found = validate(table(tmp_path, {"gpu": "x", "source_id": "s"}), LIBRARY)
    (report,) = reports(found)
    assert (report.source, report.rows, report.reasons) == ("s", 0, 1)


def test_errors_per_source():
    found = reports(validate(LIBRARY.folder / "runs.csv", LIBRARY))
    assert len(found) == 8
    assert all(report.reasons == 0 for report in found)
    assert sum(report.mape for report in found) / 8 < 6
    by_name = {report.source: report for report in found}
    assert by_name["hagemann2023_layouts"].memory >= 0.9
    assert by_name["hagemann2023_layouts"].rank > 0.97


def test_the_verb_prints_and_writes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = table(tmp_path, {**GOOD, "outcome": "ok", "step_time_s": "1.5"}, {**GOOD, "gpu": "TPU"})
    with pytest.raises(SystemExit) as caught:
        main(["validate", str(path), "--output", str(tmp_path / "out" / "v.parquet")])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert "somebody" in said
    assert "1 rows without a prediction: unknown GPU 'TPU'" in said
    assert pl.read_parquet(tmp_path / "out" / "v.parquet").height == read_rows(path).height


def test_a_missing_table_is_one_message(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as caught:
        main(["validate", str(tmp_path / "none.csv")])
    assert caught.value.code == 2
    assert "none.csv" in capsys.readouterr().err
