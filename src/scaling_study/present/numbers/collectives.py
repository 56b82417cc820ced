"""Of communication primitives: what becomes of their bandwidth with larger messages and with more ranks."""

from __future__ import annotations

from typing import Any, cast

import polars as pl

from scaling_study.present.axes import binary_size
from scaling_study.present.numbers.compare import ranges
from scaling_study.present.numbers.core import (
    Number,
    Pad,
    gigabytes_per_second,
    in_order,
    joined,
    moves,
    one_of,
    percent,
    quantity,
)
from scaling_study.present.rows import BANDWIDTH, BANDWIDTH_HIGH, BANDWIDTH_LOW, with_bandwidth_spread
from scaling_study.spec import CollectiveOp, Outcome

#: Swept over messages and ranks; the others stand at one point.
SWEPT = (CollectiveOp.ALL_REDUCE, CollectiveOp.ALL_GATHER)
SINGLE = (CollectiveOp.REDUCE_SCATTER, CollectiveOp.SEND_RECV)


def of_collectives(frame: pl.DataFrame) -> dict[str, Number]:
    """Protocol and noise of collective runs, and the bandwidth of each primitive."""
    ok = with_bandwidth_spread(frame.filter(pl.col("outcome") == Outcome.OK)).sort("run_id")
    if ok.is_empty():
        return {}
    pad = Pad("collectives", ok)
    sizes, ranks = in_order(ok["message_bytes"]), in_order(ok["gpus"])
    pad.add("ops", joined([operation.replace("_", "-") for operation in in_order(ok["op"])]))
    pad.add("sizes", joined([binary_size(size) for size in sizes]))
    pad.add("size_ratio", sizes[-1] / sizes[0], quantity)
    pad.add("largest", sizes[-1], binary_size)
    for name, count in (("fewest", ranks[0]), ("most", ranks[-1])):
        pad.add(name, count)
    for name in ("warmup", "repeats", "dtype"):
        pad.add(name, one_of(ok[name]))
    pad.add("cv_median", cast("float | None", ok["call_s_cv"].median()), percent)
    pad.add("cv_largest", cast("float | None", ok["call_s_cv"].max()), percent)
    for operation in SWEPT:
        _add_swept(pad, operation, ok.filter(pl.col("op") == operation), (sizes[0], sizes[-1]), (ranks[0], ranks[-1]))
    for operation in SINGLE:
        _add_single(pad, operation, ok.filter(pl.col("op") == operation))
    return pad.numbers


def _add_swept(
    pad: Pad, operation: CollectiveOp, ok: pl.DataFrame, sizes: tuple[int, int], ranks: tuple[int, int]
) -> None:
    """From the smaller to the larger message on most ranks; from fewest to most ranks with the larger message."""
    small, few, corner = _at(ok, sizes[0], ranks[1]), _at(ok, sizes[1], ranks[0]), _at(ok, sizes[1], ranks[1])
    if small is None or few is None or corner is None:
        return
    pad.add(f"{operation}_smallest", small[BANDWIDTH], gigabytes_per_second, ok)
    pad.add(f"{operation}_largest", corner[BANDWIDTH], gigabytes_per_second, ok)
    pad.add(f"{operation}_time_ratio", corner["call_s"] / small["call_s"], quantity, ok)
    pad.add(f"{operation}_fewest", few[BANDWIDTH], gigabytes_per_second, ok)
    said = f"{moves(few[BANDWIDTH], corner[BANDWIDTH])} ({ranges(few, corner, BANDWIDTH_LOW, BANDWIDTH_HIGH)})"
    pad.add(f"{operation}_with_ranks", said, source=ok)


def _add_single(pad: Pad, operation: CollectiveOp, ok: pl.DataFrame) -> None:
    """The bandwidth at the largest point that was measured."""
    if ok.is_empty():
        return
    row = ok.sort("message_bytes", "gpus").row(-1, named=True)
    where = f"on {row['gpus']:,} ranks"
    pad.add(operation, row[BANDWIDTH], lambda value: f"{gigabytes_per_second(value)} {where}", ok)


def _at(ok: pl.DataFrame, size: int, ranks: int) -> dict[str, Any] | None:
    found = ok.filter((pl.col("message_bytes") == size) & (pl.col("gpus") == ranks))
    return None if found.is_empty() else found.sort("run_id").row(0, named=True)
