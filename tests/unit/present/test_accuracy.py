"""Errors by hand."""

import polars as pl
import pytest

from scaling_study.predict.calibration import VALIDATION
from scaling_study.present.accuracy import LABELS, choice_loss, errors_by_source, memory_accuracy
from scaling_study.present.numbers.validation import of_validation


def table(*rows):
    base = dict.fromkeys(VALIDATION) | {"group": "g", "gpus": 8, "outcome": "ok", "predicted_outcome": "ok"}
    names = ("source", "measured_step_time_s", "fitted_step_time_s", "unseen_step_time_s")
    return pl.DataFrame([base | dict(zip(names, row, strict=True)) for row in rows], schema=VALIDATION)


ROWS = table(
    ("hagemann2023_layouts", 10.0, 10.1, 10.5),
    ("hagemann2023_layouts", 8.0, 7.92, 12.0),
    ("mosaic_llmfoundry", 2.0, 2.0, 1.9),
)


def test_errors_are_means_over_the_rows_of_a_source():
    first, second = errors_by_source(ROWS).rows(named=True)
    assert first["source"] == "hagemann2023_layouts"
    assert first["rows"] == 2
    assert first["fitted_mape"] == pytest.approx(1.0)
    assert first["unseen_mape"] == pytest.approx((5 + 50) / 2)
    assert first["unseen_bias"] == pytest.approx(27.5)
    assert second["unseen_mape"] == pytest.approx(5)


def test_the_loss_of_a_choice_is_what_the_best_would_have_gained():
    assert choice_loss(ROWS, "hagemann2023_layouts") == pytest.approx(1 - 8 / 10)
    assert choice_loss(ROWS, "mosaic_llmfoundry") is None  # a group of one is no choice


def test_memory_counts_both_kinds_alike():
    kinds = [("ok", "ok"), ("ok", "ok"), ("ok", "out_of_memory"), ("ok", "ok"), ("out_of_memory", "out_of_memory")]
    rows = table(*[("a", None, None, None)] * 5).with_columns(
        outcome=pl.Series([one for one, _ in kinds]), predicted_outcome=pl.Series([two for _, two in kinds])
    )
    assert memory_accuracy(rows, "a") == pytest.approx((3 / 4 + 1) / 2)
    assert memory_accuracy(ROWS, "mosaic_llmfoundry") is None


def test_numbers_of_the_paper():
    found = of_validation(ROWS)
    assert found["validation.rows"].value == 3
    assert found["validation.unseen"].value == pytest.approx((0.275 + 0.05) / 2)
    assert found["validation.worst"].text == "28% (Hagemann et al.)"
    assert found["validation.best"].text == "5.0% (LLM Foundry)"
    assert found["validation.near"].value == pytest.approx(2 / 3)
    assert found["validation.choice_loss"].text == "20%"


def test_every_source_has_a_short_name():
    from tests.unit.samples import ROOT

    committed = pl.read_parquet(ROOT / "results/cached/paper/model/validation.parquet")
    assert set(committed["source"]) == set(LABELS)
    assert dict(committed.schema) == VALIDATION
