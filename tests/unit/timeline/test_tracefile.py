"""Trace files of any size and state: whole ones are read whole, damaged ones say what is lost, others are one error."""

import gzip
import json
import tempfile
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling_study.errors import UserError
from scaling_study.timeline import exposure, read_trace
from scaling_study.timeline import tracefile as module
from scaling_study.timeline.tracefile import TraceFile
from tests.unit.samples import bounded
from tests.unit.timeline.kineto_samples import BASE_NS, STEP, collective, document, kernel, operator, written

EVENTS = [one for at in range(0, 4000, 100) for one in (operator(at, 3), kernel(at, 60), collective(at + 50, 30))]
TEXT = json.dumps(document(EVENTS)).encode()


def read(path, piece_bytes=module.PIECE_BYTES):
    file = TraceFile(path, piece_bytes)
    return [event for piece in file for event in piece], file


def put(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("piece_bytes", [1, 100, 1000, 5000, 10**6])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_whole_file_is_read_whole_in_pieces_of_any_size(tmp_path, indent, piece_bytes, pack):
    text = json.dumps(document(EVENTS), indent=indent).encode()
    events, file = read(put(tmp_path / "t", pack(text)), piece_bytes)
    assert [event.name for event in events] == [event["name"] for event in EVENTS]
    assert [float(bytes(event.ts)) for event in events] == [event["ts"] for event in EVENTS]
    damage = file.damage
    assert (damage.events_read, damage.events_in_file, damage.lost_bytes) == (len(EVENTS), len(EVENTS), 0)
    assert (damage.truncated, damage.mended) == (False, {})
    assert (file.about["baseTimeNanoseconds"], file.about["traceName"]) == (BASE_NS, "rank.json")
    assert file.about["INFO"] == [{"x": 1}, {"y": [1, 2]}]


def test_events_alone_in_an_array_are_a_trace(tmp_path):
    events, file = read(put(tmp_path / "t", json.dumps(EVENTS).encode()), 1000)
    assert len(events) == len(EVENTS)
    assert not file.damage.truncated


def test_what_stands_first_may_be_last(tmp_path):
    about = document([])
    events = about.pop("traceEvents")
    text = json.dumps({"traceEvents": events, **about}).encode()
    _, file = read(put(tmp_path / "t", text))
    assert file.about["distributedInfo"]["rank"] == 0


@pytest.mark.parametrize("events", [[], [kernel(0, 1)]])
def test_few_events(tmp_path, events):
    found, file = read(written(tmp_path / "t", events))
    assert len(found) == len(events)
    assert not file.damage.truncated


def test_a_name_may_hold_what_looks_like_the_end(tmp_path):
    names = ['a}, {"ph": "X"}], "x": 1}', "]}", '\\"ph\\":', "}, {", '"traceEvents": [']
    events, file = read(written(tmp_path / "t", [kernel(0, 1, name) for name in names]), 200)
    assert [event.name for event in events] == names
    assert file.damage.lost_bytes == 0
    assert not file.damage.truncated


@pytest.mark.parametrize("keep", [0.3, 0.5, 0.77, 0.95])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_of_a_truncated_file_the_whole_events_are_read(tmp_path, keep, pack):
    content = pack(TEXT)
    events, file = read(put(tmp_path / "t", content[: int(len(content) * keep)]))
    assert file.damage.truncated
    assert 0 < len(events) < len(EVENTS)
    assert [event.name for event in events] == [event["name"] for event in EVENTS[: len(events)]]


DAMAGED = {
    "control character": (b"aten::mm", b"aten\x01::mm", {"control character": 40}, 0),
    "new line in a string": (b"aten::mm", b"aten\n::mm", {"control character": 40}, 0),
    "not UTF-8": (b"aten::mm", b"aten\xff::mm", {"utf-8": 40}, 0),
    "back slash": (b"aten::mm", b"C:\\aten", {"escape": 40}, 0),
    "quotes": (b"aten::mm", b'ate"n', {}, 40),
    "not a number": (b'"dur": 60,', b'"dur": nan,', {"number": 40}, 0),
    "infinite": (b'"device": 0,', b'"device": -Infinity,', {"number": 80}, 0),
    "a word": (b'"dur": 60,', b'"dur": sixty,', {}, 40),
}


@pytest.mark.parametrize(("good", "bad", "mended", "lost"), DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("piece_bytes", [2000, module.PIECE_BYTES])
def test_damage_inside_events_is_mended_or_lost_and_counted(tmp_path, good, bad, mended, lost, piece_bytes):
    events, file = read(put(tmp_path / "t", TEXT.replace(good, bad)), piece_bytes)
    assert len(events) == len(EVENTS) - lost
    assert file.damage.mended == mended
    assert (file.damage.events_in_file - file.damage.events_read, file.damage.lost_bytes > 0) == (lost, lost > 0)


def test_a_damaged_file_gives_the_times_of_what_is_left(tmp_path):
    whole = read_trace(put(tmp_path / "whole", TEXT))
    bad = read_trace(put(tmp_path / "bad", TEXT.replace(b"aten::mm", b'at"en')))
    assert exposure(bad.device) == exposure(whole.device)
    assert not bad.verdict.sound


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it has no traceEvents"),
        (b"{}", "it has no traceEvents"),
        (b"<html>no</html>", "it does not begin as one"),
        (b'{"traceEvents": [1, 2, 3]}', "none of its events can be read"),
        (b"[" * 10**6, "none of its events can be read"),
        (b'{"traceEvents": [' + b'{"a":' * 10**5, "none of its events can be read"),
        (b'{"traceEvents": [{"name": "' + b"a" * 10**6, "none of its events can be read"),
    ],
)
def test_what_is_no_trace_is_one_error(tmp_path, content, why):
    with pytest.raises(UserError, match=f"not a Kineto trace: {why}"):
        read_trace(put(tmp_path / "t", content))


def test_a_missing_file_is_one_error(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_trace(tmp_path / "none.json")


def test_an_endless_event_is_one_error_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", 4 * 2**20)
    path = put(tmp_path / "t", b'{"traceEvents": [{"name": "' + b"a" * (20 * 2**20))
    tracemalloc.start()
    with pytest.raises(UserError, match="one event is longer than"):
        read(path, 2**20)
    assert tracemalloc.get_traced_memory()[1] < 24 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("begin", [b'{"traceEvents": [', b'{"a": "'])
def test_a_gzip_bomb_is_one_error_in_bounded_memory(tmp_path, begin, monkeypatch):
    monkeypatch.setattr(module, "_LARGE_BYTES", 2**23)
    monkeypatch.setattr(module, "_MOST_BYTES", 2**30)
    packer = zlib.compressobj(9, wbits=31)
    content = packer.compress(begin) + packer.compress(b" " * 2**28) + packer.flush()
    assert len(content) < 2**19
    tracemalloc.start()
    with pytest.raises(UserError, match="bytes grow to more than"):
        read(put(tmp_path / "t", content), 2**20)
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()


SMALL = json.dumps(document([*STEP, *STEP])).encode()


def outcome(content):
    """The times that a file gives and whether it is sound; None for an error."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            trace = read_trace(put(Path(folder) / "t.json", content))
        except UserError:
            return None
    return exposure(trace.device), trace.verdict.sound


@settings(parent=bounded, max_examples=150)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=0, max_size=4), st.integers(0, 6)), min_size=1, max_size=3)
)
def test_no_damage_is_a_crash(changes):
    content = SMALL
    for place, put_in, taken in changes:
        at = int(place * len(content))
        content = content[:at] + put_in + content[at + taken :]
    outcome(content)


@settings(parent=bounded, max_examples=150)
@given(st.floats(0, 1), st.sampled_from([b'"', b"\x01", b"\xff", b"\x00", b"\xc3", b"{", b"nan"]))
def test_no_wrong_number_is_silent_where_something_is_put_in(place, put_in):
    at = int(place * len(SMALL))
    found = outcome(SMALL[:at] + put_in + SMALL[at:])
    before = SMALL[:at].replace(b'\\"', b"")
    if put_in in (b"{", b"nan") and before.count(b'"') % 2:
        return  # a character of a name or a key: a different but whole file
    assert found is None or found == outcome(SMALL) or not found[1]


@settings(parent=bounded, max_examples=60)
@given(st.floats(0, 1, exclude_max=True))
def test_no_truncation_is_silent(place):
    content = SMALL[: int(place * len(SMALL))]
    found = outcome(content)
    assert found is None or not found[1]
