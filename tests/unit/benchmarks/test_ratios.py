"""A ratio's interval covers what pairs really have in common, and a requirement is missed beyond noise only."""

import numpy as np
import pytest
from benchmarks.ratios import Ratio, paired_ratio, spread


def _rounds(ratio, *, rounds=5, pairs=8, noise=0.05, seed=0):
    """Pairs whose true ratio is known, on a machine whose speed drifts."""
    source = np.random.default_rng(seed)
    drift = np.exp(np.cumsum(source.normal(0, 0.1, (rounds, pairs)), axis=1))
    luck = np.exp(source.normal(0, noise, (rounds, 1)))
    return [
        [(ratio * speed * of_round[0], speed) for speed in speeds] for speeds, of_round in zip(drift, luck, strict=True)
    ]


def test_a_constant_ratio_has_no_spread_whatever_the_machine_does():
    assert paired_ratio(_rounds(1.25, noise=0)) == Ratio(pytest.approx(1.25), pytest.approx(1.25), pytest.approx(1.25))


def test_the_same_pairs_give_the_same_interval():
    assert paired_ratio(_rounds(1.1)) == paired_ratio(_rounds(1.1))


def test_the_interval_covers_the_truth_in_most_repetitions():
    found = [paired_ratio(_rounds(1.1, seed=seed)) for seed in range(20)]
    assert sum(one.low <= 1.1 <= one.high for one in found) >= 15
    assert all(one.low <= one.median <= one.high for one in found)


def test_one_round_still_has_an_interval():
    pairs = [[(1.0, 1.0), (1.2, 1.0), (1.1, 1.0)]]
    assert paired_ratio(pairs).median == pytest.approx(1.1)
    assert paired_ratio(pairs).low < 1.1 < paired_ratio(pairs).high


@pytest.mark.parametrize(("high", "short"), [(0.99, True), (1.0, False), (1.01, False)])
def test_only_an_interval_that_lies_below_falls_short(high, short):
    assert Ratio(0.98, 0.97, high).falls_short_of(1.0) is short


def test_spread_is_the_median_and_the_middle_half():
    assert spread([4.0, 1.0, 3.0, 2.0, 5.0]).median == 3.0
    assert (spread([4.0, 1.0, 3.0, 2.0, 5.0]).low, spread([4.0, 1.0, 3.0, 2.0, 5.0]).high) == (2.0, 4.0)
