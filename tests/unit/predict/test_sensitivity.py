"""What a change hangs on: the ends of intervals, and the value that gives the printed change."""

import msgspec
import pytest

from scaling_study.predict.ours import setup_of_run
from scaling_study.predict.predictions import step_times
from scaling_study.predict.sensitivity import REACH, sensitivity
from scaling_study.spec import expand
from tests.unit.predict.setups import LIBRARY
from tests.unit.samples import CONFIG

STUDY, CATALOGUE = CONFIG.study("paper"), CONFIG.catalogue
KNOWN = LIBRARY.parameter_set("h100")


@pytest.fixture(scope="module")
def table():
    return sensitivity(STUDY, CATALOGUE, LIBRARY)


@pytest.fixture(scope="module")
def fall(table):
    """The rows of the fall of throughput with the number of GPUs."""
    return table.filter(sweep="data_parallel")


def change(**moved):
    """Of throughput per GPU from 128 to 2,048 GPUs at a constant local batch: the inverse of the ratio of times."""
    constants = msgspec.structs.replace(KNOWN.values(), **moved)
    runs = [run for run in expand(STUDY, "data_parallel", CATALOGUE) if run.ranks in (128, 2048)]
    setups = [setup_of_run(run, CATALOGUE.models[run.model], CATALOGUE.hardware["h100"], LIBRARY) for run in runs]
    before, after = step_times(setups, lambda _: constants)
    return before / after - 1


def test_the_change_is_that_of_the_two_runs(fall):
    assert fall["predicted_change"].unique().to_list() == [pytest.approx(change())]
    assert fall["reported_change"].unique().to_list() == [-0.3722]


def test_every_constant_is_moved_through_its_interval(fall):
    assert set(fall["constant"]) == set(KNOWN.constants)
    for name in ("overlap_slowdown", "network_latency", "matmul_rate"):
        row = fall.filter(constant=name).row(0, named=True)
        estimate = KNOWN.constants[name]
        assert (row["low"], row["high"]) == (estimate.low, estimate.high)
        assert row["change_at_low"] == pytest.approx(change(**{name: estimate.low}))
        assert row["change_at_high"] == pytest.approx(change(**{name: estimate.high}))


def test_those_that_move_it_most_come_first(fall):
    spans = (fall["change_at_high"] - fall["change_at_low"]).abs().to_list()
    assert spans == sorted(spans, reverse=True)


def test_the_needed_value_gives_the_printed_change(fall):
    found = fall.drop_nulls("needed")
    assert found.height >= 2
    for row in found.iter_rows(named=True):
        assert change(**{row["constant"]: row["needed"]}) == pytest.approx(-0.3722, abs=1e-6)
        assert 1 / REACH <= row["needed"] / row["value"] <= REACH


def test_what_no_value_reaches_is_null(fall):
    row = fall.filter(constant="matmul_rate").row(0, named=True)
    assert row["needed"] is None
    ends = [change(matmul_rate=row["value"] * factor) for factor in (1 / REACH, REACH)]
    assert min(ends) > -0.3722


def test_a_change_of_the_fastest_layouts_takes_the_fastest_on_both_sides(table):
    row = table.filter(sweep="fixed_batch").row(0, named=True)
    assert (row["since"], row["where"]) == ("nodes 16", "nodes 32")
    assert 0 < row["predicted_change"] < 1
