"""From checks to verdicts, at every place."""

from __future__ import annotations

import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.present.claims import Result, judge
from scaling_study.present.claims.verdicts import overall
from scaling_study.spec import Claim, Claims, Place, Verdict
from scaling_study.spec.claims import (
    BusyCheck,
    ChangeCheck,
    CountCheck,
    Expected,
    GainCheck,
    TrendCheck,
    ValueCheck,
)
from tests.unit.present.claims import made

HOLDS, SHAPE, FAILS, UNTESTABLE = Verdict.HOLDS, Verdict.SHAPE, Verdict.FAILS, Verdict.UNTESTABLE
FALL = ChangeCheck(
    sweep="data_parallel", of="words_per_second", since={"gpus": 8}, at={"gpus": 16},
    expect=Expected(value=-0.4, within=0.05), shape=Expected(below=0), unit="%",
)  # fmt: skip


def result(verdict: Verdict) -> Result:
    return Result(what="w", value=1.0, expected="e", unit="", verdict=verdict)


def only(claim: Claim, evidence, place: Place = Place.MODEL):
    judged = judge(Claims(title="t", claims={"it": claim}), evidence)
    return next(one for one in judged if one.place is place)


def pair(before: float, after: float) -> pl.DataFrame:
    return made.frame(made.row(gpus=8, words_per_second=before), made.row(gpus=16, words_per_second=after))


@pytest.mark.parametrize(
    ("verdicts", "shaped", "expected"),
    [
        ([HOLDS, HOLDS], [False, False], HOLDS),
        ([HOLDS, FAILS], [False, False], FAILS),
        ([FAILS, UNTESTABLE], [False, False], FAILS),
        ([HOLDS, UNTESTABLE], [False, False], UNTESTABLE),
        ([SHAPE, HOLDS], [True, False], SHAPE),
        ([SHAPE, FAILS], [True, False], SHAPE),
        ([SHAPE, FAILS], [True, True], FAILS),
        ([HOLDS, FAILS], [True, False], SHAPE),
        ([SHAPE, UNTESTABLE], [True, False], UNTESTABLE),
        ([FAILS, UNTESTABLE], [True, True], FAILS),
    ],
)
def test_the_verdict_of_all_checks(verdicts: list[Verdict], shaped: list[bool], expected: Verdict) -> None:
    assert overall([result(one) for one in verdicts], shaped) is expected


@pytest.mark.parametrize(("after", "verdict"), [(58.0, HOLDS), (90.0, SHAPE), (101.0, FAILS)])
def test_an_exact_claim_holds_in_shape_or_not(after: float, verdict: Verdict) -> None:
    one = only(made.claim(FALL, kind="exact"), made.evidence(data_parallel=pair(100.0, after)))
    assert one.verdict is verdict
    assert one.value == pytest.approx(after / 100 - 1)
    assert one.expected == "\N{MINUS SIGN}40% \N{PLUS-MINUS SIGN} 5 points"
    assert len(one.checks[0].runs) == 2


def test_a_claim_has_a_verdict_at_every_place() -> None:
    claims = Claims(title="t", claims={"it": made.claim(FALL, kind="exact")})
    judged = judge(claims, made.evidence(data_parallel=pair(100.0, 60.0)))
    assert [(one.place, one.provenance.value, one.verdict) for one in judged] == [
        (Place.CLUSTER, "measured", UNTESTABLE),
        (Place.LOCAL, "measured", UNTESTABLE),
        (Place.MODEL, "predicted", HOLDS),
    ]
    assert judged[0].reason == "there are no records of data_parallel"


def test_the_interval_of_a_predicted_change_is_that_of_the_constant_that_counts_most() -> None:
    columns = {"sweep": "data_parallel", "metric": "words_per_second", "since": "gpus 8", "where": "gpus 16"}
    hangs = pl.DataFrame(
        [
            {**columns, "meaning": "latency", "value": 1.0, "low": 0.5, "high": 2.0, "change_at_low": -0.1,
             "change_at_high": -0.3, "needed": 4.0},
            {**columns, "meaning": "rate", "value": 1.0, "low": 0.9, "high": 1.1, "change_at_low": -0.2,
             "change_at_high": -0.21, "needed": None},
        ]
    )  # fmt: skip
    one = only(made.claim(FALL, kind="exact"), made.evidence(sensitivity=hangs, data_parallel=pair(100.0, 80.0)))
    assert one.interval == (-0.3, -0.1)
    assert one.checks[0].needed == ("latency: 4 in place of 1 (0.5 to 2)",)
    met = only(made.claim(FALL, kind="exact"), made.evidence(sensitivity=hangs, data_parallel=pair(100.0, 60.0)))
    assert met.checks[0].needed == ()


def test_the_value_shown_is_of_the_check_that_decides() -> None:
    checks = [ValueCheck(sweep="x", of="mfu", expect=Expected(above=bound)) for bound in (0.1, 0.9)]
    one = only(made.claim(*checks), made.evidence(x=made.frame(made.row(mfu=0.5))))
    assert (one.verdict, one.expected) == (FAILS, "> 0.9")


def test_each_case_must_hold() -> None:
    check = ValueCheck(sweep="x", of="mfu", each={"hardware": ["h100", "a100"]}, expect=Expected(above=0.4))
    frame = made.frame(made.row(mfu=0.5), made.row(mfu=0.3, hardware="a100"))
    one = only(made.claim(check), made.evidence(x=frame))
    assert [found.verdict for found in one.checks] == [HOLDS, FAILS]
    assert one.verdict is FAILS
    assert one.measured.endswith("(A100)")


def test_counts_against_a_baseline_and_another_sweep() -> None:
    def layouts(*rates: float) -> pl.DataFrame:
        return made.frame(*(made.row(tp=2**n, words_per_second=rate) for n, rate in enumerate(rates)))

    check = CountCheck(
        sweep="x", at={"model_parallel": Expected(above=1)}, than={"tp": 1}, more=["words_per_second"], beyond="y",
        expect=Expected(above=0),
    )  # fmt: skip
    one = only(made.claim(check), made.evidence(x=layouts(5.0, 6.0, 7.0), y=layouts(5.0, 6.0, 4.0)))
    assert (one.value, one.verdict) == (1, HOLDS)
    assert len(one.checks[0].runs) == 2


def test_pacing_is_judged_when_its_records_are_there() -> None:
    frame = made.frame(
        *(
            made.row(gpus=gpus, pacing=pacing, repeat=repeat, words_per_second=rate + repeat)
            for gpus, paced in ((32, 99.0), (64, 101.0), (128, 104.0))
            for pacing, rate in (("off", 100.0), ("adaptive", paced))
            for repeat in (0, 1)
        )
    )
    check = GainCheck(
        sweep="coordination", of="words_per_second", along="nodes", since={"pacing": "off"}, at={"pacing": "adaptive"},
        direction="rising", expect=Expected(above=0),
    )  # fmt: skip
    one = only(made.claim(check), made.evidence(coordination=frame))
    assert one.verdict is HOLDS
    assert one.value == pytest.approx((101.5 - 99.5) / 100.5)


def test_closed_forms_are_no_measurements() -> None:
    claim = made.claim(BusyCheck(kernel_us=3, every_us=10, expect=Expected(below=0.5)))
    assert only(claim, made.evidence()).value == pytest.approx(0.3)
    assert only(claim, made.evidence(), Place.LOCAL).reason == "it is about a closed form, not about runs"


def test_extrapolated_predictions_are_marked() -> None:
    check = ValueCheck(sweep="x", of="mfu", expect=Expected(above=0))
    for extrapolated in (True, False):
        frame = made.frame(made.row(mfu=0.3, extrapolated=extrapolated))
        assert only(made.claim(check), made.evidence(x=frame)).extrapolated is extrapolated


def test_a_column_that_no_record_has_is_an_error_with_or_without_records() -> None:
    check = TrendCheck(sweep="x", of="mfu", along="gpu", direction="rising", expect=Expected(above=0))
    with pytest.raises(UserError, match=r"claim it: records have no column 'gpu'\. Did you mean 'gpus'"):
        only(made.claim(check), made.evidence())
