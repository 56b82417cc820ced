"""How long runs are expected to take: what is predicted of them, times their steps; nothing where nothing is known."""

import msgspec
import pytest

from scaling_study.predict.forecasts import forecast
from scaling_study.predict.library import Library
from scaling_study.spec import Catalogue, CollectiveRun, expand, run_id
from scaling_study.submit.expected import expected_seconds
from tests.unit.samples import CONFIG, training_run

CATALOGUE = CONFIG.catalogue
RUNS = [run for run in expand(CONFIG.study("paper"), "data_parallel", CATALOGUE) if run.nodes <= 4]
CALLS = expand(CONFIG.study("paper"), "collectives", CATALOGUE)[:2]
UNKNOWN = training_run(model="llama2-7b", hardware="cpu", dp=1, nodes=1)


def test_a_run_takes_its_predicted_iteration_times_all_its_iterations():
    found = expected_seconds(RUNS, CATALOGUE, CONFIG.root)
    forecasts = forecast(RUNS, CATALOGUE, Library(CONFIG.root), timelines=False)
    assert len(found) == len(RUNS) == 3
    for one in forecasts:
        assert found[run_id(one.run)] == pytest.approx((60 + 3) * one.metrics["iteration_s"])


def test_twice_the_iterations_take_twice_as_long():
    protocol = msgspec.structs.replace(RUNS[0].protocol, iterations=120, profiled_iterations=6)
    longer = msgspec.structs.replace(RUNS[0], protocol=protocol)
    found = expected_seconds([RUNS[0], longer], CATALOGUE, CONFIG.root)
    assert found[run_id(longer)] == pytest.approx(2 * found[run_id(RUNS[0])])


def test_nothing_is_expected_of_calls_nor_of_unknown_parts():
    assert all(isinstance(run, CollectiveRun) for run in CALLS)
    found = expected_seconds([*CALLS, UNKNOWN, RUNS[0]], CATALOGUE, CONFIG.root)
    assert list(found) == [run_id(RUNS[0])]
    assert expected_seconds([*CALLS, UNKNOWN], CATALOGUE, CONFIG.root) == {}
    assert expected_seconds([], CATALOGUE, CONFIG.root) == {}


def test_without_the_tables_of_the_model_nothing_is_expected(tmp_path):
    assert expected_seconds(RUNS, Catalogue(models={}, hardware={}), tmp_path) == {}
