"""Tables: records or definitions into CSV, each row with the run or the source and the provenance of its cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from scaling_study.errors import UserError, write_atomically
from scaling_study.present.coordination import pairs_table, printed_table
from scaling_study.present.roofs import roof_rows
from scaling_study.present.rows import chosen
from scaling_study.spec import Catalogue, Hardware, Precision, Provenance, ReportedRow, ReportedTable, Sourced, Study

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
COMPARISON = {
    "quantity": pl.String,
    "unit": pl.String,
    "hardware": pl.String,
    "value": pl.Float64,
    "source": pl.String,
    "printed": pl.Float64,
    "printed_source": pl.String,
    "difference": pl.Float64,
    "verdict": pl.String,
    "note": pl.String,
    "provenance": pl.String,
}
QUANTITIES = ("peak_tflops", "memory_gb_per_s", "intra_node_gb_per_s", "host_gb_per_s", "inter_node_gb_per_s")
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


def hardware_rows(catalogue: Catalogue) -> pl.DataFrame:
    """What the files say of every hardware that is one part, a row a quantity, with its source.

    Returns:
        columns `hardware`, `quantity` (a field of `Hardware`), `value`, `source`.
    """
    rows = [
        {"hardware": name, "quantity": field, "value": ours.value, "source": part.sources[ours.source]}
        for name, part in sorted(catalogue.hardware.items())
        if part.part
        for field in QUANTITIES
        if (ours := _ours(part, field)) is not None
    ]
    return pl.DataFrame(
        rows, schema={"hardware": pl.String, "quantity": pl.String, "value": pl.Float64, "source": pl.String}
    )


def hardware_table(catalogue: Catalogue) -> pl.DataFrame:
    """HST table 1: what it prints of each part beside our own numbers, one row a quantity and part.

    Returns:
        `difference`: our value over the printed one, less 1; `verdict`: `agrees` within the table's tolerance,
        `differs`, `taken from it` where the source of our value is that very table, or `no value of ours`.

    Raises:
        UserError: the table is not in the configuration, or it names hardware that is not there.
    """
    name = "hst-table1"
    if name not in catalogue.reported:
        raise UserError("there is no such file", where=f"config/reported/{name}.yaml", remedy="Restore it.")
    table = catalogue.reported[name]
    cells = [_compared(table, row, part, catalogue.hardware) for row in table.rows for part in row.printed]
    return pl.DataFrame(cells, schema=COMPARISON).with_columns(pl.col("difference").round_sig_figs(SIGNIFICANT_DIGITS))


def _compared(table: ReportedTable, row: ReportedRow, part: str, known: Mapping[str, Hardware]) -> dict[str, Any]:
    if part not in known:
        where = f"config/reported/{table.name}.yaml"
        raise UserError(f"unknown hardware {part!r}", where=where, remedy=f"Known: {', '.join(known)}.")
    ours, printed = _ours(known[part], row.field), row.printed[part]
    source = known[part].sources[ours.source] if ours else None
    difference = ours.value / printed - 1 if ours else None
    return {
        "quantity": row.quantity,
        "unit": row.unit,
        "hardware": part,
        "value": ours.value if ours else None,
        "source": source,
        "printed": printed,
        "printed_source": table.source,
        "difference": difference,
        "verdict": _verdict(difference, table.tolerance, taken=source == table.source),
        "note": row.notes.get(part),
        "provenance": Provenance.REPORTED.value,
    }


def _ours(hardware: Hardware, field: str) -> Sourced | None:
    value = getattr(hardware, field)
    if isinstance(value, dict):
        value = value.get(Precision.BF16) or value.get(Precision.FP16)
    assert value is None or isinstance(value, Sourced)
    return value


def _verdict(difference: float | None, tolerance: float, *, taken: bool) -> str:
    if difference is None:
        return "no value of ours"
    if taken:
        return "taken from it"
    return "agrees" if abs(difference) <= tolerance else "differs"


#: From the name of a table to the function that makes it, of a sweep's records.
OF_RECORDS: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {"layouts": layouts, "wsf-pairs": pairs_table}
#: The same of a table of the performance model.
OF_MODEL: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {"wsf-table1": printed_table}
#: The same for tables of definitions alone.
OF_DEFINITIONS: dict[str, Callable[[Catalogue], pl.DataFrame]] = {"hst-table1": hardware_table, "roofs": roof_rows}


def make_table(study: Study, name: str, records: pl.DataFrame | None, catalogue: Catalogue) -> pl.DataFrame:
    """One table of a study.

    Args:
        study: that has it.
        name: its id.
        records: of its sweep, or the table of the model that it is made of; None where it has none.
        catalogue: the hardware, and what sources print of it.

    Raises:
        UserError: the study has no such table, no function makes it, or it lacks its records.
    """
    request = study.table(name)
    sweep = request.sweep
    if name in OF_DEFINITIONS:
        return OF_DEFINITIONS[name](catalogue)
    if name in OF_MODEL and request.of is not None:
        if records is None:
            raise UserError(f"{name} needs the table {request.of}", where="tables", remedy="Give its file.")
        return OF_MODEL[name](records)
    if name not in OF_RECORDS:
        known = ", ".join([*OF_RECORDS, *OF_DEFINITIONS, *OF_MODEL])
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
