"""What the verb `trace` shows: what Kineto traces say, and how far each file can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from rich.markup import escape
from rich.table import Table

from scaling_study.console import advancing, printer
from scaling_study.errors import UserError
from scaling_study.roofline import bus_factor
from scaling_study.spec import CollectiveOp, SpanKind
from scaling_study.timeline import (
    NO_EXPOSURE,
    SCHEMA,
    DeviceTrace,
    by_collective,
    exposure,
    exposure_of_groups,
    read_trace,
    unions,
    waits,
    window,
    write_timeline_file,
)

_LONGEST = 120


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of each trace counts: profiler steps by name, or milliseconds from its first device event, or all."""

    steps: tuple[str, ...] = ()
    from_ms: float | None = None
    to_ms: float | None = None


def look_at(paths: Sequence[Path], chosen: Window, output: Path | None) -> dict[str, Any]:
    """Read traces and flatten them.

    Args:
        paths: one file a rank.
        chosen: the window.
        output: where to write the timeline of all files, if anywhere; `.parquet`, `.json` or `.json.gz`.

    Raises:
        UserError: a file cannot be read or is no trace, or the window is not in it.
    """
    ranks: dict[int, str] = {}
    files, frames = [], []
    for position, (path, trace) in enumerate(_read(paths)):
        rank = trace.rank if trace.rank is not None and trace.rank not in ranks else position
        if rank in ranks:
            rank = max(ranks) + 1
        ranks[rank] = str(path)
        device, start_ns, end_ns = _cut(trace, chosen, path)
        device = device.with_columns(rank=pl.lit(rank, pl.Int32))
        frames.append(device)
        files.append(_describe(path, trace, rank, device, start_ns, end_ns))
    everything = pl.concat(frames)
    if output is not None:
        write_timeline_file(output, everything.select(*SCHEMA), ", ".join(path.name for path in paths))
    return {"files": files, "waits": waits(everything).to_dicts() if len(paths) > 1 else []}


def _read(paths: Sequence[Path]) -> Iterator[tuple[Path, DeviceTrace]]:
    """Each file with what is read of it, and on a terminal how much of all of them is read."""
    sizes = [path.stat().st_size if path.is_file() else 0 for path in paths]
    with advancing("reading traces", sum(sizes)) as advance:
        for path in paths:
            yield path, read_trace(path, advance=advance)


def _cut(trace: DeviceTrace, chosen: Window, path: Path) -> tuple[pl.DataFrame, int, int]:
    """What ran on the device inside the window, and its bounds."""
    device, steps = trace.device, trace.steps
    first, last = _bounds(device)
    if chosen.steps:
        wanted = steps.filter(pl.col("step").is_in(list(chosen.steps)))
        missing = [name for name in chosen.steps if name not in wanted["step"].to_list()]
        if missing:
            known = ", ".join(steps["step"].to_list()) or "none"
            raise UserError(
                f"it has no profiler step {', '.join(missing)}", where=str(path), remedy=f"Its steps: {known}."
            )
        first, last = _bounds(wanted)
    elif chosen.from_ms is not None or chosen.to_ms is not None:
        begin = first
        first = begin + round((chosen.from_ms or 0.0) * 1e6)
        last = min(last, begin + round(chosen.to_ms * 1e6)) if chosen.to_ms is not None else last
    else:
        return device, first, last
    return window(device, first, last), first, last


def _bounds(spans: pl.DataFrame) -> tuple[int, int]:
    """The first start and the last end; 0 and 0 where there is nothing."""
    first, last = spans.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return first or 0, last or 0


def _describe(
    path: Path, trace: DeviceTrace, rank: int, device: pl.DataFrame, start_ns: int, end_ns: int
) -> dict[str, Any]:
    found = exposure(device).get(rank, NO_EXPOSURE)
    layers = {"busy": pl.lit(value=True), "memory": pl.col("kind") == SpanKind.MEMORY}
    flattened = unions(device, layers)
    groups = exposure_of_groups(device).with_columns(_ms("communication_ns"), _ms("exposed_communication_ns"))
    return {
        "file": str(path),
        "rank": rank,
        "world_size": trace.world_size,
        "device": trace.devices[0] if trace.devices else None,
        "window_ms": (end_ns - start_ns) / 1e6,
        "kernels": device.filter(pl.col("kind") != SpanKind.MEMORY).height,
        "communication_kernels": device.filter(pl.col("kind") == SpanKind.COMMUNICATION).height,
        "compute_ms": found.compute_ns / 1e6,
        "communication_ms": found.communication_ns / 1e6,
        "exposed_communication_ms": found.exposed_communication_ns / 1e6,
        "memory_ms": flattened["memory"] / 1e6,
        "idle_ms": (end_ns - start_ns - flattened["busy"]) / 1e6,
        "communication_by_axis_ms": {name: ns / 1e6 for name, ns in found.communication_by_axis_ns.items()},
        "exposed_by_axis_ms": {name: ns / 1e6 for name, ns in found.exposed_by_axis_ns.items()},
        "groups": groups.select("group", "axis", "communication_ms", "exposed_communication_ms").to_dicts(),
        "collectives": [_bandwidth(row) for row in by_collective(device).to_dicts()],
        "steps": trace.steps["step"].to_list(),
        "verdict": msgspec.to_builtins(trace.verdict),
    }


def _ms(name: str) -> pl.Expr:
    return (pl.col(name) / 1e6).alias(name.removesuffix("_ns") + "_ms")


def _bandwidth(row: dict[str, Any]) -> dict[str, Any]:
    """A kind of call with the bus bandwidth of its fastest, where bytes and ranks are known."""
    size, ranks, least = row["bytes"], row["group_ranks"], row["least_ns"]
    known = size and ranks and ranks > 1 and least and row["op"] in set(CollectiveOp)
    gb_per_s = size * bus_factor(CollectiveOp(row["op"]), ranks) / least if known else None
    return {
        "op": row["op"],
        "axis": row["axis"],
        "bytes": size,
        "ranks": ranks,
        "calls": row["calls"],
        "total_ms": row["total_ns"] / 1e6,
        "median_ms": row["median_ns"] / 1e6,
        "least_ms": least / 1e6,
        "bus_gb_per_s": gb_per_s,
    }


def print_traces(found: dict[str, Any]) -> None:
    """The same for people: times of each file, its collectives, what is wrong with it."""
    console = printer()
    for one in found["files"]:
        device = _plain(one["device"] or "a device not named")
        console.print(f"{one['file']}: rank {one['rank']}, {device}", markup=False)
        table = Table("milliseconds", "in all", "exposed", box=None, pad_edge=False)
        table.add_row("window", f"{one['window_ms']:,.3f}")
        table.add_row("compute", f"{one['compute_ms']:,.3f}")
        table.add_row("communication", f"{one['communication_ms']:,.3f}", f"{one['exposed_communication_ms']:,.3f}")
        for group in one["groups"]:
            name = f"  group {group['group']}{' (' + group['axis'] + ')' if group['axis'] else ''}"
            table.add_row(
                escape(_plain(name)), f"{group['communication_ms']:,.3f}", f"{group['exposed_communication_ms']:,.3f}"
            )
        table.add_row("copies and sets", f"{one['memory_ms']:,.3f}")
        table.add_row("idle", f"{one['idle_ms']:,.3f}")
        console.print(table)
        if one["collectives"]:
            console.print(_collectives(one["collectives"]))
        console.print(f"verdict: {in_words(one['verdict'])}", markup=False)
    if found["waits"]:
        console.print(_waits(found["waits"]))


def _collectives(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "collective", "axis", "bytes", "ranks", "calls", "total, ms", "median, ms", "fastest, GB/s (bus)",
        box=None, pad_edge=False,
    )  # fmt: skip
    for row in rows:
        times = [f"{row['total_ms']:,.3f}", f"{row['median_ms']:,.3f}"]
        numbers = ["" if row[name] is None else f"{row[name]:,}" for name in ("bytes", "ranks", "calls")]
        rate = "" if row["bus_gb_per_s"] is None else f"{row['bus_gb_per_s']:,.1f}"
        table.add_row(escape(_plain(row["op"])), row["axis"] or "", *numbers, *times, rate)
    return table


def _waits(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "group", "rank", "calls", "waited for others, ms", "was waited for", box=None, pad_edge=False,
        title="ranks waiting for each other", title_justify="left",
    )  # fmt: skip
    for row in rows:
        waited = f"{row['waited_ns'] / 1e6:,.3f}"
        table.add_row(
            escape(_plain(row["group"])), str(row["rank"]), f"{row['calls']:,}", waited, f"{row['last_share']:.0%}"
        )
    return table


def _plain(text: str) -> str:
    """A name of a file that anybody may have written, without what a terminal obeys, and not endless."""
    shown = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text[: _LONGEST + 1])
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."


def in_words(verdict: dict[str, Any]) -> str:
    """A verdict as a sentence."""
    said = []
    if verdict["truncated"]:
        said.append("the file is truncated")
    lost = verdict["events_in_file"] - verdict["events_read"]
    if lost or verdict["lost_bytes"]:
        said.append(f"{lost:,} of {verdict['events_in_file']:,} events ({verdict['lost_bytes']:,} bytes) are lost")
    said += [f"{count:,} events mended ({kind})" for kind, count in verdict["mended"].items()]
    for name, what in _DOUBTS.items():
        if verdict[name]:
            said.append(what.format(verdict[name], ms=verdict["stream_overlap_ns"] / 1e6))
    if verdict["no_distributed_info"]:
        said.append("it does not say of which rank it is")
    if not verdict["device_events"]:
        said.append("nothing ran on a device")
    complete = f"all {verdict['events_read']:,} events read"
    return "; ".join([complete if not lost else f"{verdict['events_read']:,} events read", *said])


_DOUBTS = {
    "without_time": "{:,} device events have no sensible time and are left out",
    "unread_arguments": "the arguments of {:,} device events cannot be read",
    "zero_durations": "{:,} have no duration",
    "stream_overlaps": "{:,} overlap an earlier one of their stream, by {ms:,.3f} ms in all",
    "clock_steps": "{:,} begin before what was launched before them",
    "duplicate_correlations": "{:,} share a correlation id",
    "unknown_share": "{:.1%} of the communication time is of unknown collectives",
    "by_name_share": "{:.1%} of the communication time is known by kernel names only",
    "double_encoded": "{:,} names were encoded twice",
}
