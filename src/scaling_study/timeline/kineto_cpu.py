"""Kineto traces of a CPU rank into the span table.

gloo's annotations are communication. Compute is the union of top-level `aten::` operators, less the time that an
operator spends inside a communication call on its own thread (a DTensor operator may wait for a collective). gloo
names no process group, and gives no bytes: the group of a span follows from its worker thread, which `measure`
makes known by a few collectives inside a `MARK_AXIS` range before the measured iterations; point-to-point is the
pipeline's.
"""

from __future__ import annotations

import gzip
import zlib
from decimal import Decimal
from pathlib import Path

import msgspec
import polars as pl

from scaling_study.errors import UserError, explain_os_error
from scaling_study.spec import Axis, SpanKind
from scaling_study.timeline.exposure import segments, window
from scaling_study.timeline.spans import SCHEMA

MARK_ITERATION = "scaling-study:iteration"
MARK_AXIS = "scaling-study:axis:"
_COMMUNICATION = "gloo:"
_CALLS = ("c10d::", "_c10d_functional::")


class _Event(msgspec.Struct):
    name: str = ""
    ph: str = ""
    cat: str = ""
    ts: Decimal = Decimal(0)  # microseconds since the base, up to three months: a float would lose nanoseconds
    dur: Decimal = Decimal(0)
    tid: int | str = 0


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815  the file's name
    baseTimeNanoseconds: int = 0  # noqa: N815


class CpuTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank's trace says.

    Attributes:
        spans: the span table inside the marked iterations.
        iteration_ns: the length of each marked iteration.
        attention_operators: the attention operators that ran, the innermost ones.
    """

    spans: pl.DataFrame
    iteration_ns: list[int]
    attention_operators: list[str]


def read_cpu_trace(path: Path, rank: int) -> CpuTrace:
    """Reduce the trace of one rank.

    Raises:
        UserError: the file cannot be read, is no trace, or marks no iteration.
    """
    events, base_ns = _load(path)
    marks = events.filter(pl.col("name") == MARK_ITERATION).sort("start_ns")
    if marks.is_empty():
        raise UserError("the trace marks no iteration", where=str(path), remedy="Measure the run again.")
    start_ns, end_ns = int(marks["start_ns"][0]), max(marks["end_ns"].to_list())
    spans = pl.concat([_communication(events), _compute(events)])
    spans = (
        window(spans, start_ns, end_ns)
        .with_columns(pl.lit(rank, pl.Int32).alias("rank"), pl.col("start_ns", "end_ns") + base_ns)
        .select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())
        .sort("start_ns", "end_ns", "stream")
    )
    return CpuTrace(
        spans=spans,
        iteration_ns=(marks["end_ns"] - marks["start_ns"]).to_list(),
        attention_operators=_attention_operators(events),
    )


def _attention_operators(events: pl.DataFrame) -> list[str]:
    """Kernels have a leading underscore in their name, the public operator that chooses among them has none."""
    kernels = pl.col("name").str.starts_with("aten::_scaled_dot_product") & ~pl.col("name").str.ends_with("backward")
    return sorted(events.filter(kernels)["name"].unique().to_list())


def _load(path: Path) -> tuple[pl.DataFrame, int]:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        trace = msgspec.json.decode(content, type=_Trace)
    except (msgspec.DecodeError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UserError(f"not a Kineto trace: {error}", where=str(path), remedy="Measure the run again.") from error
    except OSError as error:
        raise explain_os_error(error, where=str(path)) from error
    complete = [event for event in trace.traceEvents if event.ph == "X"]
    frame = pl.DataFrame(
        {
            "name": [event.name for event in complete],
            "cat": [event.cat for event in complete],
            "thread": [str(event.tid) for event in complete],
            "start_ns": [round(event.ts * 1000) for event in complete],
            "end_ns": [round((event.ts + event.dur) * 1000) for event in complete],
        },
        schema={"name": pl.String, "cat": pl.String, "thread": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64},
    )
    return frame, trace.baseTimeNanoseconds


def _communication(events: pl.DataFrame) -> pl.DataFrame:
    gloo = events.filter(pl.col("name").str.starts_with(_COMMUNICATION))
    point_to_point = pl.col("op").is_in(["send", "recv"])
    return (
        gloo.join(_axis_of_thread(events, gloo), on="thread", how="left")
        .with_columns(pl.col("name").str.strip_prefix(_COMMUNICATION).alias("op"))
        .select(
            pl.col("thread").alias("stream"),
            pl.lit(SpanKind.COMMUNICATION.value).alias("kind"),
            "op",
            pl.when(point_to_point).then(pl.lit(Axis.PIPELINE.value)).otherwise(pl.col("axis")).alias("axis"),
            "start_ns",
            "end_ns",
        )
        .with_columns(("mesh_" + pl.col("axis")).alias("group"), pl.lit(None, pl.Int64).alias("bytes"))
        .select(_COLUMNS)
    )


def _axis_of_thread(events: pl.DataFrame, gloo: pl.DataFrame) -> pl.DataFrame:
    """Which axis each of gloo's worker threads serves, from the collectives inside the marked ranges."""
    ranges = events.filter(pl.col("name").str.starts_with(MARK_AXIS)).select(
        pl.col("name").str.strip_prefix(MARK_AXIS).alias("axis"),
        pl.col("start_ns").alias("from_ns"),
        pl.col("end_ns").alias("to_ns"),
    )
    inside = gloo.join_where(
        ranges, pl.col("start_ns") >= pl.col("from_ns"), pl.col("start_ns") < pl.col("to_ns")
    ).filter(pl.col("name") == f"{_COMMUNICATION}all_reduce")
    return inside.group_by("thread").agg(pl.col("axis").mode().first())


def _compute(events: pl.DataFrame) -> pl.DataFrame:
    operators = events.filter(pl.col("cat") == "cpu_op")
    aten = operators.filter(pl.col("name").str.starts_with("aten::"))
    ordered = aten.sort("thread", "start_ns", "end_ns", descending=[False, False, True])
    reached = pl.col("end_ns").cum_max().shift(1).over("thread")
    top = ordered.filter(reached.is_null() | (pl.col("start_ns") >= reached))
    waiting = pl.any_horizontal(pl.col("name").str.starts_with(prefix) for prefix in _CALLS)
    both = pl.concat([top, operators.filter(waiting)])
    pieces = segments(both, {"operator": ~waiting, "call": waiting}, by="thread")
    pieces = pieces.filter((pl.col("operator") > 0) & (pl.col("call") == 0)).sort("start_ns")
    named = pieces.join_asof(
        top.select("thread", "name", "start_ns").sort("start_ns"),
        on="start_ns",
        by="thread",
        strategy="backward",
        check_sortedness=False,  # both are sorted above; polars cannot check it beside `by`
    )
    return named.select(
        pl.col("thread").alias("stream"),
        pl.lit(SpanKind.COMPUTE.value).alias("kind"),
        pl.col("name").alias("op"),
        pl.lit(None, pl.String).alias("axis"),
        "start_ns",
        "end_ns",
        pl.lit(None, pl.String).alias("group"),
        pl.lit(None, pl.Int64).alias("bytes"),
    ).select(_COLUMNS)


_COLUMNS = [name for name in SCHEMA if name != "rank"]
