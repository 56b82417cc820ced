"""Of every run: machine, protocol, outcomes and noise; of every sweep: its runs and what it assumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import polars as pl

from scaling_study.present.numbers.core import Number, Pad, counted, in_order, joined, listed, longer, percent
from scaling_study.present.rows import outcome_words, why_null
from scaling_study.spec import Outcome, Study

MACHINE = ("device", "host_cores", "torch_version", "python_version", "backend", "code_version")
PROTOCOL = ("iterations", "discard", "profiled_iterations")


def of_runs(measured: Mapping[str, pl.DataFrame]) -> dict[str, Number]:
    """Over the runs of all sweeps, each once; those of training have iterations, the others do not."""
    rows = pl.concat(list(measured.values()))
    frame = rows.unique("run_id", maintain_order=True).sort("run_id")
    pad = Pad("runs", frame)
    pad.add("count", frame.height)
    pad.add("sweeps", len(measured))
    pad.add("shared", int(rows["run_id"].value_counts().filter(pl.col("count") > 1).height))
    pad.add("outcomes", _outcomes(frame))
    ok = frame.filter(pl.col("outcome") == Outcome.OK)
    for column in MACHINE:
        pad.add(column, listed(ok[column]), source=ok)
    pad.add("oversubscription", _oversubscription(ok), source=ok)
    kinds = {kind: frame.filter(pl.col("kind") == kind) for kind in ("training", "collective")}
    for kind, part in kinds.items():
        pad.add(kind, part.height or None, source=part)
    return pad.numbers | _of_training(kinds["training"])


def _of_training(frame: pl.DataFrame) -> dict[str, Number]:
    """Protocol, noise and what is not defined, of training runs."""
    pad = Pad("runs", frame)
    for column in PROTOCOL:
        pad.add(column, listed(frame[column]))
    pad.add("kept", listed(frame["iterations"] - frame["discard"]))
    pad.add("models", listed(frame["model"]))
    pad.add("largest", cast("int | None", frame["gpus"].max()))
    ok = frame.filter(pl.col("outcome") == Outcome.OK)
    threads = ok["threads_per_rank"].drop_nulls().unique().to_list()
    pad.add("threads", counted(threads[0], "thread") if len(threads) == 1 else "", source=ok)
    pad.add("cv_median", cast("float | None", ok["iteration_s_cv"].median()), percent, ok)
    pad.add("cv_largest", cast("float | None", ok["iteration_s_cv"].max()), percent, ok)
    pad.add("profiler_overhead", cast("float | None", ok["profiler_overhead"].median()), longer, ok)
    for metric in ("mfu", "power_w_per_gpu"):
        pad.add(f"why_no_{metric}", _why_nowhere(ok, metric), source=ok)
    return pad.numbers


def _why_nowhere(ok: pl.DataFrame, metric: str) -> str:
    """Why no record has a metric, empty where some have it; reasons that differ in the precision alone are one."""
    if ok[metric].count():
        return ""
    found: dict[str, list[str]] = {}
    for precision in in_order(ok["precision"]):
        reason = why_null(ok.filter(precision=precision), metric)
        found.setdefault(reason.replace(precision, "{}"), []).append(precision)
    said = [reason.replace("{}", joined(precisions)) for reason, precisions in found.items()]
    return "; ".join(dict.fromkeys(said))


def of_sweeps(study: Study, measured: Mapping[str, pl.DataFrame]) -> dict[str, Number]:
    """Of each sweep its title, its runs and ranks, and what it assumes where the source leaves it open."""
    found: dict[str, Number] = {}
    for name, frame in measured.items():
        pad, sweep = Pad(f"sweeps.{name}", frame), study.sweeps[name]
        pad.add("title", sweep.title)
        pad.add("runs", frame["run_id"].n_unique())
        pad.add("ranks", listed(frame["gpus"]))
        pad.add("assumptions", " ".join(sweep.assumptions) or "None.")
        found |= pad.numbers
    return found


def _outcomes(frame: pl.DataFrame) -> str:
    """How the runs ended, as prose."""
    ended = frame.filter(pl.col("outcome") != Outcome.OK)["outcome"].value_counts().sort("outcome")
    if ended.is_empty():
        return "all of them ended well"
    return "; ".join(f"{count} ended as {outcome_words(outcome)}" for outcome, count in ended.iter_rows())


def _oversubscription(ok: pl.DataFrame) -> str:
    """How many of the runs have more ranks than the machine has cores, as a sentence."""
    crowded, well = ok.filter(pl.col("oversubscribed")), counted(ok.height, "run")
    if crowded.is_empty():
        return "None of the runs that ended well has more ranks than the machine has cores."
    have, those = ("has", "that") if crowded.height == 1 else ("have", "those")
    return (
        f"Of the {well} that ended well, {crowded.height} {have} more ranks than the machine has cores "
        f"({those} of {listed(crowded['gpus'])} ranks)."
    )
