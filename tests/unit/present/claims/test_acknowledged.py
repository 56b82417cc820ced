"""Known verdicts are a file; what differs from it is named."""

from __future__ import annotations

import pytest

from scaling_study.errors import UserError
from scaling_study.present.claims import acknowledge, changes, judge, read_acknowledged
from scaling_study.spec import Claims, Place, Verdict
from scaling_study.spec.claims import BusyCheck, Expected
from tests.unit.present.claims import made

CHECK = BusyCheck(kernel_us=3, every_us=10, expect=Expected(below=0.5))
JUDGED = judge(Claims(title="t", claims={"one": made.claim(CHECK)}), made.evidence())


def test_what_is_written_is_read(tmp_path) -> None:
    path = tmp_path / "verdicts.csv"
    assert read_acknowledged(path) == {}
    acknowledge(path, JUDGED)
    known = read_acknowledged(path)
    assert known["one", Place.MODEL] is Verdict.HOLDS
    assert changes(JUDGED, known) == []


def test_changes_are_named(tmp_path) -> None:
    known = {
        ("one", Place.CLUSTER): Verdict.UNTESTABLE,
        ("one", Place.MODEL): Verdict.FAILS,
        ("two", Place.MODEL): Verdict.HOLDS,
    }
    assert [str(one) for one in changes(JUDGED, known)] == [
        "one (local): not testable here, was not there",
        "one (model): holds, was does not hold",
        "two (model): not there, was holds",
    ]


@pytest.mark.parametrize("line", ["one,model,maybe", "one,moon,holds", "one"])
def test_a_damaged_file_is_one_error(tmp_path, line: str) -> None:
    path = tmp_path / "verdicts.csv"
    path.write_text(f"id,place,verdict\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"verdicts.csv: line 2 is not valid.*--acknowledge"):
        read_acknowledged(path)
