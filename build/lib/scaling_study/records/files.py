"""Record files: parquet with a schema version and a digest of its rows, refused when either does not fit."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from scaling_study.errors import UserError, explain_os_error, write_atomically
from scaling_study.records.schema import SCHEMA, SCHEMA_VERSION


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Write records, sorted by run, complete or not at all.

    Raises:
        UserError: the file cannot be written.
    """
    frame = pl.DataFrame([dict(record) for record in records], schema=SCHEMA).sort("run_id", "provenance")
    buffer = io.BytesIO()
    metadata = {"schema_version": str(SCHEMA_VERSION), "digest": digest(frame)}
    frame.write_parquet(buffer, compression="zstd", metadata=metadata)
    write_atomically(path, buffer.getvalue())
    return frame


def read_records(path: Path) -> pl.DataFrame:
    """Read a record file.

    Raises:
        UserError: it is missing, no record file, of another schema version, or altered after it was written.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise explain_os_error(error, where=str(path)) from error
    try:
        metadata = pl.read_parquet_metadata(io.BytesIO(content))
        frame = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError("not a parquet file, or damaged", where=str(path), remedy=_again(path)) from error
    if metadata.get("schema_version") != str(SCHEMA_VERSION):
        raise UserError(
            f"records of schema version {metadata.get('schema_version', 'none')}, this code reads {SCHEMA_VERSION}",
            where=str(path),
            remedy=_again(path),
        )
    if dict(frame.schema) != SCHEMA or metadata.get("digest") != digest(frame):
        raise UserError("the records were altered after they were written", where=str(path), remedy=_again(path))
    return frame


def digest(frame: pl.DataFrame) -> str:
    """SHA-256 over the rows as newline-delimited JSON, sorted by run."""
    return hashlib.sha256(frame.sort("run_id", "provenance").write_ndjson().encode()).hexdigest()


def _again(path: Path) -> str:
    return "Restore it from git." if "cached" in path.parts else "Delete it; the next run writes it again."
