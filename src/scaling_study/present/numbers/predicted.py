"""Of the study at full scale, as the performance model predicts it, and what the source prints of the same runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from scaling_study.present.axes import binary_size
from scaling_study.present.numbers.compare import fastest, least_parallel, line_along, missed_by_line
from scaling_study.present.numbers.core import (
    Number,
    Pad,
    hundredths,
    in_order,
    joined,
    layout_name,
    listed,
    moves,
    percent,
    quantity,
)
from scaling_study.present.rows import ALONE, BANDWIDTH, LOCAL_RATE, RATE, chosen, outcome_words, rank_correlations
from scaling_study.present.theme import MINUS_SIGN
from scaling_study.records.schema import COLLECTIVE_METRICS
from scaling_study.spec import Outcome, Provenance, ReportedPoint, Study

PREFIX = "predicted"
ENERGY, EXPOSED, SHARE = "tokens_per_joule", "exposed_communication_s", "exposed_fraction"
#: Scales from which a throughput is extrapolated (HST section 5).
SMALL_SCALE = 64


def of_predictions(study: Study, frames: Mapping[str, pl.DataFrame]) -> dict[str, Number]:
    """Every number of a study's predicted records.

    Args:
        frames: predicted records by the name of their sweep.
    """
    if not frames:
        return {}
    found = _of_runs(frames)
    parts = {
        "collectives": _of_collectives,
        "data_parallel": lambda frame: _of_scaling(frame, study),
        "model_parallel": _of_layouts,
        "fixed_batch": _of_fixed_batch,
        "fixed_batch_pretraining": _of_pretraining,
        "generations": _of_generations,
        "model_size": _of_sizes,
        "context_length": _of_sequences,
        "fabric_speed": _of_fabrics,
    }
    for sweep, compute in parts.items():
        if sweep in frames:
            found |= compute(frames[sweep])
    for sweep, name in (("model_parallel_small_batch", "small"), ("model_parallel_large_scale", "large")):
        if sweep in frames:
            found |= _counts(frames[sweep], name)
    return found | _of_reported(study)


def signed(value: float) -> str:
    """A relative change with its sign, to two decimals where it has them."""
    exact = round(value * 100, 2)
    shown = f"{abs(exact):g}%" if abs(exact) != round(abs(exact)) and value == round(value, 4) else percent(abs(value))
    return f"{'+' if value > 0 else MINUS_SIGN}{shown}"


def watts(value: float) -> str:
    """A power in whole watts."""
    return f"{value:.0f}\N{NO-BREAK SPACE}W"


def _ok(frame: pl.DataFrame) -> pl.DataFrame:
    return chosen(frame).filter(pl.col("outcome") == Outcome.OK).sort("run_id")


def _of_runs(frames: Mapping[str, pl.DataFrame]) -> dict[str, Number]:
    """How many runs, how they end, and what measuring them would take."""
    rows = pl.concat(list(frames.values())).unique("run_id", maintain_order=True).sort("run_id")
    pad = Pad(f"{PREFIX}.runs", rows)
    pad.add("count", rows.height)
    pad.add("sweeps", len(frames))
    pad.add("training", rows.filter(kind="training").height)
    pad.add("collective", rows.filter(kind="collective").height)
    pad.add("hardware", joined([name.upper() for name in in_order(rows["hardware"])]))
    pad.add("largest", in_order(rows["gpus"])[-1])
    ended = rows.filter(pl.col("outcome") != Outcome.OK)["outcome"].value_counts().sort("outcome")
    pad.add("ended", joined([f"{count} as {outcome_words(outcome)}" for outcome, count in ended.iter_rows()]) or "none")
    hours = rows.select((pl.col("iteration_s") * pl.col("iterations") * pl.col("gpus")).sum() / 3600).item()
    pad.add("gpu_hours", float(hours), quantity)
    return pad.numbers


def _of_scaling(frame: pl.DataFrame, study: Study) -> dict[str, Number]:
    """Data parallelism: between the scales that the source compares, and from the smallest to the largest."""
    line = _ok(frame).sort("gpus")
    pad = Pad(f"{PREFIX}.dp", line)
    first, last = line.row(0, named=True), line.row(-1, named=True)
    for name, row in (("smallest", first), ("largest", last)):
        pad.add(name, row["gpus"])
        pad.add(f"memory_{name}", row["peak_memory_gib"], quantity)
    point = _reported(study, "data_parallel", LOCAL_RATE)
    if point:
        before, after = (_at(line, where) for where in (point.since, point.where))
        if before and after:
            _add_changes(pad, before, after)
    pad.add("exposed_of_communication", last[EXPOSED] / last["communication_s"], percent)
    pad.add("exposed_fraction", last[SHARE], percent)
    small = line.filter(pl.col("gpus") <= SMALL_SCALE)
    if small.height > 1:
        missed = missed_by_line(small["gpus"].to_list(), small[RATE].to_list(), (last["gpus"], last[RATE]))
        pad.add("extrapolation_error", missed, signed)
        pad.add("extrapolated_from", small["gpus"][-1])
    return pad.numbers


def _add_changes(pad: Pad, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    columns = {
        "rate": LOCAL_RATE,
        "power": "power_w_per_gpu",
        "compute": "compute_s",
        "communication": "communication_s",
        "energy": ENERGY,
    }
    pad.add("from", before["gpus"])
    pad.add("to", after["gpus"])
    for name, column in columns.items():
        pad.add(f"{name}_change", after[column] / before[column] - 1, signed)
    pad.add("power_from", before["power_w_per_gpu"], watts)
    pad.add("power_to", after["power_w_per_gpu"], watts)


def _of_layouts(frame: pl.DataFrame) -> dict[str, Number]:
    """Model parallelism against data parallelism alone, one hardware at a time."""
    found: dict[str, Number] = {}
    for hardware in in_order(frame["hardware"]):
        ok = _ok(frame.filter(hardware=hardware))
        pad = Pad(f"{PREFIX}.mp.{hardware}", ok)
        pad.add("verdict", _verdict(ok))
        pad.add("layouts", ok.height)
        pad.add("gpus", int(ok["gpus"][0]))
        correlation = rank_correlations(ok).get(Provenance.PREDICTED)
        pad.add("spearman", correlation, hundredths)
        tensor = {row["tp"]: row[EXPOSED] for row in ok.filter(pl.col("pp") == 1).iter_rows(named=True)}
        node = int(ok["gpus"][0] // ok["nodes"][0])
        if node in tensor and 2 * node in tensor:
            pad.add("across_nodes", tensor[2 * node] / tensor[node], quantity)
        pad.add("memory", float(ok.filter(ALONE)["peak_memory_gib"].max() or 0.0), quantity)  # type: ignore[arg-type]
        found |= pad.numbers
    return found


def _verdict(ok: pl.DataFrame) -> str:
    base, best, others = ok.filter(ALONE), fastest(ok), ok.filter(~ALONE)
    if base.is_empty():
        return f"data parallelism alone does not fit, and {layout_name(best)} is fastest"
    rate = fastest(base)[RATE]
    if not (best["tp"] == best["pp"] == 1):
        return f"{layout_name(best)} is {percent(best[RATE] / rate - 1)} faster than data parallelism alone"
    second = fastest(others)
    slower = percent(1 - second[RATE] / rate)
    return f"no layout is faster than data parallelism alone, and the next, {layout_name(second)}, is {slower} slower"


def _counts(frame: pl.DataFrame, name: str) -> dict[str, Number]:
    """How many layouts beat data parallelism alone."""
    ok = _ok(frame)
    pad, base = Pad(f"{PREFIX}.{name}", ok), ok.filter(ALONE)
    others = ok.filter(~ALONE)
    if not base.is_empty():
        faster = others.filter(pl.col(RATE) > fastest(base)[RATE])
        pad.add("faster", f"{faster.height or 'none'} of {others.height}")
    pad.add("verdict", _verdict(ok))
    pad.add("gpus", int(ok["gpus"][0]))
    return pad.numbers


def _of_fixed_batch(frame: pl.DataFrame) -> dict[str, Number]:
    line = line_along(_ok(frame), "gpus")
    pad = Pad(f"{PREFIX}.fixed", line)
    first, before, last = (line.row(index, named=True) for index in (0, -2, -1))
    pad.add("global_batch", int(last["global_batch"]))
    for name, row in (("first", first), ("before", before), ("last", last)):
        pad.add(f"{name}_nodes", int(row["nodes"]))
        pad.add(f"{name}_mfu", row["mfu"], percent)
        pad.add(f"{name}_layout", layout_name(row))
    pad.add("rate_step", last[RATE] / before[RATE] - 1, signed)
    power = [row["power_w_per_gpu"] * row["gpus"] for row in (before, last)]
    pad.add("power_step", power[1] / power[0] - 1, signed)
    return pad.numbers


def _of_pretraining(frame: pl.DataFrame) -> dict[str, Number]:
    ok = _ok(frame)
    pad = Pad(f"{PREFIX}.pretraining", ok)
    said = []
    for model in in_order(ok["model"]):
        for batch in in_order(ok["global_batch"]):
            line = line_along(ok.filter(model=model, global_batch=batch), "gpus")
            first, last = line.row(0, named=True), line.row(-1, named=True)
            rate, mfu = (signed(last[column] / first[column] - 1) for column in (RATE, "mfu"))
            said.append(f"{rate} and {mfu} ({_size(model)}, {batch:,} sequences)")
    pad.add("changes", joined(said))
    pad.add("scales", listed(ok["gpus"]))
    return pad.numbers


def _of_generations(frame: pl.DataFrame) -> dict[str, Number]:
    """The fastest layout of every generation."""
    found: dict[str, Number] = {}
    for hardware in in_order(frame["hardware"]):
        ok = _ok(frame.filter(hardware=hardware))
        best, pad = fastest(ok), Pad(f"{PREFIX}.generations.{hardware}", ok)
        pad.add("layout", layout_name(best))
        pad.add("mfu", best["mfu"], percent)
        pad.add("exposed", best[SHARE], percent)
        found |= pad.numbers
    return found


def _of_sizes(frame: pl.DataFrame) -> dict[str, Number]:
    ok = _ok(frame)
    pad = Pad(f"{PREFIX}.size", ok)
    models = in_order(ok["model"])
    best = [fastest(ok.filter(model=model)) for model in models]
    least = [least_parallel(ok.filter(model=model)) for model in models]
    pad.add("mfu", joined([f"{percent(row['mfu'])} ({_size(row['model'])})" for row in best]))
    pad.add("exposed", joined([f"{percent(row[SHARE])} ({_size(row['model'])})" for row in best]))
    pad.add("layouts", joined([f"{layout_name(row)} ({_size(row['model'])})" for row in best]))
    gained = [_size(one["model"]) for one, other in zip(best, least, strict=True) if one["run_id"] != other["run_id"]]
    pad.add("gained", f"for {joined(gained)}" if gained else "for none of them")
    return pad.numbers


def _size(model: str) -> str:
    return model.rpartition("-")[2].upper()


def _of_sequences(frame: pl.DataFrame) -> dict[str, Number]:
    line = _ok(frame).sort("sequence_length")
    ended = frame.filter(pl.col("outcome") != Outcome.OK)
    pad = Pad(f"{PREFIX}.context", line)
    first, last = line.row(0, named=True), line.row(-1, named=True)
    pad.add("shortest", int(first["sequence_length"]))
    pad.add("longest", int(last["sequence_length"]))
    pad.add("too_long", listed(ended["sequence_length"]), source=ended if not ended.is_empty() else line)
    for name, column in (("rate", RATE), ("mfu", "mfu"), ("energy", ENERGY)):
        pad.add(f"{name}_moves", moves(first[column], last[column]))
    pad.add("exposed_first", first[SHARE], percent)
    pad.add("exposed_last", last[SHARE], percent)
    return pad.numbers


def _of_fabrics(frame: pl.DataFrame) -> dict[str, Number]:
    """Throughput per GPU at the largest scale of every fabric, over that of the study's own."""
    ok = _ok(frame)
    pad = Pad(f"{PREFIX}.fabric", ok)
    ends = {name: ok.filter(hardware=name).sort("gpus").row(-1, named=True) for name in in_order(ok["hardware"])}
    base = ends.get("h100")
    if base is None:
        return {}
    for name, row in ends.items():
        if name != "h100":
            pad.add(name.removeprefix("h100-"), row[LOCAL_RATE] / base[LOCAL_RATE] - 1, signed)
    return pad.numbers


def _of_collectives(frame: pl.DataFrame) -> dict[str, Number]:
    """What becomes of the bandwidth of all-reduce and all-gather from the fewest to the most nodes."""
    ok = frame.filter(pl.col("outcome") == Outcome.OK).sort("run_id")
    pad = Pad(f"{PREFIX}.collectives", ok)
    nodes = in_order(ok["nodes"])
    pad.add("fewest", nodes[0])
    pad.add("most", nodes[-1])
    for size in (2**26, 2**30):
        for op in ("all_reduce", "all_gather"):
            line = ok.filter(op=op, message_bytes=size).sort("nodes")[BANDWIDTH].to_list()
            pad.add(f"{op}_{binary_size(size).replace(' ', '').lower()}", moves(line[0], line[-1]) if line else None)
    return pad.numbers


def _of_reported(study: Study) -> dict[str, Number]:
    """What the source prints of single runs, by sweep, metric and place."""
    return {
        f"reported.{point.sweep}.{point.metric}.{'-'.join(str(part) for part in point.where.values())}": _printed(point)
        for point in study.reported
        if point.metric not in COLLECTIVE_METRICS
    }


def _printed(point: ReportedPoint) -> Number:
    value = point.value if point.value is not None else point.change
    assert value is not None
    shown = f"{round(value * 100, 2):g}%"
    if point.value is None:
        shown = signed(value)
    elif "power" in point.metric:
        shown = watts(value)
    text = f"{point.bound} {shown}" if point.bound else shown
    return Number(text=text, value=value, runs=(), provenance=(Provenance.REPORTED.value,))


def _reported(study: Study, sweep: str, metric: str) -> ReportedPoint | None:
    points = (point for point in study.reported if point.sweep == sweep and point.metric == metric and point.since)
    return next(points, None)


def _at(line: pl.DataFrame, where: Mapping[str, str | int]) -> dict[str, Any] | None:
    found = line.filter(*(pl.col(name) == value for name, value in where.items()))
    return None if found.is_empty() else found.row(0, named=True)
