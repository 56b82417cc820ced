"""Every number that the paper's text uses, computed from records and carried with the runs it comes from.

A number is a name, a text ready to print, the raw value, the runs and their provenance. Words that depend on a sign
(`rises`, `falls`) are numbers too, so that the text stays true whatever was measured. A number that the records do
not give is left out; the paper then fails to build and says which one is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import polars as pl

from scaling_study.present.rows import chosen, outcome_words, rank_correlations, why_null, with_spread
from scaling_study.present.theme import MINUS_SIGN, TIMES_SIGN
from scaling_study.spec import Outcome, Provenance, Study

#: A relative change below this is called none.
NEGLIGIBLE = 0.02


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the paper.

    Attributes:
        text: as printed.
        value: as computed, not rounded.
        runs: ids of the runs it was computed from, sorted.
        provenance: of those runs.
    """

    text: str
    value: float | int | str
    runs: tuple[str, ...]
    provenance: tuple[str, ...]


def paper_numbers(study: Study, frames: Mapping[str, pl.DataFrame]) -> dict[str, Number]:
    """Every number by name, from the measured records of a study.

    Args:
        study: gives the sweeps of figures and tables.
        frames: records by the name of their sweep.
    """
    measured = {
        name: frame.filter(pl.col("provenance") == Provenance.MEASURED)
        for name, frame in frames.items()
        if name in study.sweeps
    }
    measured = {name: frame for name, frame in measured.items() if not frame.is_empty()}
    found: dict[str, Number] = {}
    if measured:
        found |= _of_runs(pl.concat([measured[name] for name in sorted(measured)]))
    if "data_parallel" in measured:
        found |= _of_scaling(measured["data_parallel"])
    if "model_parallel" in measured:
        found |= _of_layouts(measured["model_parallel"])
    return dict(sorted(found.items()))


class _Pad:
    """Collects numbers that come from the same records."""

    def __init__(self, prefix: str, source: pl.DataFrame) -> None:
        self.prefix, self.source = prefix, source
        self.numbers: dict[str, Number] = {}

    def add(self, name: str, value: float | int | str | None, text: str, source: pl.DataFrame | None = None) -> None:
        """A number, unless its value is not known."""
        if value is None:
            return
        rows = self.source if source is None else source
        runs, kinds = (tuple(rows[column].unique().sort().to_list()) for column in ("run_id", "provenance"))
        self.numbers[f"{self.prefix}.{name}"] = Number(text=text, value=value, runs=runs, provenance=kinds)


def _of_runs(frame: pl.DataFrame) -> dict[str, Number]:
    """Machine, protocol and outcomes, over every measured run."""
    frame = frame.unique("run_id", maintain_order=True).sort("run_id")
    ok = frame.filter(pl.col("outcome") == Outcome.OK)
    pad = _Pad("runs", frame)
    pad.add("count", frame.height, f"{frame.height}")
    pad.add("ok", ok.height, f"{ok.height}")
    pad.add("outcomes", (text := _outcomes(frame)), text)
    for column in (
        "device",
        "host_cores",
        "threads_per_rank",
        "torch_version",
        "python_version",
        "backend",
        "code_version",
    ):
        text = _listed(ok[column])
        pad.add(column, text or None, text, ok)
    for column in ("model", "sequence_length", "precision", "iterations", "discard", "profiled_iterations"):
        pad.add(column, (text := _listed(frame[column])), text)
    kept = _listed(frame["iterations"] - frame["discard"])
    pad.add("kept", kept, kept)
    pad.add("oversubscription", (text := _oversubscription(ok)), text, ok)
    noisiest = _float(ok["iteration_s_cv"].max())
    pad.add("cv_largest", noisiest, _percent(noisiest), ok)
    overhead = _float(ok["profiler_overhead"].median())
    pad.add("profiler_overhead", overhead, _longer(overhead), ok)
    for metric in ("mfu", "power_w_per_gpu"):
        reason = why_null(frame, metric)
        pad.add(f"why_no_{metric}", reason or None, reason, ok)
    return pad.numbers


def _oversubscription(ok: pl.DataFrame) -> str:
    """How many of the runs have more ranks than the machine has cores, as a sentence."""
    crowded = ok.filter(pl.col("oversubscribed"))
    if crowded.is_empty():
        return f"None of the {ok.height} runs that ended well has more ranks than the machine has cores."
    ranks = _listed(crowded["gpus"])
    return (
        f"Of the {ok.height} runs that ended well, {crowded.height} have more ranks than the machine has cores "
        f"(those of {ranks} ranks)."
    )


def _of_scaling(frame: pl.DataFrame) -> dict[str, Number]:
    """From the smallest to the largest scale of the data-parallel sweep."""
    ok = chosen(frame).filter(pl.col("outcome") == Outcome.OK).sort("gpus")
    pad = _Pad("dp", ok)
    if ok.height < 2:
        return {}
    first, last = ok.row(0, named=True), ok.row(-1, named=True)
    pad.add("scales", (text := _listed(ok["gpus"])), text)
    pad.add("smallest", first["gpus"], f"{first['gpus']:,}")
    pad.add("largest", last["gpus"], f"{last['gpus']:,}")
    pad.add("micro_batch", (text := _listed(ok["micro_batch"])), text)
    for end, row in (("smallest", first), ("largest", last)):
        _ends(pad, end, row, ok.filter(pl.col("run_id") == row["run_id"]))
    for name, metric in (
        ("rate", "words_per_second"),
        ("local_rate", "words_per_second_per_gpu"),
        ("compute", "compute_s"),
        ("communication", "communication_s"),
        ("exposed", "exposed_communication_s"),
        ("memory", "peak_memory_gib"),
    ):
        _change(pad, name, first[metric], last[metric])
    if first["peak_memory_gib"] and last["peak_memory_gib"]:
        less = last["peak_memory_gib"] < first["peak_memory_gib"]
        agrees = "as sharding would have it" if less else "against that expectation"
        pad.add("memory_agrees", agrees, agrees)
    times = last["words_per_second"] / first["words_per_second"]
    pad.add("speedup", times, f"{times:.2f}")
    ideal = last["gpus"] / first["gpus"]
    pad.add("ideal_speedup", ideal, f"{ideal:g}")
    pad.add("efficiency", times / ideal, _percent(times / ideal))
    return pad.numbers


def _ends(pad: _Pad, end: str, row: Mapping[str, Any], source: pl.DataFrame) -> None:
    texts = {
        "rate": (row["words_per_second"], _quantity(row["words_per_second"])),
        "local_rate": (row["words_per_second_per_gpu"], _quantity(row["words_per_second_per_gpu"])),
        "compute": (row["compute_s"], _milliseconds(row["compute_s"])),
        "communication": (row["communication_s"], _milliseconds(row["communication_s"])),
        "exposed": (row["exposed_communication_s"], _milliseconds(row["exposed_communication_s"])),
        "exposed_share": (row["exposed_fraction"], _percent(row["exposed_fraction"])),
        "memory": (row["peak_memory_gib"], _quantity(row["peak_memory_gib"])),
    }
    for name, (value, text) in texts.items():
        pad.add(f"{name}_{end}", value, text, source)


def _change(pad: _Pad, name: str, before: float | None, after: float | None) -> None:
    """What becomes of a metric, as a phrase that follows its name: `falls by 12%`."""
    if before is None or after is None:
        return
    if before == 0:
        moves = "rises from zero" if after > 0 else "stays at zero"
    else:
        change = after / before - 1
        pad.add(f"{name}_change", change, _percent(change))
        moves = _moves(change)
    pad.add(f"{name}_moves", moves, moves)


def _moves(change: float) -> str:
    """A relative change as a phrase; as a factor where a percentage would have to be large."""
    if abs(change) < NEGLIGIBLE:
        return "hardly changes"
    if change >= 2:
        return f"grows to {_quantity(1 + change)} times its value"
    return f"{'rises' if change > 0 else 'falls'} by {_percent(abs(change))}"


def _of_layouts(frame: pl.DataFrame) -> dict[str, Number]:
    """The layouts of the model-parallel sweep against data parallelism alone."""
    best = with_spread(chosen(frame)).sort("tp", "pp")
    ok = best.filter(pl.col("outcome") == Outcome.OK)
    alone = ok.filter((pl.col("tp") == 1) & (pl.col("pp") == 1))
    pad = _Pad("mp", ok)
    pad.add("layouts", best.height, f"{best.height}")
    pad.add("runs", frame.height, f"{frame.height}")
    pad.add("ranks", (text := _listed(best["gpus"])), text)
    pad.add("global_batch", (text := _listed(best["global_batch"])), text)
    if alone.is_empty():
        return pad.numbers
    base = alone.row(0, named=True)
    fastest = ok.sort("words_per_second", "run_id", descending=[True, False]).row(0, named=True)
    pair = ok.filter(pl.col("run_id").is_in([base["run_id"], fastest["run_id"]]))
    pad.add("fastest", (text := _layout(fastest)), text, pair)
    pad.add("fastest_rate", fastest["words_per_second"], _quantity(fastest["words_per_second"]), pair)
    pad.add("fastest_micro_batch", fastest["micro_batch"], f"{fastest['micro_batch']}", pair)
    pad.add("baseline_rate", base["words_per_second"], _quantity(base["words_per_second"]), alone)
    pad.add("baseline_micro_batch", base["micro_batch"], f"{base['micro_batch']}", alone)
    pad.add("verdict", (text := _verdict(base, fastest)), text, pair)
    faster = ok.filter(pl.col("words_per_second") > base["words_per_second"]).height
    pad.add("faster", faster, _outrun(faster))
    slowest = ok.sort("words_per_second", "run_id").row(0, named=True)
    pad.add("slowest", (text := _layout(slowest)), text)
    pad.add("slowest_rate", slowest["words_per_second"], _quantity(slowest["words_per_second"]))
    for one, value in rank_correlations(ok).items():
        pad.add("spearman", value, f"{value:.2f}".replace("-", MINUS_SIGN), ok.filter(pl.col("provenance") == one))
        pad.add("spearman_word", (text := _strength(value)), text)
    return pad.numbers


def _layout(row: Mapping[str, Any]) -> str:
    """Tensor by pipeline degree, not to be broken over lines."""
    return f"{row['tp']}\N{NO-BREAK SPACE}{TIMES_SIGN}\N{NO-BREAK SPACE}{row['pp']}"


def _verdict(base: Mapping[str, Any], fastest: Mapping[str, Any]) -> str:
    """Whether a layout beats data parallelism alone, and whether by more than iterations vary."""
    if base["run_id"] == fastest["run_id"]:
        return "no layout is faster than data parallelism alone"
    name = f"the layout {_layout(fastest)} (tensor {TIMES_SIGN} pipeline)"
    gain = fastest["words_per_second"] / base["words_per_second"] - 1
    apart = fastest["words_per_second_low"] > base["words_per_second_high"]
    relation = "do not overlap" if apart else "overlap, so that the order of the two is not settled"
    return f"{name} is {_percent(gain)} faster than data parallelism alone; their percentile ranges {relation}"


def _strength(value: float) -> str:
    """A rank correlation in words."""
    size = "strong" if abs(value) >= 0.8 else ("moderate" if abs(value) >= 0.4 else "weak")
    return f"{size} and {'negative' if value < 0 else 'positive'}"


def _outcomes(frame: pl.DataFrame) -> str:
    """How the runs ended, as prose."""
    ended = frame.filter(pl.col("outcome") != Outcome.OK)["outcome"].value_counts().sort("outcome")
    if ended.is_empty():
        return "all of them ended well"
    return "; ".join(f"{count} ended as {outcome_words(outcome)}" for outcome, count in ended.iter_rows())


def _listed(column: pl.Series) -> str:
    values = [f"{v:,}" if isinstance(v, int) else str(v) for v in column.drop_nulls().unique().sort()]
    return " and ".join(part for part in (", ".join(values[:-1]), *values[-1:]) if part)


def _outrun(count: int) -> str:
    return f"{count or 'none'} of the layouts {'outruns' if count < 2 else 'outrun'} it"


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _percent(value: float | None) -> str:
    """A fraction as a percentage, of two significant digits below ten percent."""
    if value is None:
        return ""
    shown = f"{value * 100:.1f}" if 0 < abs(value) < 0.0995 else f"{value * 100:.0f}"
    return f"{shown}%".replace("-", MINUS_SIGN)


def _longer(value: float | None) -> str:
    """A relative difference of times: `8.0% longer`."""
    return "" if value is None else f"{_percent(abs(value))} {'shorter' if value < 0 else 'longer'}"


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{_quantity(value * 1e3)} ms"


def _quantity(value: float | None) -> str:
    """Three significant digits, with thousands separated."""
    if value is None:
        return ""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:.3g}"


def as_json(numbers: Mapping[str, Number]) -> bytes:
    """The numbers as the JSON that the paper reads."""
    return msgspec.json.format(msgspec.json.encode(dict(numbers), order="sorted"), indent=1) + b"\n"
