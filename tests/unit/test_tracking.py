"""Work that says how far it has come: each unit once, and no more than was announced."""

import gzip
import json

import pytest

from scaling_study.predict.forecasts import forecast
from scaling_study.predict.library import Library
from scaling_study.spec import expand
from scaling_study.timeline import read_trace
from scaling_study.tracking import untracked
from tests.unit.samples import CONFIG


class Heard:
    """Counts what it is told of, and what was announced."""

    def __init__(self):
        self.totals, self.done = [], 0

    def track(self, items, total):
        self.totals.append(total)
        for item in items:
            yield item
            self.done += 1

    def advance(self, amount):
        self.done += amount


def test_nobody_looks():
    assert list(untracked(iter("abc"), 3)) == ["a", "b", "c"]


def test_every_predicted_run_is_told_of():
    runs, heard = expand(CONFIG.study("paper"), "context_length", CONFIG.catalogue), Heard()
    found = forecast(runs, CONFIG.catalogue, Library(CONFIG.root), track=heard.track)
    assert [one.run for one in found] == runs
    assert heard.totals == [heard.done] == [len(runs)]


@pytest.mark.parametrize("packed", [False, True])
def test_the_bytes_of_a_trace_are_told_of(tmp_path, packed):
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": i, "dur": 1, "args": {"stream": 7}}
        for i in range(30_000)
    ]
    path, content = tmp_path / "trace.json", json.dumps({"traceEvents": events}).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    heard = Heard()
    assert read_trace(path, advance=heard.advance).device.height == len(events)
    assert heard.done == path.stat().st_size
