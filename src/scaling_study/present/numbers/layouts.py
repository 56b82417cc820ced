"""Of layouts of model parallelism at a fixed scale: the main setting, a smaller batch, and more ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from scaling_study.present.numbers.compare import apart, fastest, ran, ranges, verdict
from scaling_study.present.numbers.core import (
    Number,
    Pad,
    hundredths,
    layout_name,
    listed,
    one_of,
    percent,
    quantity,
)
from scaling_study.present.rows import ALONE, RATE, chosen, rank_correlations


def of_layouts(frame: pl.DataFrame) -> dict[str, Number]:
    """The layouts of the main setting against data parallelism alone, and what exposure has to do with it."""
    pad = _setting("mp", frame)
    pad.add("layouts", chosen(frame).height)
    ok, alone = pad.source, pad.source.filter(ALONE)
    if alone.is_empty():
        return pad.numbers
    pad.add("baseline_rate", fastest(alone)[RATE], quantity, alone)
    slowest = ok.sort(RATE, "run_id").row(0, named=True)
    pad.add("slowest", layout_name(slowest))
    pad.add("slowest_rate", slowest[RATE], quantity)
    pad.add("least_exposed", _least_exposed(ok))
    for value in rank_correlations(ok).values():
        pad.add("spearman", value, hundredths)
        pad.add("spearman_word", _strength(value))
    return pad.numbers


def of_small_batch(frame: pl.DataFrame) -> dict[str, Number]:
    """The layouts at a smaller effective batch against data parallelism alone."""
    return _setting("small", frame).numbers


def of_large_scale(frame: pl.DataFrame) -> dict[str, Number]:
    """The fastest of the layouts on the most ranks."""
    ok = ran(frame)
    if ok.is_empty():
        return {}
    pad, best = Pad("large", ok), fastest(ok)
    pad.add("which", "the only layout that we ran" if ok.height == 1 else f"the fastest of {ok.height} layouts")
    pad.add("layout", layout_name(best))
    for name in ("gpus", "dp", "host_cores", "global_batch"):
        pad.add(name, best[name])
    pad.add("rate", best[RATE], quantity)
    pad.add("exposed_share", best["exposed_fraction"], percent)
    pad.add("cv", best["iteration_s_cv"], percent)
    return pad.numbers


def _setting(prefix: str, frame: pl.DataFrame) -> Pad:
    """What every setting has: ranks, batch, and how many of them outrun data parallelism alone."""
    pad = Pad(prefix, ran(frame))
    pad.add("ranks", listed(frame["gpus"]))
    pad.add("global_batch", one_of(frame["global_batch"]))
    pad.add("verdict", verdict(pad.source))
    alone = pad.source.filter(ALONE)
    if not alone.is_empty():
        pad.add("faster", _outrunning(pad.source, fastest(alone)))
    return pad


def _outrunning(ok: pl.DataFrame, base: Mapping[str, Any]) -> str:
    """How many layouts outrun a baseline, and how many of them by more than iterations vary, as a clause."""
    faster = ok.filter(pl.col(RATE) > base[RATE])
    clear = sum(apart(row, base) for row in faster.iter_rows(named=True))
    if faster.height < 2:
        return f"1 outruns it ({ranges(faster.row(0, named=True), base)})" if faster.height else "none outruns it"
    many = "all" if clear == faster.height else clear or "none"
    return f"{faster.height} outrun it ({many} with percentile ranges apart)"


def _least_exposed(ok: pl.DataFrame) -> str:
    """The layout whose communication is least exposed, and whether it is the fastest one, as a clause."""
    least = ok.sort("exposed_communication_s", "run_id").row(0, named=True)
    relation = "also the fastest" if least["run_id"] == fastest(ok)["run_id"] else "not the fastest"
    return f"{layout_name(least)}, which is {relation}"


def _strength(value: float) -> str:
    """A rank correlation in words."""
    size = "strong" if abs(value) >= 0.8 else ("moderate" if abs(value) >= 0.4 else "weak")
    return f"{size} and {'negative' if value < 0 else 'positive'}"
