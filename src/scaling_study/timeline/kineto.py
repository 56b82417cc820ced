"""Kineto traces of a GPU rank: what ran on the device, in integer nanoseconds, with a verdict on the file.

Communication is what torch recorded as a collective (its arguments stand in the event from torch 2.2 on), and kernels
of NCCL or RCCL by their name where it did not; every other kernel is compute; copies and sets are memory.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from scaling_study.spec import SpanKind
from scaling_study.timeline.kernels import DTYPE_BYTES, axis_of_group, named_operation, recorded_operation
from scaling_study.timeline.spans import SCHEMA
from scaling_study.timeline.tracefile import Damage, RawEvent, TraceFile
from scaling_study.tracking import Advance, unheard

#: Columns of what ran on a device beside those of the span table: where the collective is known from (`arguments` or
#: `name`; null for the rest), the ranks of its group, and the number that ties a kernel to its launch.
DEVICE_SCHEMA: dict[str, type[pl.DataType]] = {
    **SCHEMA,
    "known_by": pl.String,
    "group_ranks": pl.Int64,
    "correlation": pl.Int64,
}
_KINDS = {
    "kernel": SpanKind.COMPUTE,
    "gpu_memcpy": SpanKind.MEMORY,
    "gpu_memset": SpanKind.MEMORY,
    "memcpy": SpanKind.MEMORY,  # torch up to 1.12
    "memset": SpanKind.MEMORY,
}
_STEP = "ProfilerStep#"
_LARGEST = 2**63 // 4


class _Args(msgspec.Struct, gc=False):
    stream: int | float | str | None = None
    correlation: int | float | str | None = None
    bytes: int | float | None = None
    collective: str | None = msgspec.field(name="Collective name", default=None)
    elements_in: int | float | None = msgspec.field(name="In msg nelems", default=None)
    elements_out: int | float | None = msgspec.field(name="Out msg nelems", default=None)
    group_size: int | float | None = msgspec.field(name="Group size", default=None)
    dtype: str | None = None
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    description: str | None = msgspec.field(name="Process Group Description", default=None)


_args = msgspec.json.Decoder(_Args)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How far a file can be trusted.

    Attributes:
        sound: nothing is lost and nothing contradicts itself; what follows says what does.
        events_read, events_in_file, lost_bytes, truncated, mended: as in `Damage`.
        device_events: on the device, those with a time that makes no sense excluded.
        without_time: device events whose time or duration is missing, no number, negative, beyond any clock, or both 0.
        unread_arguments: device events whose arguments cannot be read, so that their kind is known by name only.
        zero_durations: device events of zero length; they count for nothing.
        stream_overlaps: device events that begin before an earlier one of their stream has ended, as programmatic
            dependent launch does; unions count such time once.
        stream_overlap_ns: by how much; durations of a stream add up to so much more than the time that it is busy.
        clock_steps: device events that begin before one that stands earlier in the file on their stream and has a
            smaller correlation id.
        duplicate_correlations: device events that share correlation id and kind with another.
        unknown_share: share of the communication time whose collective neither arguments nor name tell.
        by_name_share: share of it that is known by name only.
        no_distributed_info: the file does not say which rank it is of.
        double_encoded: names that were encoded as UTF-8 twice.
    """

    sound: bool
    events_read: int
    events_in_file: int
    lost_bytes: int
    truncated: bool
    mended: dict[str, int]
    device_events: int
    without_time: int
    unread_arguments: int
    zero_durations: int
    stream_overlaps: int
    stream_overlap_ns: int
    clock_steps: int
    duplicate_correlations: int
    unknown_share: float
    by_name_share: float
    no_distributed_info: bool
    double_encoded: int


class DeviceTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank's device did.

    Attributes:
        device: the columns of `DEVICE_SCHEMA`, by start.
        steps: profiler steps, columns `step`, `start_ns`, `end_ns`.
        rank: of the file; None where it does not say.
        world_size: likewise.
        devices: names of the host's devices.
    """

    device: pl.DataFrame
    steps: pl.DataFrame
    rank: int | None
    world_size: int | None
    devices: list[str]
    verdict: Verdict


class _Table:
    """Columns that grow a piece at a time; names and groups are kept once."""

    def __init__(self) -> None:
        self.frames: list[pl.DataFrame] = []
        self.names: dict[str, int] = {}
        self.named: dict[str, str | None] = {}
        self.steps: list[tuple[str, int, int]] = []
        self.without_time = self.unread_arguments = self.double_encoded = 0

    def add(self, events: list[RawEvent]) -> None:
        rows: list[tuple[int, int, int, int, int, int, int | None, int | None, int | None, int | None]] = []
        for event in events:
            if event.ph != "X":
                continue
            category = event.cat if event.cat in _KINDS else (event.cat or "").lower()
            if category not in _KINDS:
                if event.name and event.name.startswith(_STEP):
                    self._step(event)
                continue
            start_ns, length_ns = nanoseconds(event.ts), nanoseconds(event.dur)
            if start_ns is None or length_ns is None or length_ns < 0 or start_ns == length_ns == 0:
                self.without_time += 1
                continue
            args = self._arguments(event)
            name, group, known_by, size, ranks = self._what(event, category, args)
            stream = args.stream if args.stream is not None else event.tid
            rows.append((
                self._id(category), self._id(name), self._id(f"stream {_shown(stream)}"), start_ns,
                start_ns + length_ns, known_by, group, size, ranks, _integer(args.correlation),
            ))  # fmt: skip
        if rows:
            self.frames.append(pl.DataFrame(rows, schema=_ROWS, orient="row"))

    def _what(self, event: RawEvent, category: str, args: _Args) -> tuple[str, int | None, int, int | None, int | None]:
        """Operation, group, how it is known, bytes and ranks of an event."""
        name = event.name or ""
        if category != "kernel":
            return name, None, _NOT, _integer(args.bytes), None
        if args.collective:
            elements = max(_integer(args.elements_in) or 0, _integer(args.elements_out) or 0)
            each = DTYPE_BYTES.get((args.dtype or "").lower())
            size = elements * each if each else None
            group = (
                self._id(f"{args.group or ''}\0{args.description or ''}") if args.group or args.description else None
            )
            return recorded_operation(args.collective), group, _RECORDED, size, _integer(args.group_size)
        operation = self._named(name)
        if operation is not None:
            return operation, None, _UNKNOWN if operation == "unknown" else _BY_NAME, None, None
        return name, None, _NOT, None, None

    def _step(self, event: RawEvent) -> None:
        start_ns, length_ns = nanoseconds(event.ts), nanoseconds(event.dur)
        if start_ns is not None and length_ns is not None and length_ns >= 0:
            self.steps.append(((event.name or "").removeprefix(_STEP), start_ns, start_ns + length_ns))

    def _arguments(self, event: RawEvent) -> _Args:
        try:
            return _args.decode(event.args)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.unread_arguments += 1
            return _Args()

    def _named(self, kernel: str) -> str | None:
        if kernel not in self.named:
            self.named[kernel] = named_operation(kernel)
        return self.named[kernel]

    def _id(self, name: str) -> int:
        known = self.names.get(name)
        if known is None:
            known = self.names[name] = len(self.names)
            self.double_encoded += _encoded_twice(name)
        return known


_NOT, _RECORDED, _BY_NAME, _UNKNOWN = range(4)
_ROWS = {
    "category": pl.UInt32, "name": pl.UInt32, "stream": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64,
    "known_by": pl.UInt8, "group": pl.UInt32, "bytes": pl.Int64, "group_ranks": pl.Int64, "correlation": pl.Int64,
}  # fmt: skip


def read_trace(path: Path, rank: int | None = None, advance: Advance = unheard) -> DeviceTrace:
    """Read a Kineto trace.

    Args:
        path: `.json`, gzipped or not.
        rank: that the file is of; None for what it says, and 0 where it does not.
        advance: told how many bytes of the file are read.

    Raises:
        UserError: the file cannot be read, or is no trace.
    """
    file, table = TraceFile(path, advance=advance), _Table()
    with _no_collection():
        for events in file:
            table.add(events)
    info = file.about.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    base_ns = _integer(file.about.get("baseTimeNanoseconds")) or 0
    rows = pl.concat(table.frames) if table.frames else pl.DataFrame(schema=_ROWS)
    own = rank if rank is not None else _integer(info.get("rank"))
    return DeviceTrace(
        device=_device(rows, list(table.names), own or 0, base_ns),
        steps=_steps(table.steps, base_ns),
        rank=own,
        world_size=_integer(info.get("world_size")),
        devices=[str(one.get("name")) for one in _dicts(file.about.get("deviceProperties"))],
        verdict=_verdict(file.damage, rows, table, no_info="rank" not in info),
    )


def _device(rows: pl.DataFrame, names: list[str], rank: int, base_ns: int) -> pl.DataFrame:
    known = pl.Series("names", names, dtype=pl.String)
    kinds = pl.Series("kinds", [_KINDS.get(name, SpanKind.COMPUTE).value for name in names], dtype=pl.String)
    groups = pl.Series("groups", [name.partition("\0")[0] for name in names], dtype=pl.String)
    axes = pl.Series("axes", [axis_of_group(name.partition("\0")[2]) for name in names], dtype=pl.String)
    communicates = pl.col("known_by") != _NOT
    sources = pl.Series("sources", [None, "arguments", "name", None], dtype=pl.String)
    found = rows.sort("start_ns", "end_ns").with_columns(
        pl.lit(rank, pl.Int32).alias("rank"),
        pl.col("start_ns", "end_ns") + base_ns,
        kind=pl.when(communicates)
        .then(pl.lit(SpanKind.COMMUNICATION.value))
        .otherwise(pl.lit(kinds).gather(pl.col("category"))),
        op=pl.lit(known).gather(pl.col("name")),
        stream=pl.lit(known).gather(pl.col("stream")),
        axis=pl.lit(axes).gather(pl.col("group")),
        group=pl.lit(groups).gather(pl.col("group")),
        known_by=pl.lit(sources).gather(pl.col("known_by")),
    )
    return found.select(pl.col(name).cast(dtype) for name, dtype in DEVICE_SCHEMA.items())


def _steps(steps: list[tuple[str, int, int]], base_ns: int) -> pl.DataFrame:
    schema = {"step": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
    frame = pl.DataFrame(steps, schema=schema, orient="row").sort("start_ns")
    return frame.with_columns(pl.col("start_ns", "end_ns") + base_ns)


def _verdict(damage: Damage, rows: pl.DataFrame, table: _Table, *, no_info: bool) -> Verdict:
    length = pl.col("end_ns") - pl.col("start_ns")
    communicates = pl.col("known_by") != _NOT
    total, unknown, by_name = (
        int(rows.filter(which).select(length.sum()).item() or 0)
        for which in (communicates, pl.col("known_by") == _UNKNOWN, pl.col("known_by") == _BY_NAME)
    )
    duplicates = (
        rows.filter(pl.col("correlation") > 0).group_by("correlation", "category").len().filter(pl.col("len") > 1)
    )
    steps = rows.filter(
        (pl.col("start_ns") < pl.col("start_ns").shift(1).over("stream"))
        & (pl.col("correlation") > pl.col("correlation").shift(1).over("stream"))
    ).height
    reached = pl.col("end_ns").cum_max().shift(1).over("stream")
    overlaps = (
        rows.filter(length > 0)
        .sort("start_ns", "end_ns")
        .with_columns(reached=reached)
        .filter(pl.col("start_ns") < pl.col("reached"))
        .select(ns=pl.min_horizontal("reached", "end_ns") - pl.col("start_ns"))
    )
    lost = damage.truncated or damage.lost_bytes > 0 or damage.events_read != damage.events_in_file
    return Verdict(
        sound=not (lost or damage.mended or table.without_time or table.unread_arguments or steps),
        events_read=damage.events_read,
        events_in_file=damage.events_in_file,
        lost_bytes=damage.lost_bytes,
        truncated=damage.truncated,
        mended=dict(sorted(damage.mended.items())),
        device_events=rows.height,
        without_time=table.without_time,
        unread_arguments=table.unread_arguments,
        zero_durations=rows.filter(length == 0).height,
        stream_overlaps=overlaps.height,
        stream_overlap_ns=int(overlaps["ns"].sum()),
        clock_steps=steps,
        duplicate_correlations=int(duplicates["len"].sum()),
        unknown_share=unknown / total if total else 0.0,
        by_name_share=by_name / total if total else 0.0,
        no_distributed_info=no_info,
        double_encoded=table.double_encoded,
    )


# -- small things -----------------------------------------------------------------------------------------------------


def nanoseconds(text: msgspec.Raw | bytes) -> int | None:
    """A number of microseconds as the file has it, in whole nanoseconds; None for what is no time.

    Digits are read as they stand: a float would lose nanoseconds of times since the epoch.
    """
    content = bytes(text)
    if content[-4:-3] == b"." and len(content) <= 20:  # as torch writes them
        digits = content[:-4] + content[-3:]
        if digits.isdigit():
            return int(digits)
    content = content.strip(b'" ')
    whole, _, part = content.partition(b".")
    if whole.isdigit() and len(whole) <= 16 and (not part or (part.isdigit() and len(part) <= 3)):
        return int(whole) * 1000 + int((part + b"000")[:3])
    try:
        value = Decimal(content.decode("ascii")) * 1000
    except (InvalidOperation, UnicodeDecodeError, ValueError):
        return None
    return round(value) if value.is_finite() and abs(value) < _LARGEST else None


def _integer(value: Any) -> int | None:
    """A whole number from what a file says; None where it says none."""
    if type(value) is int and abs(value) < _LARGEST:
        return value
    if isinstance(value, bool) or value is None:
        return None
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        number = int(value)
        return number if abs(number) < _LARGEST else None
    return None


def _shown(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _encoded_twice(name: str) -> bool:
    """Whether a name is UTF-8 that was taken for Latin-1 and encoded again, such as `Ã¤` for `ä`."""
    if name.isascii():
        return False
    try:
        return name.encode("latin-1").decode("utf-8") != name
    except UnicodeError:
        return False


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Without cyclic garbage collection: a piece's events hold no cycles, and there are many."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
