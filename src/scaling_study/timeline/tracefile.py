"""Kineto trace files, read in pieces: any size in bounded memory, gzipped or not, whole or damaged.

A trace is untrusted. What can be read of it is read; what had to be mended or is lost is counted, never passed over.
The events of the file's array are decoded a piece at a time: a piece ends where one object ends and the next begins,
and that it was no place inside a string or an inner list shows in that the piece is valid JSON by itself.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from scaling_study.errors import UserError, explain_os_error
from scaling_study.tracking import Advance, unheard

PIECE_BYTES = 2**20
_MOST_BYTES = 2**26  # of one event, and of what stands before the events
#: Traces shrink by some 10 to 30 times in gzip; what grows by more, and is large, is a bomb.
_MOST_GROWTH, _LARGE_BYTES = 200, 2**27
_MOST_TRIES = 400
_NEAR_BYTES = 2**16
_MOST_PARTS = 24  # of one event that holds `}, {` in itself

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_ARRAY = re.compile(rb"\s*\[")
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_BETWEEN_EVENTS = re.compile(rb'\}\s*,\s*(?=\{[^{}]*"ph"\s*:)')
_BLANKED = bytes(32 if byte < 32 else byte for byte in range(256))
_NUMBERS = re.compile(rb"(?<=[:,\[])(\s*)[-+]?(?:nan|inf|infinity)\b(?:\([a-z0-9_]*\))?", re.IGNORECASE)
_PLACE = re.compile(r"\(byte (\d+)\)")
_ESCAPES = re.compile(rb'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])|(\\)')


class RawEvent(msgspec.Struct, gc=False):
    """An event as the file has it; what is not asked for is not decoded."""

    ph: str | None = ""
    cat: str | None = ""
    name: str | None = ""
    pid: int | float | str | None = 0
    tid: int | float | str | None = 0
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"{}")


class Damage(msgspec.Struct):
    """What was wrong with a file.

    Attributes:
        events_read: events that were decoded.
        events_in_file: events that the file begins, by their `ph` keys.
        lost_bytes: of events that could not be decoded.
        truncated: the file ends before its events do.
        mended: events that were decoded after a repair, by what was wrong with them.
    """

    events_read: int = 0
    events_in_file: int = 0
    lost_bytes: int = 0
    truncated: bool = False
    mended: dict[str, int] = {}


_many, _one = msgspec.json.Decoder(list[RawEvent]), msgspec.json.Decoder(RawEvent)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class TraceFile:
    """One trace file; iterate over it once, then look at `damage` and `about`.

    Args:
        path: the file.
        piece_bytes: how much of it is read at a time.
        advance: told how many bytes of the file are read.

    Attributes:
        about: what the file says beside its events, such as `distributedInfo`.
        damage: complete once the iteration has ended.
    """

    def __init__(self, path: Path, piece_bytes: int = PIECE_BYTES, advance: Advance = unheard) -> None:
        self._path, self._piece_bytes, self._advance = path, piece_bytes, advance
        self._failed_at = 0
        self.about: dict[str, Any] = {}
        self.damage = Damage()

    def __iter__(self) -> Iterator[list[RawEvent]]:
        """The file's events, a piece at a time.

        Raises:
            UserError: it cannot be read, or is no trace.
        """
        buffer, inside, bare = b"", False, False
        for block in self._blocks():
            buffer += block
            if not inside:
                inside, bare, buffer = self._begin(buffer)
                if not inside:
                    continue
            buffer = yield from self._pieces(buffer)
        if not inside:
            raise self._not_a_trace("it has no traceEvents")
        yield self._end(buffer, bare)
        if self.damage.lost_bytes and not self.damage.events_read:
            raise self._not_a_trace("none of its events can be read")

    # -- bytes --------------------------------------------------------------------------------------------------

    def _blocks(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as file:
                if file.read(2) != b"\x1f\x8b":
                    file.seek(0)
                    while block := file.read(self._piece_bytes):
                        yield block
                        self._advance(len(block))
                    return
                file.seek(0)
                yield from self._unpacked(file)
        except OSError as error:
            raise explain_os_error(error, where=str(self._path)) from error

    def _unpacked(self, file: Any) -> Iterator[bytes]:
        """The content of a gzip file, as far as it is whole."""
        packed = unpacked = 0
        stream, rest = zlib.decompressobj(wbits=31), b""
        while True:
            if not rest:
                rest = file.read(2**18)
                packed += len(rest)
                self._advance(len(rest))
            if not rest:
                self.damage.truncated |= not stream.eof
                return
            try:
                block = stream.decompress(rest, self._piece_bytes)
            except zlib.error:
                self.damage.truncated = True
                return
            rest = stream.unconsumed_tail
            if stream.eof:
                rest = stream.unused_data or rest
                if rest[:2] == b"\x1f\x8b":
                    stream = zlib.decompressobj(wbits=31)
                elif not rest.strip(b"\0"):
                    rest = b""
                    if block:
                        yield block
                    return
            unpacked += len(block)
            if unpacked > max(_LARGE_BYTES, _MOST_GROWTH * packed):
                raise self._not_a_trace(f"{packed:,} bytes grow to more than {unpacked:,}")
            if block:
                yield block

    # -- pieces -------------------------------------------------------------------------------------------------

    def _begin(self, buffer: bytes) -> tuple[bool, bool, bytes]:
        """Whether the events have begun, whether they are all that the file has, and what is left of the buffer."""
        if _ARRAY.match(buffer):
            return True, True, buffer[buffer.index(b"[") + 1 :]
        for match in _EVENTS.finditer(buffer):
            about = _object(buffer[: match.start()] + b'"traceEvents": []}')
            if about is not None:
                about.pop("traceEvents")
                self.about |= about
                return True, False, buffer[match.end() :]
        first = _EVENTS.search(buffer)
        if first and len(buffer) > first.end() + _MOST_BYTES:  # what is before the events is damaged
            self._mended("head")
            return True, False, buffer[first.end() :]
        if len(buffer) > _MOST_BYTES or buffer.lstrip()[:1] not in (b"{", b""):
            raise self._not_a_trace("it does not begin as one")
        return False, False, buffer

    def _pieces(self, buffer: bytes) -> Generator[list[RawEvent], None, bytes]:
        """Decode what is whole of a buffer; the rest waits for more."""
        if len(buffer) < self._piece_bytes:
            return buffer
        for end in reversed(_ends(buffer)[-_MOST_PARTS:]):
            events = self._decoded(buffer[:end])
            if events is not None:
                yield events
                return _after_comma(buffer[end:])
            if self._failed_at < end - _NEAR_BYTES:
                break  # far from its end: damage, whichever end is tried
        ends = [match.start() + 1 for match in _BETWEEN_EVENTS.finditer(buffer)]
        if ends:  # damage, or it would be valid up to one of these
            yield self._salvaged(buffer[: ends[-1]])
            return _after_comma(buffer[ends[-1] :])
        if len(buffer) > _MOST_BYTES:
            raise self._not_a_trace(f"one event is longer than {_MOST_BYTES:,} bytes")
        return buffer

    def _end(self, buffer: bytes, bare: bool) -> list[RawEvent]:
        """The last events and what follows them."""
        ends = [match.start() for match in re.finditer(rb"\]", buffer)]
        found = None
        for position in reversed(ends[-_MOST_TRIES:]):  # the first place after which all is well: later ones are inside
            about = _tail(buffer[position + 1 :], bare)
            if about is not None and buffer[:position].rstrip()[-1:] in (b"}", b""):
                found = position, about
        if found is None:
            self.damage.truncated = True
            return self._salvaged(buffer)
        self.about |= found[1]
        whole = buffer[: found[0]]
        events = self._decoded(whole)
        return self._salvaged(whole) if events is None else events

    def _decoded(self, content: bytes) -> list[RawEvent] | None:
        """The events of a piece, if it is valid as it is."""
        try:
            events = _many.decode(b"[" + content + b"]")
        except _UNREADABLE as error:
            place = _PLACE.search(str(error))
            self._failed_at = int(place[1]) if place else len(content)
            return None
        self._count(content, len(events))
        return events

    def _count(self, content: bytes, read: int) -> None:
        self.damage.events_read += read
        begun = content.count(b'"ph"')
        if begun != read:  # a value may say "ph" as well
            begun = content.count(b'"ph":') + content.count(b'"ph" :')
        self.damage.events_in_file += max(read, begun)

    # -- damage -------------------------------------------------------------------------------------------------

    def _salvaged(self, content: bytes) -> list[RawEvent]:
        """The events of a damaged piece one by one, mended where that is safe; what cannot be is counted as lost."""
        if b"\0" in content:
            content = content.replace(b"\0", b" ")
            self._mended("control character")
        parts = [part for part in _BETWEEN.sub(b"}\0", content).split(b"\0") if part.strip(b" \r\n\t,")]
        events: list[RawEvent] = []
        at = 0
        while at < len(parts):
            event, used = self._first(parts[at : at + _MOST_PARTS])
            if event is None:
                self.damage.lost_bytes += len(parts[at])
            else:
                events.append(event)
            at += used
        self._count(content, len(events))
        return events

    def _first(self, parts: list[bytes]) -> tuple[RawEvent | None, int]:
        """The event that parts begin with, and how many of them are its: more than one where it holds a list."""
        for used in range(1, len(parts) + 1):
            event = self._mend(b", ".join(parts[:used]))
            if event is not None:
                return event, used
            if used < len(parts) and b'"ph"' in parts[used]:
                break  # the next is an event of its own
        return None, 1

    def _mend(self, content: bytes) -> RawEvent | None:
        """One event, after as little repair as makes it valid: none, or each of these in turn and together."""
        wrong = []
        for kind, repair in _REPAIRS:
            try:
                event = _one.decode(content)
            except _UNREADABLE:
                mended = repair(content)
                if mended != content:
                    wrong.append(kind)
                    content = mended
                continue
            break
        else:
            try:
                event = _one.decode(content)
            except _UNREADABLE:
                return None
        for kind in wrong:
            self._mended(kind)
        return event

    def _mended(self, kind: str) -> None:
        self.damage.mended[kind] = self.damage.mended.get(kind, 0) + 1

    def _not_a_trace(self, why: str) -> UserError:
        return UserError(f"not a Kineto trace: {why}", where=str(self._path), remedy="Record the trace again.")


def _ends(buffer: bytes) -> list[int]:
    """Where events may end, near the end of a buffer, or anywhere in it if none do there."""
    near = [match.start() + 1 for match in _BETWEEN.finditer(buffer, max(0, len(buffer) - _NEAR_BYTES))]
    return near or [match.start() + 1 for match in _BETWEEN.finditer(buffer)]


def _utf8(content: bytes) -> bytes:
    return content.decode("utf-8", errors="replace").encode()


def _control(content: bytes) -> bytes:
    return content.translate(_BLANKED)  # a blank is white space outside of strings as well


def _escapes(content: bytes) -> bytes:
    return _ESCAPES.sub(lambda match: b"\\\\" if match[1] else match[0], content)


def _numbers(content: bytes) -> bytes:
    return _NUMBERS.sub(rb"\1null", content)


_REPAIRS = (
    ("utf-8", _utf8),
    ("control character", _control),
    ("escape", _escapes),
    ("number", _numbers),
)


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(content)
    except _UNREADABLE:
        return None
    return found if isinstance(found, dict) else None


def _tail(content: bytes, bare: bool) -> dict[str, Any] | None:
    """What follows the events, if that is the end of a trace."""
    rest = content.strip()
    if bare:
        return {} if not rest else None
    if rest == b"}":
        return {}
    return _object(b"{" + rest[1:]) if rest[:1] == b"," else None


def _after_comma(content: bytes) -> bytes:
    return content.lstrip()[1:].lstrip()
