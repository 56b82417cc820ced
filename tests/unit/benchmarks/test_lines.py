"""A line says what became of its requirement, and a peer that cannot be had is named with the reason."""

import io
import json

import pytest
from benchmarks.lines import Line, Verdict, limited, report, show, write
from benchmarks.ratios import Ratio, Spread
from rich.console import Console

RATE = Spread(1234.5, 1200.0, 1300.0)


def _line(ratio=None, required=1.0, **fields):
    return Line(
        benchmark="b", what="w", unit="tokens/s", ours=RATE, peer="peer 1.0", ratio=ratio, required=required, **fields
    )


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (Ratio(1.1, 1.05, 1.2), Verdict.MET),
        (Ratio(1.0, 0.9, 1.1), Verdict.MET),
        (Ratio(0.99, 0.9, 1.1), Verdict.WITHIN_NOISE),
        (Ratio(0.9, 0.85, 0.95), Verdict.MISSED),
        (None, Verdict.NOT_COMPARED),
    ],
)
def test_verdict(ratio, verdict):
    assert _line(ratio).verdict is verdict
    assert report([_line(ratio)], {}, 1).missed is (verdict is Verdict.MISSED)


def test_what_nothing_is_required_of_is_never_missed():
    assert _line(Ratio(0.5, 0.4, 0.6), required=None).verdict is Verdict.NO_REQUIREMENT


def test_a_peer_that_cannot_be_had_is_named_with_the_reason():
    text = io.StringIO()
    show(report([_line(reason="cannot be had here (no module)")], {}, 1), Console(file=text, width=200))
    assert "not compared" in text.getvalue()
    assert "peer 1.0: cannot be had here (no module)" in text.getvalue()


def test_the_file_has_every_line_with_its_verdict(tmp_path):
    path = tmp_path / "results/bench.json"
    write(report([_line(Ratio(1.1, 1.05, 1.2)), _line()], {"torch": "2"}, 3), path)
    content = json.loads(path.read_text())
    assert [line["verdict"] for line in content["lines"]] == ["met", "not compared"]
    assert content["lines"][0]["ours"] == {"median": 1234.5, "low": 1200.0, "high": 1300.0}
    assert content["versions"]["torch"] == "2"
    assert content["cores"] >= 1


def test_what_stays_below_a_limit_has_a_ratio_of_more_than_one():
    line = limited("b", "time", "s", 60.0, [20.0, 30.0, 15.0])
    assert line.ratio == Ratio(3.0, 2.0, 4.0)
    assert line.verdict is Verdict.MET
    assert limited("b", "time", "s", 6.0, [12.0]).verdict is Verdict.MISSED
    assert limited("b", "time", "s", 6.0, [5.0, 6.5, 7.0]).verdict is Verdict.WITHIN_NOISE


def test_what_must_reach_a_limit_has_a_ratio_of_more_than_one():
    assert limited("b", "rate", "/s", 20.0, [40.0], least=True).ratio == Ratio(2.0, 2.0, 2.0)
    assert limited("b", "rate", "/s", 20.0, [10.0], least=True).verdict is Verdict.MISSED
