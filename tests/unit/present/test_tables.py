"""Tables: layouts with their fastest micro-batch and run; hardware beside what a source prints of it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.present.tables import hardware_table, layouts, make_table, write_table
from scaling_study.spec import Catalogue, Config, ReportedRow, ReportedTable, Study, Sweep, TableRequest
from tests.unit.present import synthetic as made

STUDY = Study(
    name="mini",
    title="t",
    platform="p",
    sweeps={"s": Sweep(title="s")},
    tables={"layouts": TableRequest(sweep="s"), "other": TableRequest(sweep="s"), "hst-table1": TableRequest()},
)
CATALOGUE = Config(Path(__file__).parents[3] / "config").catalogue


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
    table = make_table(STUDY, "layouts", made.mini_model_parallel(), CATALOGUE)
    path = write_table(table, tmp_path, "layouts")
    assert path.name == "layouts.csv"
    assert pl.read_csv(path)["words_per_second"].to_list() == table["words_per_second"].to_list()
    assert (
        path.read_bytes()
        == write_table(
            make_table(STUDY, "layouts", made.mini_model_parallel().reverse(), CATALOGUE), tmp_path, "x"
        ).read_bytes()
    )


@pytest.mark.parametrize(("name", "message"), [("nothing", "there is no table"), ("other", "no function makes")])
def test_unknown_tables_are_errors(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_table(STUDY, name, made.mini_model_parallel(), CATALOGUE)


def _with(quantity: ReportedRow) -> Catalogue:
    """The catalogue, its table replaced by one of this row."""
    table = ReportedTable(name="hst-table1", title="t", source="a paper", tolerance=0.02, rows=(quantity,))
    return Catalogue(models={}, hardware=CATALOGUE.hardware, reported={"hst-table1": table})


def _verdicts(field: str, **printed: float) -> dict[str, str]:
    found = hardware_table(_with(ReportedRow(quantity="q", unit="u", field=field, printed=printed)))
    return dict(found.select("hardware", "verdict").iter_rows())


def test_the_table_of_hardware_has_a_row_a_quantity_and_part(tmp_path: Path) -> None:
    table = make_table(STUDY, "hst-table1", None, CATALOGUE)
    assert table.select("quantity", "hardware").n_unique() == table.height == 12
    assert table["hardware"].to_list() == ["v100", "a100", "h100"] * 4
    assert set(table["provenance"]) == {"reported"}
    assert set(table["verdict"]) == {"agrees", "taken from it"}
    assert pl.read_csv(write_table(table, tmp_path, "hst-table1")).equals(table)


def test_a_number_stands_beside_the_printed_one_with_both_sources() -> None:
    table = hardware_table(CATALOGUE)
    row = table.row(
        by_predicate=(pl.col("hardware") == "a100") & (pl.col("quantity") == "memory bandwidth"), named=True
    )
    assert (row["value"], row["printed"], row["unit"], row["difference"]) == (2039, 2000, "GB/s", 0.0195)
    assert "datasheet" in row["source"]
    assert row["printed_source"] == "Hardware Scaling Trends, Table 1"


def test_agreement_is_within_the_tolerance_and_needs_a_source_of_its_own() -> None:
    assert _verdicts("memory_gb_per_s", a100=2000, h100=3200) == {"a100": "agrees", "h100": "differs"}
    assert _verdicts("memory_gb_per_s", cpu=100) == {"cpu": "no value of ours"}
    ours = hardware_table(CATALOGUE).filter(pl.col("verdict") == "taken from it")
    assert ours.select("hardware", "source").rows() == [("v100", "Hardware Scaling Trends, Table 1")]


def test_a_part_without_bfloat16_is_compared_at_its_half_precision() -> None:
    assert _verdicts("peak_tflops", v100=125, a100=312) == {"v100": "agrees", "a100": "agrees"}


def test_unknown_hardware_and_a_missing_table_are_errors() -> None:
    with pytest.raises(UserError, match=r"hst-table1\.yaml: unknown hardware 'z100'"):
        _verdicts("memory_gb_per_s", z100=1)
    with pytest.raises(UserError, match=r"config/reported/hst-table1\.yaml: there is no such file"):
        hardware_table(Catalogue(models={}, hardware={}))
