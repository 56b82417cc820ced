"""Of pacing: what it changes in measured pairs of runs, and what is predicted beside what WSF table 1 prints."""

from __future__ import annotations

import polars as pl

from scaling_study.present.coordination import CV, RATE, by_scale, paired
from scaling_study.present.numbers.core import Number, Pad, counted, hundredths, joined
from scaling_study.present.theme import MINUS_SIGN
from scaling_study.spec import Pacing, Provenance


def signed(value: float) -> str:
    """A relative change with its sign, in tenths of a percent."""
    return f"{round(value, 3) + 0.0:+.1%}".replace("-", MINUS_SIGN)


def of_pacing(records: pl.DataFrame) -> dict[str, Number]:
    """Of the measured sweep: pairs, changes with intervals, variation without and with."""
    pad, changes, medians = Pad("pacing", records), paired(records), by_scale(records, RATE, CV)
    pad.add("pairs", int(changes["pairs"].max() or 0))  # type: ignore[arg-type]
    pad.add("scales", joined([str(gpus) for gpus in changes["gpus"]]))
    pad.add("changes", "; ".join(_change(row) for row in changes.iter_rows(named=True)))
    pad.add("verdict", _verdict(changes))
    for pacing in Pacing:
        values = medians.filter(pl.col("pacing") == pacing).sort("gpus")[CV]
        pad.add(f"cv_{pacing}", joined([hundredths(value) for value in values]))
    return pad.numbers


def _change(row: dict[str, float]) -> str:
    middle, low, high = (signed(row[f"change{end}"]) for end in ("", "_low", "_high"))
    return f"{middle} ({low} to {high}) on {row['gpus']} ranks"


def _verdict(changes: pl.DataFrame) -> str:
    """In words: where the interval lies above zero, and where below."""
    better, worse = (
        [str(gpus) for gpus in changes.filter(condition)["gpus"]]
        for condition in (pl.col("change_low") > 0, pl.col("change_high") < 0)
    )
    said = [f"helps on {joined(better)} ranks"] if better else []
    said += [f"costs on {joined(worse)} ranks"] if worse else []
    return " and ".join(said) or "makes no difference that these pairs could tell from noise"


def of_fabric(table: pl.DataFrame) -> dict[str, Number]:
    """Of the Monte Carlo at the largest scale, and of the values that come closest to what is printed."""
    found: dict[str, Number] = {}
    nodes = table["nodes"].max()
    largest = table.filter(nodes=nodes)
    own = largest.filter(kind="prediction", metric="throughput_change")
    printed = table.filter(kind="reported").select("nodes", "metric", printed="value")
    both = table.filter(kind="prediction").join(printed, on=["nodes", "metric"])
    inside = both.filter(pl.col("printed").is_between(pl.col("low"), pl.col("high")))
    closest = table.filter(pl.col("closest")).row(0, named=True)
    texts = {
        "nodes": str(nodes),
        "seeds": str(own["seeds"].max()),
        "fabrics": counted(table["fabric"].n_unique() - 1, "fabric"),
        "low": signed(min(own["low"].to_list())),
        "high": signed(max(own["high"].to_list())),
        "printed": signed(largest.filter(kind="reported", metric="throughput_change")["value"].item()),
        "inside": f"{inside.height} of {both.height}",
        "closest": f"{closest['early_cost']:g} s for each second waited and {closest['iteration_jitter']:.1%} jitter",
        "miss": f"{closest['miss']:.1f}",
    }
    kinds = {"printed": Provenance.REPORTED}
    for name, text in texts.items():
        kind = kinds.get(name, Provenance.PREDICTED)
        found[f"fabric.{name}"] = Number(text=text, value=text, runs=(), provenance=(kind.value,))
    return found
