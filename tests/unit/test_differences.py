"""The verb `compare`: numbers, claims and runs of two campaigns."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from scaling_study.differences import as_mapping, differences, print_differences
from scaling_study.errors import UserError
from scaling_study.records import read_records, write_records
from tests.unit.samples import CONFIG, ROOT

PREDICTED = ROOT / "results/cached/paper/predict"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Predicted records of two sweeps: another power at 2,048 GPUs, and without what ran out of memory."""
    folder = tmp_path / "paper" / "predict"
    scaling = read_records(PREDICTED / "data_parallel.parquet")
    power = pl.when(pl.col("gpus") == 2048).then(300.0).otherwise(pl.col("power_w_per_gpu"))
    write_records(folder / "data_parallel.parquet", scaling.with_columns(power_w_per_gpu=power).to_dicts())
    lengths = read_records(PREDICTED / "context_length.parquet").filter(outcome="ok")
    write_records(folder / "context_length.parquet", lengths.to_dicts())
    return tmp_path


def test_the_same_records_are_the_same() -> None:
    found = differences(CONFIG, PREDICTED, PREDICTED)
    assert not found.any
    assert as_mapping(found)["same"] is True
    assert as_mapping(found)["compared"] > 2000


def test_what_moved_is_named_with_the_claims_that_changed(other: Path, capsys) -> None:
    found = differences(CONFIG, PREDICTED, other)
    said = as_mapping(found)
    assert [(one["metric"], one["b"]) for one in said["moved"]] == [("power_w_per_gpu", 300.0)]
    assert [(one["id"], one["a"], one["b"]) for one in said["claims"]] == [
        ("dp-power-drop", "holds", "holds in shape only"),
        ("dp-power-linear", "holds", "does not hold"),
    ]
    assert len(said["only_a"]) > 900
    assert said["only_b"] == []
    print_differences(found)
    printed = capsys.readouterr().out
    assert "1 of " in printed
    assert "numbers moved beyond their ranges" in printed
    assert "claim dp-power-drop: holds (model) before, holds in shape only (model) after" in printed
    assert f"runs in {PREDICTED} only" in printed


def test_a_measurement_is_compared_with_its_prediction(tmp_path: Path) -> None:
    rows = read_records(PREDICTED / "data_parallel.parquet").to_dicts()
    for row in rows:
        row |= {"provenance": "measured", "platform": "slurm-h100", "power_w_per_gpu": row["power_w_per_gpu"] * 1.3}
        row |= {"iteration_s_p05": row["iteration_s"], "iteration_s_p95": row["iteration_s"]}
    write_records(tmp_path / "data_parallel.parquet", rows)
    found = differences(CONFIG, PREDICTED / "data_parallel.parquet", tmp_path)
    assert {row["provenance_b"] for row in as_mapping(found)["moved"]} == {"measured"}
    assert [(one.id, one.place_a.value, one.place_b.value) for one in found.claims] == [
        ("dp-power-drop", "model", "cluster")
    ]


def test_a_folder_without_records_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are no records"):
        differences(CONFIG, PREDICTED, tmp_path)
