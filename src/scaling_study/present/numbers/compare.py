"""Layouts against each other: which is fastest, by how much, and whether the iterations vary more than that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from scaling_study.present.numbers.core import in_order, joined, layout_name, percent, trend
from scaling_study.present.rows import ALONE, HIGH, LOW, RATE, chosen, with_spread
from scaling_study.present.theme import TIMES_SIGN
from scaling_study.spec import Outcome


def ran(frame: pl.DataFrame) -> pl.DataFrame:
    """The layouts that ended well, each with its fastest micro-batch and with the spread of its throughput."""
    return with_spread(chosen(frame).filter(pl.col("outcome") == Outcome.OK)).sort("run_id")


def fastest(ok: pl.DataFrame) -> dict[str, Any]:
    """The record with most words per second; of equal ones the first run id."""
    return ok.sort(RATE, "run_id", descending=[True, False]).row(0, named=True)


def least_parallel(ok: pl.DataFrame) -> dict[str, Any]:
    """The record with the least model parallelism; of several the fastest."""
    degree = pl.col("tp") * pl.col("pp")
    return fastest(ok.filter(degree == degree.min()))


def line_along(ok: pl.DataFrame, column: str) -> pl.DataFrame:
    """One record a value of a column, in natural order: the fastest there."""
    found = [fastest(ok.filter(pl.col(column) == value)) for value in in_order(ok[column])]
    return pl.DataFrame(found, schema=ok.schema)


def missed_by_line(x: Sequence[float], y: Sequence[float], there: tuple[float, float]) -> float:
    """By how much a straight line through some points misses another one, as a share of its value."""
    slope, start = np.polyfit(x, y, 1)
    return float(slope * there[0] + start) / there[1] - 1


def apart(one: Mapping[str, Any], other: Mapping[str, Any], low: str = LOW, high: str = HIGH) -> bool:
    """Whether the ranges of the 5th to 95th percentile of two records have nothing in common."""
    return bool(one[low] > other[high] or other[low] > one[high])


def ranges(one: Mapping[str, Any], other: Mapping[str, Any], low: str = LOW, high: str = HIGH) -> str:
    """The same as an aside: `percentile ranges overlap`."""
    return f"percentile ranges {'apart' if apart(one, other, low, high) else 'overlap'}"


def rate_trend(line: pl.DataFrame) -> str:
    """What becomes of throughput along a line, and whether the percentile ranges of its ends overlap."""
    ends = ranges(line.row(0, named=True), line.row(-1, named=True))
    return f"{trend(line[RATE].to_list())} ({ends})"


def verdict(ok: pl.DataFrame) -> str | None:
    """Whether a layout beats data parallelism alone, and whether by more than iterations vary; None without it."""
    alone = ok.filter(ALONE)
    if alone.is_empty() or ok.height < 2:
        return None
    base, best = fastest(alone), fastest(ok)
    if base["run_id"] != best["run_id"]:
        name = f"the layout {layout_name(best)} (tensor {TIMES_SIGN} pipeline)"
        said = f"{name} is {percent(best[RATE] / base[RATE] - 1)} faster than data parallelism alone"
        return f"{said}; {_settled(best, base)}"
    second = fastest(ok.filter(~ALONE))
    slower = f"the next, {layout_name(second)}, is {percent(1 - second[RATE] / base[RATE])} slower"
    return f"no layout is faster than data parallelism alone; {slower}, and {_settled(base, second)}"


def _settled(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    relation = "do not overlap" if apart(one, other) else "overlap, so that the order of the two is not settled"
    return f"their percentile ranges {relation}"


def gains(ok: pl.DataFrame, column: str, preposition: str, noun: str) -> str | None:
    """Where the fastest layout of a group is not the least parallel one, by how much, as a clause; None if unknown.

    Args:
        ok: layouts that ended well (`ran`), of several groups.
        column: of the groups.
        preposition: that goes with a group, such as `for`.
        noun: of the groups, in the plural.
    """
    groups = [ok.filter(pl.col(column) == value) for value in in_order(ok[column])]
    if any(group.height < 2 for group in groups) or not groups:
        return None
    found = [said for group in groups if (said := _gain(group, f"{preposition} {group[column][0]}"))]
    many = f"all {len(groups)}" if len(found) == len(groups) else f"{len(found) or 'none'} of the {len(groups)}"
    if not found:
        return f"{preposition} {many} {noun} is a layout faster than the least parallel one"
    return f"{preposition} {many} {noun} a layout is faster than the least parallel one: {joined(found)}"


def _gain(group: pl.DataFrame, where: str) -> str:
    least, best = least_parallel(group), fastest(group)
    if least["run_id"] == best["run_id"]:
        return ""
    return f"{where} {layout_name(best)} by {percent(best[RATE] / least[RATE] - 1)} ({ranges(best, least)})"
