"""Fitting, and how well the committed parameter sets do on the committed rows."""

import msgspec
import numpy as np
import pytest

from scaling_study.predict.batch import batch_of
from scaling_study.predict.calibration import Run, fit_runs, memory_accuracy, predicted, read_runs
from scaling_study.predict.fast import iteration
from scaling_study.predict.fitting import Measured, constants_of, fit, source_weights, unknowns
from scaling_study.predict.parameters import KNOBS, prior
from scaling_study.predict.predictions import step_times
from scaling_study.predict.scores import choice_loss, score
from tests.unit.predict.setups import LIBRARY, setup

RUNS = read_runs(LIBRARY.folder / "runs.csv", LIBRARY)
FITTED_MAPE = {
    "calculon_korthikanti_tab5": 4,
    "hagemann2023_layouts": 7,
    "mosaic_llmfoundry": 5,
    "torchtitan_asynctp_202506": 5,
    "torchtitan_docs_2024": 5,
    "torchtitan_h100_202412": 5,
    "vtrain_ground_truth_multi": 9,
    "vtrain_ground_truth_single": 10,
}


def committed(family):
    return LIBRARY.parameter_set(family).values()


@pytest.mark.parametrize(("source", "limit"), FITTED_MAPE.items())
def test_committed_constants_meet_the_rows_that_they_were_fitted_on(source, limit):
    found = score(*predicted([run for run in RUNS if run.source == source], committed))
    assert found.mape < limit


def test_priors_alone_are_no_worse_than_a_published_model():
    """Calculon's 16% are reached with one scale a GPU fitted; our priors have seen no row."""
    errors = [score(*predicted([run for run in RUNS if run.source == source], prior)).mape for source in FITTED_MAPE]
    assert np.mean(errors) < 12


def test_layouts_are_chosen_well_by_constants_that_are_not_fitted():
    mine = [run for run in RUNS if run.source == "hagemann2023_layouts" and run.seconds is not None]
    times, measured = predicted(mine, prior)
    loss = choice_loss([run.group for run in mine], times, measured)
    assert loss is not None
    assert loss < 0.04


def test_memory_tells_what_fits():
    accuracy = memory_accuracy([run for run in RUNS if run.source == "hagemann2023_layouts"])
    assert accuracy is not None
    assert accuracy >= 0.9


@pytest.mark.parametrize("family", ["a100", "h100", "h200", "v100"])
def test_a_parameter_set_is_whole_and_inside_its_intervals(family):
    found = LIBRARY.parameter_set(family)
    assert set(found.constants) == set(KNOBS)
    assert all(estimate.low <= estimate.value <= estimate.high for estimate in found.constants.values())
    assert found.error_low < 1 < found.error_high
    assert found.extrapolated == (not found.fitted_on)


def test_a_fit_finds_the_constants_that_made_its_rows():
    true = msgspec.structs.replace(prior("a100"), matmul_rate=0.6, memory_rate=0.7)
    setups = [
        setup(dp=dp, micro_batch=micro, global_batch=dp * micro * 2, sequence_length=length)
        for dp in (1, 8) for micro in (1, 2, 4) for length in (512, 2048, 8192)
    ]  # fmt: skip
    batch = batch_of(setups)
    times = iteration(batch, true, "a100").total
    found = fit([Measured(family="a100", batch=batch, step_time_s=times, weight=np.ones(len(setups)))]).constants(
        "a100"
    )
    again = iteration(batch, found, "a100").total
    assert np.max(np.abs(again / times - 1)) < 0.05
    assert found.matmul_rate == pytest.approx(0.6, rel=0.06)


def test_without_rows_nothing_moves_from_its_prior():
    few = [Run(source="x", group=(), setup=setup(), seconds=float(step_times([setup()], prior)[0]))]
    assert fit_runs(few).constants("a100").matmul_rate == pytest.approx(prior("a100").matmul_rate, rel=1e-3)


def test_sources_weigh_the_same():
    weights = source_weights(["a"] * 600 + ["b"] * 60)
    assert np.sum(weights[:600] ** 2) == pytest.approx(np.sum(weights[600:] ** 2))


def test_a_family_that_was_not_fitted_has_its_priors():
    names, means, _ = unknowns(["a100"])
    assert constants_of(names, means, "v100").flash_rate == prior("v100").flash_rate
