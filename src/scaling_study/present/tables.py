"""Tables: records into CSV, each row with the run and the provenance that its cells come from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from scaling_study.errors import UserError, write_atomically
from scaling_study.present.rows import chosen
from scaling_study.spec import Hardware, Study

SIGNIFICANT_DIGITS = 4
METRICS = (
    "iteration_s_p50",
    "words_per_second",
    "words_per_second_per_gpu",
    "exposed_communication_s",
    "exposed_fraction",
    "mfu",
    "peak_memory_gib",
)
LAYOUT_COLUMNS = ("model", "hardware", "gpus", "tp", "pp", "dp", "micro_batch", "outcome", *METRICS)


def layouts(records: pl.DataFrame) -> pl.DataFrame:
    """Every layout of model parallelism with its fastest micro-batch, or with how it ended.

    Args:
        records: rows of a sweep over layouts.

    Returns:
        one row a layout and provenance; `reason` says why a run left no numbers or why a cell is empty.
    """
    frame = chosen(records).sort("hardware", "gpus", pl.col("tp") * pl.col("pp"), "tp", "pp", "provenance")
    reasons = pl.Series("reason", [_reason(row) for row in frame.iter_rows(named=True)], dtype=pl.String)
    table = frame.select(*LAYOUT_COLUMNS, "provenance", reasons, "run_id")
    return table.with_columns(pl.selectors.float().round_sig_figs(SIGNIFICANT_DIGITS))


def _reason(row: Mapping[str, Any]) -> str:
    if row["reason"]:
        return str(row["reason"])
    reasons = json.loads(row["null_reasons"] or "{}")
    return "; ".join(f"{name}: {reasons.get(name, 'not recorded')}" for name in METRICS if row[name] is None)


#: From the name of a table to the function that makes it, of a sweep's records.
OF_RECORDS: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {"layouts": layouts}
#: The same for tables of definitions alone.
OF_HARDWARE: dict[str, Callable[[Mapping[str, Hardware]], pl.DataFrame]] = {}


def make_table(study: Study, name: str, records: pl.DataFrame | None, hardware: Mapping[str, Hardware]) -> pl.DataFrame:
    """One table of a study.

    Args:
        study: that has it.
        name: its id.
        records: of its sweep; None where it has none.
        hardware: the catalogue's, by name.

    Raises:
        UserError: the study has no such table, no function makes it, or it lacks its records.
    """
    sweep = study.table(name).sweep
    if name in OF_HARDWARE:
        return OF_HARDWARE[name](hardware)
    if name not in OF_RECORDS:
        known = ", ".join([*OF_RECORDS, *OF_HARDWARE])
        raise UserError(f"no function makes {name!r}", where="tables", remedy=f"Known: {known}.")
    if records is None or records.is_empty():
        raise UserError(f"{name} needs records of the sweep {sweep!r}", where="tables", remedy="Give its record file.")
    return OF_RECORDS[name](records)


def write_table(table: pl.DataFrame, folder: Path, name: str) -> Path:
    """Write `<name>.csv` into a folder, complete or not at all.

    Raises:
        UserError: the folder cannot be written.
    """
    path = folder / f"{name}.csv"
    write_atomically(path, table.write_csv().encode())
    return path
