"""What a source prints stands at the place of a run, and nothing else of the run does."""

import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.records import SCHEMA, with_reported
from scaling_study.records.schema import COLLECTIVE_METRICS, TRAINING_METRICS
from scaling_study.spec import ReportedPoint, Study, Sweep

RATE = "words_per_second"


def study(*points):
    return Study(name="it", title="t", platform="predict", sweeps={"one": Sweep(title="o")}, reported=points)


def point(**fields):
    return ReportedPoint(**{"sweep": "one", "where": {"gpus": 8}, "metric": "mfu", "source": "page 1", **fields})


def records(*rows):
    base = dict.fromkeys(SCHEMA) | {"provenance": "predicted", "outcome": "ok", "mfu": 0.5, RATE: 100.0}
    return pl.DataFrame([base | row for row in rows], schema=SCHEMA)


RECORDS = records(
    {"run_id": "a", "gpus": 8, "tp": 1, RATE: 100.0},
    {"run_id": "b", "gpus": 8, "tp": 2, RATE: 120.0},
    {"run_id": "c", "gpus": 16, "tp": 1, RATE: 150.0},
)


def reported(*points, frame=RECORDS):
    return with_reported(frame, study(*points), "one").filter(provenance="reported")


def test_a_number_stands_at_the_fastest_run_of_its_place():
    found = reported(point(value=0.4)).row(0, named=True)
    assert (found["run_id"], found["gpus"], found["tp"], found["mfu"], found["reason"]) == ("b", 8, 2, 0.4, "page 1")
    assert [name for name in (*TRAINING_METRICS, *COLLECTIVE_METRICS) if found[name] is not None] == ["mfu"]


def test_a_change_counts_from_our_own_number():
    found = reported(point(metric=RATE, where={"gpus": 16}, since={"gpus": 8}, change=-0.25)).row(0, named=True)
    assert found[RATE] == pytest.approx(0.75 * 120)
    assert found["reason"] == "page 1, a change from our own number"


def test_numbers_of_one_place_are_one_record():
    found = reported(point(value=0.4), point(metric="power_w_per_gpu", value=650, source="page 2"))
    assert found.select("mfu", "power_w_per_gpu", "reason").rows() == [(0.4, 650.0, "page 1; page 2")]


def test_our_own_records_stay_as_they_are():
    assert with_reported(RECORDS, study(point(value=0.4)), "one").head(3).equals(RECORDS)
    assert with_reported(RECORDS, study(), "one").equals(RECORDS)


@pytest.mark.parametrize(
    "left_out",
    [
        point(value=0.4, where={"gpus": 99}),
        point(value=0.4, bound="below"),
        point(metric=RATE, since={"gpus": 99}, change=0.1),
    ],
)
def test_what_has_no_place_or_is_no_number_is_left_out(left_out):
    assert reported(left_out).is_empty()


def test_another_sweep_has_none_of_it():
    frame = with_reported(RECORDS, study(point(value=0.4)), "two")
    assert frame.equals(RECORDS)


def test_an_unknown_column_is_named():
    with pytest.raises(UserError, match="study it: a reported point names the column 'gpu'"):
        reported(point(value=0.4, where={"gpu": 8}))
