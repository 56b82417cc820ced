"""The table of layouts: the fastest micro-batch of each, with the run and provenance of every row."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.present.tables import layouts, make_table, write_table
from scaling_study.spec import Study, Sweep, TableRequest
from tests.unit.present import synthetic as made

STUDY = Study(
    name="mini",
    title="t",
    platform="p",
    sweeps={"s": Sweep(title="s")},
    tables={"layouts": TableRequest(sweep="s"), "other": TableRequest(sweep="s")},
)


def test_a_row_is_a_layout_in_order_of_total_degree() -> None:
    table = layouts(made.mini_model_parallel())
    assert table.select("tp", "pp", "dp").rows() == [(1, 1, 4), (1, 2, 2), (2, 1, 2), (1, 4, 1), (2, 2, 1), (4, 1, 1)]
    assert set(table["micro_batch"]) == {2}
    assert set(table["provenance"]) == {"measured"}
    assert table["run_id"].n_unique() == 6


def test_cells_are_rounded_and_empty_ones_explained() -> None:
    row = layouts(made.mini_model_parallel()).row(1, named=True)
    assert row["words_per_second"] == 975.2
    assert row["mfu"] is None
    assert row["reason"] == f"mfu: {made.CPU_REASONS['mfu']}"


def test_a_layout_that_did_not_fit_is_a_row_too() -> None:
    table = layouts(made.paper_model_parallel())
    ended = table.filter(pl.col("outcome") != "ok")
    assert ended.select("tp", "pp", "provenance").rows() == [(1, 16, "measured"), (1, 16, "predicted")]
    assert set(ended["reason"]) == {"CUDA out of memory"}
    assert table.height == 30


def test_the_csv_is_the_table(tmp_path: Path) -> None:
    table = make_table(STUDY, "layouts", made.mini_model_parallel(), {})
    path = write_table(table, tmp_path, "layouts")
    assert path.name == "layouts.csv"
    assert pl.read_csv(path)["words_per_second"].to_list() == table["words_per_second"].to_list()
    assert (
        path.read_bytes()
        == write_table(
            make_table(STUDY, "layouts", made.mini_model_parallel().reverse(), {}), tmp_path, "x"
        ).read_bytes()
    )


@pytest.mark.parametrize(("name", "message"), [("nothing", "there is no table"), ("other", "no function makes")])
def test_unknown_tables_are_errors(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_table(STUDY, name, made.mini_model_parallel(), {})
