"""Flattened compute and communication of a timeline, and how much communication is exposed.

Everything follows from one sweep: the boundaries of all spans cut time into segments, and each segment knows how
many spans of each layer are active in it. A union is the length where a layer is active at all; communication is
exposed where it is active and no compute of the same rank is (HST section 2.2).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import polars as pl

from scaling_study.spec import SpanKind

UNKNOWN_AXIS = "unknown"


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """Flattened times of one rank over a window, integer nanoseconds.

    Attributes:
        compute_ns: some compute span is active.
        communication_ns: some communication span is active.
        exposed_communication_ns: communication is, compute is not.
        communication_by_axis_ns: the same for the spans of one parallel axis; `unknown` where a span has none.
        exposed_by_axis_ns: likewise. Axes overlap in time, so these do not add up to the total.
    """

    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    communication_by_axis_ns: dict[str, int]
    exposed_by_axis_ns: dict[str, int]


#: Of a rank on which nothing ran.
NO_EXPOSURE = Exposure(
    compute_ns=0,
    communication_ns=0,
    exposed_communication_ns=0,
    communication_by_axis_ns={},
    exposed_by_axis_ns={},
)


def segments(spans: pl.DataFrame, layers: Mapping[str, pl.Expr], by: str = "rank") -> pl.DataFrame:
    """Cut time at every boundary; count the active spans of each layer in each piece.

    Args:
        spans: a table with `start_ns`, `end_ns` and the column `by`.
        layers: name and condition of each layer.
        by: pieces are cut apart for each value of this column.

    Returns:
        Columns `by`, `start_ns`, `end_ns` and one count a layer; pieces of zero length are left out.
    """
    flags = spans.select(by, "start_ns", "end_ns", **{name: when.cast(pl.Int64) for name, when in layers.items()})
    opening = flags.select(by, pl.col("start_ns").alias("at_ns"), *layers)
    closing = flags.select(by, pl.col("end_ns").alias("at_ns"), *(-pl.col(name) for name in layers))
    changes = pl.concat([opening, closing]).group_by(by, "at_ns").agg(pl.col(*layers).sum()).sort(by, "at_ns")
    return changes.select(
        by,
        pl.col("at_ns").alias("start_ns"),
        pl.col("at_ns").shift(-1).over(by).alias("end_ns"),
        *(pl.col(name).cum_sum().over(by) for name in layers),
    ).drop_nulls("end_ns")


def unions(spans: pl.DataFrame, layers: Mapping[str, pl.Expr]) -> dict[str, int]:
    """The flattened time of each layer of one rank, nanoseconds.

    Args:
        spans: of one rank.
        layers: name and condition of each layer.
    """
    pieces, length = segments(spans, layers), pl.col("end_ns") - pl.col("start_ns")
    return pieces.select(length.filter(pl.col(name) > 0).sum().alias(name) for name in layers).row(0, named=True)


def exposed_spans(spans: pl.DataFrame) -> pl.DataFrame:
    """When communication runs and nothing computes: columns `rank`, `start_ns`, `end_ns`, neighbours not joined."""
    layers = {name.value: pl.col("kind") == name for name in (SpanKind.COMPUTE, SpanKind.COMMUNICATION)}
    pieces = segments(spans, layers)
    return pieces.filter((pl.col("communication") > 0) & (pl.col("compute") == 0)).select("rank", "start_ns", "end_ns")


def exposure(spans: pl.DataFrame) -> dict[int, Exposure]:
    """The `Exposure` of every rank of a timeline."""
    communicates = pl.col("kind") == SpanKind.COMMUNICATION
    axis = pl.col("axis").fill_null(UNKNOWN_AXIS)
    axes = sorted(spans.filter(communicates).select(axis.unique()).to_series().to_list())
    layers = {
        "compute": pl.col("kind") == SpanKind.COMPUTE,
        "communication": communicates,
        **{f"axis_{name}": communicates & (axis == name) for name in axes},
    }
    pieces = segments(spans, layers)
    length, idle = pl.col("end_ns") - pl.col("start_ns"), pl.col("compute") == 0
    active = list(layers)
    totals = pieces.group_by("rank").agg(
        *(length.filter(pl.col(name) > 0).sum().alias(name) for name in active),
        *(length.filter((pl.col(name) > 0) & idle).sum().alias(f"exposed_{name}") for name in active[1:]),
    )
    ranks = spans.select(pl.col("rank").unique(maintain_order=True))  # one whose spans all have no length has no piece
    totals = ranks.join(totals, on="rank", how="left").fill_null(0)
    return {row["rank"]: _exposure(row, axes) for row in totals.iter_rows(named=True)}


def exposure_of_groups(spans: pl.DataFrame) -> pl.DataFrame:
    """Flattened communication of each process group of each rank, and how much of it is exposed.

    Returns:
        Columns `rank`, `group` (`unknown` where a span has none), `axis`, `communication_ns`,
        `exposed_communication_ns`.
    """
    group = pl.col("group").fill_null(UNKNOWN_AXIS)
    communication = spans.filter(pl.col("kind") == SpanKind.COMMUNICATION).with_columns(group=group)
    compute = spans.filter(pl.col("kind") == SpanKind.COMPUTE)
    schema = {"rank": pl.Int32, "group": pl.String, "axis": pl.String, **dict.fromkeys(_TIMES, pl.Int64)}
    parts = [pl.DataFrame(schema=schema)]
    for (name,), of_group in communication.group_by("group", maintain_order=True):
        rows = [
            (rank, name, one.communication_ns, one.exposed_communication_ns)
            for rank, one in exposure(pl.concat([of_group, compute.select(of_group.columns)])).items()
        ]
        frame = pl.DataFrame(rows, schema=["rank", "group", *_TIMES], orient="row")
        axis = of_group["axis"].drop_nulls().first()
        parts.append(
            frame.with_columns(axis=pl.lit(axis, pl.String)).select(pl.col(n).cast(t) for n, t in schema.items())
        )
    return pl.concat(parts).filter(pl.col("communication_ns") > 0).sort("rank", "group")


_TIMES = ("communication_ns", "exposed_communication_ns")


def window(spans: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """The part of a timeline inside a window; spans that reach beyond it are cut."""
    inside = spans.filter((pl.col("end_ns") > start_ns) & (pl.col("start_ns") < end_ns))
    return inside.with_columns(pl.col("start_ns").clip(lower_bound=start_ns), pl.col("end_ns").clip(upper_bound=end_ns))


def _exposure(row: Mapping[str, int], axes: list[str]) -> Exposure:
    return Exposure(
        compute_ns=row["compute"],
        communication_ns=row["communication"],
        exposed_communication_ns=row["exposed_communication"],
        communication_by_axis_ns={name: row[f"axis_{name}"] for name in axes},
        exposed_by_axis_ns={name: row[f"exposed_axis_{name}"] for name in axes},
    )
