"""Record files: parquet with a schema version and a digest of its rows, refused when either does not fit."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from scaling_study.errors import UserError, read_bytes, write_atomically
from scaling_study.recordfile import SCHEMA_VERSION, UNSEALED, has_seal, is_damaged, seal
from scaling_study.records.schema import SCHEMA
from scaling_study.spec import Provenance


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Write records, sorted by run, complete or not at all.

    Raises:
        UserError: the file cannot be written.
    """
    frame = pl.DataFrame([dict(record) for record in records], schema=SCHEMA).sort("run_id", "provenance")
    buffer = io.BytesIO()
    metadata = {"schema_version": str(SCHEMA_VERSION), "digest": digest(frame), "seal": UNSEALED.decode()}
    frame.write_parquet(buffer, compression="zstd", metadata=metadata)
    write_atomically(path, seal(buffer.getvalue()))
    return frame


def read_records(path: Path) -> pl.DataFrame:
    """Read a record file.

    Raises:
        UserError: it is missing, no record file, of another schema version, or altered after it was written.
    """
    content = read_bytes(path)
    if has_seal(content) and is_damaged(content):
        raise UserError("not a parquet file, or damaged", where=str(path), remedy=_again(path))
    try:
        metadata = pl.read_parquet_metadata(io.BytesIO(content))
        frame = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise UserError("not a parquet file, or damaged", where=str(path), remedy=_again(path)) from error
    if metadata.get("schema_version") != str(SCHEMA_VERSION):
        raise UserError(
            f"records of schema version {metadata.get('schema_version', 'none')}, this code reads {SCHEMA_VERSION}",
            where=str(path),
            remedy="Measure the study again; what is in the run store is only gathered anew. Then promote it.",
        )
    if dict(frame.schema) != SCHEMA or metadata.get("digest") != digest(frame):
        raise UserError("the records were altered after they were written", where=str(path), remedy=_again(path))
    return frame


def write_parquet(path: Path, table: pl.DataFrame) -> None:
    """Write a table that is not of records, complete or not at all.

    Raises:
        UserError: the file cannot be written.
    """
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())


def read_table(path: Path) -> pl.DataFrame:
    """A table from parquet.

    Raises:
        UserError: it is missing or damaged.
    """
    content = read_bytes(path)
    try:
        return pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise UserError("not a parquet file, or damaged", where=str(path), remedy="Write it again.") from error


def require_runs(frame: pl.DataFrame, runs: Mapping[str, str], where: str, *, partly: bool = False) -> pl.DataFrame:
    """The records, if they are of the sweep's runs: all those of the hardware that they are of, and no other.

    Args:
        frame: records of one platform, which measures one hardware, or of a prediction of all.
        runs: the hardware of every run of the sweep, by run id.
        where: the file, for the message.
        partly: of measured runs some may be missing.

    Raises:
        UserError: some are of other runs, or some runs are missing: the study has changed since they were made.
    """
    found = set(frame["run_id"])
    whole = frame.filter(pl.col("provenance") != Provenance.MEASURED) if partly else frame
    hardware = set(whole["hardware"])
    strangers = sorted(found - set(runs))
    missing = sorted(name for name, its in runs.items() if its in hardware and name not in found)
    if strangers or missing or not found:
        said = [
            f"{len(names)} {what} (such as {names[0]})"
            for names, what in (
                (strangers, "of runs that the sweep does not have"),
                (missing, "of its runs are missing"),
            )
            if names
        ]
        raise UserError(
            f"the records are not those of the sweep: {', '.join(said) or 'there are none'}",
            where=where,
            remedy="The study has changed since: measure it again, or restore its configuration.",
        )
    return frame


def digest(frame: pl.DataFrame) -> str:
    """SHA-256 over the rows as newline-delimited JSON, sorted by run."""
    return hashlib.sha256(frame.sort("run_id", "provenance").write_ndjson().encode()).hexdigest()


def _again(path: Path) -> str:
    return "Restore it from git." if "cached" in path.parts else "Delete it; the next run writes it again."
