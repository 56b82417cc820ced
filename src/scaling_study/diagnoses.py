"""What the verb `diagnose` shows: what limits runs, from their records, or from Kineto traces as far as these go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table

from scaling_study.console import printer
from scaling_study.errors import UserError
from scaling_study.records import Diagnosis, Part, diagnose, diagnosis_of, read_records
from scaling_study.records.diagnosis import HOST_HELP, SKEW_HELP
from scaling_study.spec import Config, Limit, Provenance, TrainingRun, expand, run_id
from scaling_study.traces import Window, in_words, look_at

_TRACE_HELP = {
    Limit.COMPUTE: "larger or fused kernels, fewer FLOPs, or a faster part; a trace does not say how much work it was",
    Limit.EXPOSED_COMMUNICATION: "more to compute between two collectives, fewer or smaller ones, or a faster fabric",
    Limit.MEMORY: "fewer copies and sets: pinned memory, tensors kept on the device",
}


def diagnose_all(config: Config, names: Sequence[str], record_files: Sequence[Path], results: Path) -> list[Diagnosis]:
    """What limits each run; all names that are files are taken for traces of ranks of one run.

    Args:
        names: ids of training runs, or files.
        record_files: where runs are looked for; those of `results` if none are given, fresh before cached.

    Raises:
        UserError: a name is neither a run with a record nor a file, or a file cannot be read.
    """
    traces = [Path(name) for name in names if Path(name).is_file()]
    runs = [name for name in names if not Path(name).is_file()]
    found = _of_traces(traces) if traces else []
    files = record_files or [*sorted(results.glob("*/*/*.parquet")), *sorted(results.glob("cached/*/*/*.parquet"))]
    seen: set[tuple[str, str]] = set()  # a run may be in several sweeps, and fresh records come before cached ones
    for path in files if runs else ():
        if path.parent.name == "model":
            continue
        records = read_records(path).filter(pl.col("run_id").is_in(runs), kind="training")
        for record in records.iter_rows(named=True):
            if (record["run_id"], record["provenance"]) not in seen:
                seen.add((record["run_id"], record["provenance"]))
                found.append(_of_record(config, record, path))
    known = {one.what for one in found}
    if missing := [name for name in runs if name not in known]:
        raise UserError(
            f"no record of a training run {missing[0]!r}, and no such file",
            where="diagnose",
            remedy="Give --records, or measure or predict it first; `scaling-study runs STUDY` lists runs.",
        )
    return found


def _of_record(config: Config, record: Mapping[str, Any], path: Path) -> Diagnosis:
    study, sweep = path.parts[-3], path.stem
    runs = {run_id(run): run for run in expand(config.study(study), sweep, config.catalogue)}
    run = runs.get(record["run_id"])
    if not isinstance(run, TrainingRun):
        raise UserError("the record is of no run of its study", where=str(path), remedy="Gather it again.")
    return diagnose(record, run, config.catalogue.models[run.model], config.catalogue.hardware[run.hardware])


def _of_traces(paths: Sequence[Path]) -> list[Diagnosis]:
    """One a file; of several, who waits for whom."""
    seen = look_at(paths, Window(), None)
    return [_of_trace(one, seen["waits"]) for one in seen["files"]]


def _of_trace(one: Mapping[str, Any], waits: Sequence[Mapping[str, Any]]) -> Diagnosis:
    window = one["window_ms"]
    waited = sum(row["waited_ns"] for row in waits if row["rank"] == one["rank"]) / 1e6
    axes = one["exposed_by_axis_ms"]
    summed, total = sum(axes.values()), one["exposed_communication_ms"]
    parts = [_part(Limit.COMPUTE, one["compute_ms"], window, f"{one['compute_ms']:.4g} ms of kernels that compute")]
    skew = min(waited, total)
    for axis, alone in axes.items():
        milliseconds = (total - skew) * alone / summed if summed else 0.0
        evidence = f"{milliseconds:.4g} ms exposed of {one['communication_by_axis_ms'][axis]:.4g} ms"
        parts.append(_part(Limit.EXPOSED_COMMUNICATION, milliseconds, window, evidence, axis))
    parts.append(_part(Limit.MEMORY, min(one["memory_ms"], _left(one)), window, f"{one['memory_ms']:.4g} ms of copies"))
    gap = one["idle_ms"] / one["kernels"] * 1e3 if one["kernels"] else 0.0
    idle = f"{one['idle_ms']:.4g} ms in which nothing runs, {gap:.3g} us a kernel of {one['kernels']:,}"
    parts.append(_part(Limit.HOST_LAUNCH, one["idle_ms"], window, idle, help_=HOST_HELP))
    if skew:
        late = max(waits, key=lambda row: row["last_share"])
        said = (
            f"it waited {waited:.4g} ms for other ranks, most often for rank {late['rank']} ({late['last_share']:.0%})"
        )
        parts.append(_part(Limit.SKEW, skew, window, said, help_=f"rank {late['rank']}: {SKEW_HELP}"))
    return diagnosis_of(one["file"], Provenance.MEASURED, window / 1e3, parts, [in_words(one["verdict"])])


def _left(one: Mapping[str, Any]) -> float:
    """Milliseconds in which neither a kernel nor nothing runs: copies and sets alone."""
    busy = one["compute_ms"] + one["exposed_communication_ms"] + one["idle_ms"]
    return max(0.0, float(one["window_ms"] - busy))


def _part(
    limit: Limit, milliseconds: float, window: float, evidence: str, axis: str | None = None, help_: str = ""
) -> Part:
    share = milliseconds / window if window else 0.0
    text = help_ or _TRACE_HELP[limit]
    return Part(limit=limit, axis=axis, seconds=milliseconds / 1e3, share=share, evidence=evidence, help=text)


def print_diagnoses(found: Sequence[Diagnosis]) -> None:
    """The same for people."""
    console = printer()
    for one in found:
        kind = f" ({one.provenance})" if one.provenance else ""
        said = one.limit.replace("_", " ") if one.limit else "not known"
        console.print(f"{one.what}{kind}: limited by {said}", markup=False, soft_wrap=True)
        if one.parts:
            table = Table(box=None, pad_edge=False)
            table.add_column("part")
            table.add_column("share", justify="right")
            table.add_column("evidence", overflow="fold")
            table.add_column("what would help", overflow="fold")
            for part in one.parts:
                name = f"{part.limit.replace('_', ' ')}{f', {part.axis}' if part.axis else ''}"
                table.add_row(name, f"{part.share:.1%}", part.evidence, part.help)
            console.print(table)
        for note in one.notes:
            console.print(f"- {note}", markup=False, soft_wrap=True)
