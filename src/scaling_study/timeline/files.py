"""Timelines as files: the span table as parquet, or a Chrome trace that Perfetto opens.

In a Chrome trace a rank is a process and a stream a thread; times are microseconds from the first span, which is
`baseTimeNanoseconds`, so that no nanosecond is lost in a float.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from scaling_study.errors import UserError, read_bytes, write_atomically
from scaling_study.timeline.spans import SCHEMA

_BIGGEST_GZIP = 9


def write_timeline_file(path: Path, spans: pl.DataFrame, title: str = "") -> None:
    """Write a span table, complete or not at all.

    Args:
        path: `.parquet`, `.json` or `.json.gz`.
        spans: columns of `SCHEMA`.
        title: of a trace, shown by viewers.

    Raises:
        UserError: another suffix, or the file cannot be written.
    """
    if path.name.endswith(".parquet"):
        buffer = io.BytesIO()
        spans.write_parquet(buffer, compression="zstd")
        content = buffer.getvalue()
    elif path.name.endswith((".json", ".json.gz")):
        content = chrome_trace(spans, title)
        content = gzip.compress(content, _BIGGEST_GZIP, mtime=0) if path.suffix == ".gz" else content
    else:
        raise UserError(
            "a timeline is written as .parquet, .json or .json.gz", where=str(path), remedy="Choose one of them."
        )
    write_atomically(path, content)


def read_timeline_file(path: Path) -> pl.DataFrame:
    """The span table of a parquet file.

    Raises:
        UserError: it is missing, or no span table.
    """
    content = read_bytes(path)
    try:
        frame = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise UserError("not a parquet file, or damaged", where=str(path), remedy="Write it again.") from error
    if dict(frame.schema) != SCHEMA:
        raise UserError("not a span table", where=str(path), remedy="Write it again.")
    return frame


def chrome_trace(spans: pl.DataFrame, title: str = "") -> bytes:
    """The JSON of a Chrome trace: complete events, names of processes and threads."""
    base_ns = spans["start_ns"].min() or 0
    assert isinstance(base_ns, int)
    streams = sorted(spans["stream"].unique())
    document = {
        "traceEvents": [*_names(spans, streams), *_events(spans, streams, base_ns)],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base_ns,
        "otherData": {"title": title},
    }
    return msgspec.json.encode(document)


def _names(spans: pl.DataFrame, streams: list[str]) -> Iterator[dict[str, Any]]:
    places = spans.select("rank", "stream").unique().sort("rank", "stream")
    for rank in places["rank"].unique(maintain_order=True):
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
    for rank, stream in places.iter_rows():
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": streams.index(stream), "args": {"name": stream}}


def _events(spans: pl.DataFrame, streams: list[str], base_ns: int) -> Iterator[dict[str, Any]]:
    threads = {stream: index for index, stream in enumerate(streams)}
    for row in spans.sort("rank", "start_ns", "end_ns", "stream").iter_rows(named=True):
        known = {name: row[name] for name in ("group", "axis", "bytes") if row[name] is not None}
        yield {
            "ph": "X",
            "name": row["op"],
            "cat": row["kind"],
            "pid": row["rank"],
            "tid": threads[row["stream"]],
            "ts": (row["start_ns"] - base_ns) / 1000,
            "dur": (row["end_ns"] - row["start_ns"]) / 1000,
            "args": known,
        }
