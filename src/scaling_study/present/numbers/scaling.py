"""Of data parallelism: what becomes of rates, times and memory from the smallest to the largest scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from scaling_study.present.numbers.compare import line_along, ran, rate_trend
from scaling_study.present.numbers.core import (
    Number,
    Pad,
    hundredths,
    listed,
    milliseconds,
    moves,
    one_of,
    percent,
    quantity,
    trend,
)
from scaling_study.present.rows import RATE

#: What is printed at both ends of the sweep.
ENDS: dict[str, tuple[str, Callable[[float], str]]] = {
    "rate": (RATE, quantity),
    "compute": ("compute_s", milliseconds),
    "communication": ("communication_s", milliseconds),
    "exposed_share": ("exposed_fraction", percent),
    "memory": ("peak_memory_gib", quantity),
}
#: What is said of the way between them.
WAYS = {
    "local_rate": "words_per_second_per_gpu",
    "compute": "compute_s",
    "communication": "communication_s",
    "exposed": "exposed_communication_s",
    "memory": "peak_memory_gib",
}


def of_scaling(frame: pl.DataFrame) -> dict[str, Number]:
    """From the smallest to the largest scale of the data-parallel sweep."""
    ok = line_along(ran(frame), "gpus")
    if ok.height < 2:
        return {}
    pad = Pad("dp", ok)
    for name in ("model", "sequence_length", "precision"):
        pad.add(name, one_of(ok[name]))
    pad.add("scales", listed(ok["gpus"]))
    pad.add("local_batch", one_of(ok["global_batch"] / ok["gpus"]))
    for end, row in (("smallest", ok.row(0, named=True)), ("largest", ok.row(-1, named=True))):
        add_end(pad, end, row, ENDS)
    for name, column in WAYS.items():
        pad.add(f"{name}_moves", trend(ok[column].to_list()))
    pad.add("memory_agrees", _agreement(ok["peak_memory_gib"]))
    add_speedup(pad, ok)
    return pad.numbers


def add_end(pad: Pad, end: str, row: Mapping[str, Any], ends: Mapping[str, tuple[str, Callable[[float], str]]]) -> None:
    """The ranks of one end of a sweep, and metrics there.

    Args:
        end: `smallest` or `largest`, the end of the numbers' names.
        row: the record that stands for it.
        ends: from a number to its metric and the text of that.
    """
    source = pad.source.filter(pl.col("run_id") == row["run_id"])
    pad.add(end, row["gpus"], source=source)
    for name, (column, show) in ends.items():
        pad.add(f"{name}_{end}", row[column], show, source)


def add_speedup(pad: Pad, line: pl.DataFrame) -> None:
    """What becomes of throughput along a line of scales, beside what becomes of the ranks."""
    first, last = line.row(0, named=True), line.row(-1, named=True)
    pad.add("rate_moves", rate_trend(line))
    times, ideal = last[RATE] / first[RATE], last["gpus"] / first["gpus"]
    pad.add("speedup", times, hundredths)
    pad.add("ideal_speedup", ideal)
    pad.add("efficiency", times / ideal, percent)


def _agreement(memory: pl.Series) -> str | None:
    """Whether memory does what sharding should do to it, so that a sentence may begin with it."""
    said = moves(memory[0], memory[-1])
    if said is None:
        return None
    return "As sharding would have it" if said.startswith("falls") else "Against that expectation"
