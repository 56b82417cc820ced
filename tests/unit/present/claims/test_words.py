"""Checks and numbers in words."""

from __future__ import annotations

import pytest

from scaling_study.present.claims.words import asked_of, between, expected, say, shown, what
from scaling_study.spec.claims import BusyCheck, ChangeCheck, Expected, TransferCheck, TrendCheck
from tests.unit.samples import CONFIG

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (-0.16006, "%", f"{MINUS}16.01%"),
        (0.002615, "points", "0.2615 points"),
        (26.667e-6, "us", "26.67 us"),
        (665.26, "W", "665.3 W"),
        (0.99961, "", "0.9996"),
        (0, "layouts", "0 layouts"),
    ],
)
def test_numbers(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_what_is_expected() -> None:
    assert expected(Expected(value=-0.3722, within=0.05), "%") == f"{MINUS}37.22% ± 5 points"
    assert expected(Expected(value=658, within_share=0.05), "W") == "658 W ± 5%"
    assert expected(Expected(at_least=2, at_most=4), "") == "≥ 2 and ≤ 4"
    assert between((-0.2, -0.1), "%") == f"{MINUS}20% to {MINUS}10%"
    assert between(None, "%") == ""


def test_conditions() -> None:
    said = say({"gpus": 2048, "nodes": 1, "tp": [2, 4], "message_bytes": 2**30, "model_parallel": Expected(above=8)})
    assert said == "2,048 GPUs, 1 node, tp 2 or 4, 1 GiB, tp*pp > 8"


def test_directions_are_said_in_words() -> None:
    fields = {"sweep": "x", "of": "mfu"}
    trend = TrendCheck(**fields, along="gpus", direction="falling", expect=Expected(below=0))
    assert asked_of(trend) == "falling at every step"
    against = TrendCheck(**fields, along="gpus", direction="rising", expect=Expected(below=0))
    assert asked_of(against) == "not rising at every step"
    assert asked_of(ChangeCheck(**fields, expect=Expected(above=0))) == "a rise"


def test_what_checks_measure() -> None:
    fall = Expected(below=0)
    ends = {"since": {"gpus": 8}, "at": {"gpus": 64}}
    change = ChangeCheck(sweep="x", of="mfu", **ends, where={"hardware": "h100"}, expect=fall)
    assert what(change, {"model": "m"}) == "change of MFU from 8 GPUs to 64 GPUs (H100, m)"
    transfer = TransferCheck(size_bytes=8e6, gb_per_s=300.0, expect=fall)
    assert what(transfer, {}) == "time of 8 MB over 300 GB/s"
    busy = BusyCheck(kernel_us=3.0, every_us=10.0, expect=fall)
    assert what(busy, {}) == "share of the time in which a kernel of 3 us runs, one every 10 us"


def test_every_check_of_the_study_has_words() -> None:
    for claim in CONFIG.claims.claims.values():
        for check in claim.checks:
            assert "None" not in what(check, {})
            assert asked_of(check)
