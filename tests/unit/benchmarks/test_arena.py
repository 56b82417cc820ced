"""Contestants compute the same in turn; one that fails or cannot be had is told apart, and different losses end it."""

from importlib.util import find_spec

import pytest
from benchmarks.arena import Case, ContestantError, DifferentLossError, _Answer, _check_losses, durations
from benchmarks.contestants import OURS
from benchmarks.training import training_run

from scaling_study.spec import Model

MODEL = Model(name="test", layers=2, hidden=32, heads=4, kv_heads=2, ffn=88, vocabulary=128, source="test")


def _case(dp=1, **fields):
    run = training_run(MODEL, dp=dp, micro_batch=2, sequence_length=16)
    return Case(**{"model": MODEL, "run": run, "threads": 1, "warmup": 1, "steps": 2, **fields})


def test_ours_and_transformers_compute_the_same():
    measured = durations([OURS, "transformers"], _case(dp=2), rounds=1)
    assert [sorted(step) for steps in measured for step in steps] == [[OURS, "transformers"]] * 2
    assert all(seconds > 0 for steps in measured for step in steps for seconds in step.values())


@pytest.mark.skipif(find_spec("torchtitan") is None, reason="torchtitan is in the extra bench")
def test_ours_and_torchtitan_compute_the_same():
    assert len(durations([OURS, "torchtitan"], _case(dp=2), rounds=1)[0]) == 2


def test_a_contestant_that_fails_is_quoted():
    with pytest.raises(ContestantError, match="KeyError: 'nobody'"):
        durations(["nobody"], _case(), rounds=1)


@pytest.mark.parametrize("other", [5.1, float("nan")])
def test_different_losses_end_it(other):
    with pytest.raises(DifferentLossError, match="the same weights and batch"):
        _check_losses({OURS: _Answer(loss=5.0), "other": _Answer(loss=other)}, 1e-3)


def test_rounding_is_no_difference():
    _check_losses({OURS: _Answer(loss=5.0), "other": _Answer(loss=5.00001)}, 1e-5)
