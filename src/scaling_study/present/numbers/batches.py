"""Of a fixed global batch over more and more ranks, each scale with its fastest layout."""

from __future__ import annotations

import polars as pl

from scaling_study.present.numbers.compare import line_along, ran, ranges
from scaling_study.present.numbers.core import (
    Number,
    Pad,
    in_order,
    joined,
    layout_name,
    listed,
    moves,
    one_of,
    percent,
    quantity,
    trend,
)
from scaling_study.present.numbers.scaling import add_end, add_speedup
from scaling_study.present.rows import RATE

LOCAL_RATE, SHARE = "words_per_second_per_gpu", "exposed_fraction"
ENDS = {"rate": (RATE, quantity), "exposed_share": (SHARE, percent)}


def of_fixed_batch(frame: pl.DataFrame) -> dict[str, Number]:
    """From the smallest to the largest scale, and what the last step in scale adds."""
    line = line_along(ran(frame), "gpus")
    if line.height < 2:
        return {}
    pad = Pad("fixed", line)
    first, before, last = (line.row(index, named=True) for index in (0, -2, -1))
    pad.add("global_batch", one_of(line["global_batch"]))
    pad.add("fastest", joined([f"{layout_name(row)} on {row['gpus']:,}" for row in line.iter_rows(named=True)]))
    for end, row in (("smallest", first), ("largest", last)):
        add_end(pad, end, row, ENDS)
    add_speedup(pad, line)
    pad.add("local_rate_moves", trend(line[LOCAL_RATE].to_list()))
    pair = line.tail(2)
    pad.add("step_from", before["gpus"], source=pair)
    pad.add("step", f"{moves(before[RATE], last[RATE])} ({ranges(before, last)})", source=pair)
    return pad.numbers


def of_pretraining(frame: pl.DataFrame) -> dict[str, Number]:
    """The same of several models: what becomes of throughput, of all ranks and of one."""
    ok = ran(frame)
    if ok.is_empty():
        return {}
    pad = Pad("pretraining", ok)
    pad.add("scales", listed(ok["gpus"]))
    pad.add("global_batch", one_of(ok["global_batch"]))
    models = in_order(ok["model"])
    said = [_change(ok.filter(model=model), model) for model in models]
    pad.add("changes", "; ".join(said) if all(said) else "")
    return pad.numbers


def _change(ok: pl.DataFrame, model: str) -> str:
    line = line_along(ok, "gpus")
    if line.height < 2:
        return ""
    first, last = line.row(0, named=True), line.row(-1, named=True)
    together, each = moves(first[RATE], last[RATE]), moves(first[LOCAL_RATE], last[LOCAL_RATE])
    return f"for {model} throughput {together} ({ranges(first, last)}) and throughput per rank {each}"
