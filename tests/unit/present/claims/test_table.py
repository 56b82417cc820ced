"""Verdicts as a table: a row a claim and place, findings where something does not come out."""

from __future__ import annotations

from scaling_study.claims import judged_by
from scaling_study.present.claims import claims_table, finding, judge
from scaling_study.spec import Claims, Place
from scaling_study.spec.claims import Expected, ValueCheck
from tests.unit.present.claims import made
from tests.unit.samples import CONFIG, ROOT


def test_a_row_a_claim_and_place() -> None:
    judged = judged_by(CONFIG, [ROOT / "results/cached"])
    table = claims_table(judged)
    assert table.height == 3 * len(CONFIG.claims.claims)
    assert table.select("id", "place").is_unique().all()
    drop = table.filter(id="dp-throughput-drop", place="model").row(0, named=True)
    assert (drop["value"], drop["verdict"]) == ("\N{MINUS SIGN}16.01%", "holds in shape only")
    assert "which would need slowdown of computation" in drop["finding"]
    assert set(table.filter(place="cluster")["verdict"]) == {"not testable here"}
    assert table.filter(id="hardware-table", provenance="reported")["place"].to_list() == ["sources"]


def test_what_holds_is_no_finding() -> None:
    check = ValueCheck(sweep="x", of="mfu", at={"gpus": 8}, expect=Expected(above=0.4), unit="%")
    evidence = {value: made.evidence(x=made.frame(made.row(mfu=value))) for value in (0.5, 0.3)}
    claims = Claims(title="t", claims={"it": made.claim(check)})
    found = {
        value: next(one for one in judge(claims, own) if one.place is Place.MODEL) for value, own in evidence.items()
    }
    assert finding(found[0.5]) == ""
    assert finding(found[0.3]) == "MFU at 8 GPUs: 30%, expected > 40%"
