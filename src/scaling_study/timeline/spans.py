"""The span table: what each rank did, when, in integer nanoseconds."""

from __future__ import annotations

import polars as pl

#: Columns of a timeline. `kind` is a `SpanKind`, `axis` an `Axis` or null where the trace does not tell; `bytes` is
#: null where it does not; times are nanoseconds since the epoch (measured) or since the start (predicted).
SCHEMA: dict[str, type[pl.DataType]] = {
    "rank": pl.Int32,
    "stream": pl.String,
    "kind": pl.String,
    "op": pl.String,
    "group": pl.String,
    "axis": pl.String,
    "bytes": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}
