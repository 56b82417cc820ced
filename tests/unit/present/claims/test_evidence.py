"""Records by place; what they may say of a claim; repeats as one."""

from __future__ import annotations

import pytest

from scaling_study.present.claims.evidence import UntestableError, by_place, over_repeats
from scaling_study.spec import Executor, Place
from scaling_study.spec.claims import Expected, ValueCheck
from tests.unit.present.claims import made

CLAIM = made.claim(ValueCheck(sweep="data_parallel", of="mfu", expect=Expected(above=0)))
METHOD = made.claim(*CLAIM.checks, about="method")
CPU = {"hardware": "cpu", "provenance": "measured", "platform": "local"}


def test_records_are_sorted_by_where_they_come_from() -> None:
    frame = made.frame(
        made.row(),
        made.row(provenance="measured", platform="slurm-h100"),
        made.row(**CPU),
        made.row(provenance="reported", platform=None),
    )
    found = by_place([("one", frame), ("two", made.frame(made.row())), ("one", made.frame(made.row(gpus=16)))],
                     {"local": Executor.LOCAL, "slurm-h100": Executor.SLURM})  # fmt: skip
    assert {place: {sweep: part.height for sweep, part in own.items()} for place, own in found.items()} == {
        Place.CLUSTER: {"one": 1},
        Place.LOCAL: {"one": 1},
        Place.MODEL: {"one": 2, "two": 1},
    }


def test_a_layout_stands_for_its_fastest_micro_batch() -> None:
    rows = [made.row(micro_batch=size, words_per_second=rate) for size, rate in ((1, 5.0), (2, 7.0), (4, 6.0))]
    found = made.evidence(data_parallel=made.frame(*rows)).rows(CLAIM, "data_parallel", Place.MODEL)
    assert found["micro_batch"].to_list() == [2]


def test_derived_columns() -> None:
    row = made.row(tp=2, pp=4, gpus=16, power_w_per_gpu=500.0, exposed_communication_s=1.0, communication_s=4.0)
    found = made.evidence(x=made.frame(row)).rows(CLAIM, "x", Place.MODEL).row(0, named=True)
    assert (found["model_parallel"], found["total_power_w"], found["exposed_of_communication"]) == (8, 8000.0, 0.25)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "there are no records of data_parallel"),
        (
            [made.row(**CPU), made.row(**CPU, gpus=16, oversubscribed=True)],
            "these runs are of cpu, 1 of 2 oversubscribed",
        ),
        ([made.row(oversubscribed=True)], "h100, 1 of 1 oversubscribed"),
        ([made.row(outcome="out_of_memory")], "no run of data_parallel ended well"),
    ],
)
def test_what_says_nothing_of_hardware(rows: list[dict], reason: str) -> None:
    with pytest.raises(UntestableError, match=reason):
        made.evidence(data_parallel=made.frame(*rows)).rows(CLAIM, "data_parallel", Place.MODEL)


def test_a_cpu_may_say_something_of_a_method() -> None:
    frame = made.frame(made.row(**CPU, oversubscribed=True))
    assert made.evidence(Place.LOCAL, data_parallel=frame).rows(METHOD, "data_parallel", Place.LOCAL).height == 1


def test_repeats_are_averaged_and_other_runs_are_not() -> None:
    rows = [made.row(repeat=number, words_per_second=rate) for number, rate in ((0, 10.0), (1, 20.0))]
    found = over_repeats(made.frame(*rows, made.row(gpus=16, words_per_second=3.0)))
    assert sorted(found["words_per_second"]) == [3.0, 15.0]
    assert found["repeat"].to_list() == [0, 0]


def test_an_unknown_table_is_not_there_yet() -> None:
    with pytest.raises(UntestableError, match="there is no table wsf-99 yet"):
        made.evidence().table("wsf-99")
    assert made.evidence().table("hst-table1").height == 12
