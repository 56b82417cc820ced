"""Iterations by chance, against what they must be where nothing or one thing varies."""

import msgspec
import numpy as np
import pytest

from scaling_study.errors import UserError
from scaling_study.predict.fabric import (
    Base,
    Chance,
    Fabric,
    Range,
    expected_last,
    read_fabric_model,
    require_fabric,
    simulate,
)
from scaling_study.synchronisation.controller import PacingSettings
from tests.unit.samples import CONFIG

BASE = Base(nodes=8, gpus_per_node=8, work_s=0.9, exposed_s=0.1, communication_s=0.3)
ALONE = Fabric(nodes_per_leaf=32, oversubscription=1, source="test")
LEAVES = Fabric(nodes_per_leaf=2, oversubscription=1, source="test")
MODEL = read_fabric_model(CONFIG.root / "calibration")


def run(chance=None, fabric=ALONE, seed=0, iterations=60, **options):
    return simulate(BASE, chance or Chance(), fabric, iterations, np.random.default_rng(seed), **options)


def test_nothing_varies_where_nothing_is_let_vary():
    assert run() == pytest.approx(np.full(60, BASE.iteration_s))


def test_lasting_differences_cost_the_slowest_gpu_and_make_nothing_unsteady():
    taken = run(Chance(device_spread=0.02))
    assert taken.std() == pytest.approx(0, abs=1e-12)
    slowest = np.random.default_rng(0).normal(0, 0.02, 64).max()
    assert taken[0] == pytest.approx(0.9 * (1 + slowest - 0.02 * expected_last(64)) + 0.1)


@pytest.mark.parametrize("count", [4, 64, 512])
def test_the_expected_last_of_many(count):
    drawn = np.random.default_rng(3).normal(size=(4000, count)).max(axis=1).mean()
    assert expected_last(count) == pytest.approx(drawn, rel=0.02)


def test_the_mean_over_seeds_is_the_models_own_at_any_scale():
    means = [
        np.mean(
            [
                simulate(
                    msgspec.structs.replace(BASE, nodes=nodes), Chance(iteration_jitter=0.02), ALONE, 60,
                    np.random.default_rng(seed),
                ).mean()
                for seed in range(30)
            ]
        )
        for nodes in (4, 8, 16)
    ]  # fmt: skip
    assert means == pytest.approx([BASE.iteration_s] * 3, rel=2e-3)


def test_flows_collide_on_uplinks_and_more_queue_pairs_spread_them():
    few, many = (
        np.mean([run(Chance(queue_pairs=pairs), LEAVES, seed).mean() for seed in range(40)]) for pairs in (1, 64)
    )
    assert run(Chance(queue_pairs=1)).mean() == pytest.approx(BASE.iteration_s)  # nobody leaves the leaf
    assert few > many >= BASE.iteration_s - 1e-9
    assert few < BASE.iteration_s + 8 * BASE.communication_s  # all flows of a node on one uplink


def test_oversubscribed_uplinks_slow_every_transfer_by_their_ratio_at_least():
    narrow = Fabric(nodes_per_leaf=2, oversubscription=8, source="test")  # 16 GPUs on 2 uplinks, 8 rings over them
    taken = run(Chance(queue_pairs=1000), narrow).mean()
    assert taken == pytest.approx(BASE.iteration_s + (8 / 2 - 1) * BASE.communication_s, rel=0.02)


def test_other_jobs_take_at_most_half_of_a_link():
    taken = run(Chance(queue_pairs=1000, background_load=100.0), LEAVES)
    worst = BASE.iteration_s + (2 * 0.6 - 1) * BASE.communication_s  # 8 rings on 16 uplinks: little over half full
    assert BASE.iteration_s < taken.max() < worst


def test_scattered_nodes_meet_more_leaves_than_packed_ones():
    packed, scattered = (
        np.mean([run(Chance(queue_pairs=1), LEAVES, s, placement=place).mean() for s in range(60)])
        for place in ("packed", "scattered")
    )
    assert scattered >= packed


def test_without_a_cost_of_early_ranks_pacing_can_only_delay():
    chance = Chance(device_spread=0.03, iteration_jitter=0.01)
    for seed in range(20):
        plain, paced = (run(chance, seed=seed, pacing=pacing) for pacing in (None, PacingSettings()))
        assert (paced >= plain - 1e-12).all()
        assert paced.mean() / plain.mean() < 1.005


def test_where_early_ranks_cost_what_they_wait_pacing_helps():
    chance = Chance(device_spread=0.03, early_cost=1.0)
    plain, paced = (run(chance, iterations=200, pacing=pacing) for pacing in (None, PacingSettings()))
    assert paced[100:].mean() < plain[100:].mean() * 0.99


def test_every_parameter_has_a_source_and_draws_stay_in_their_range():
    random = np.random.default_rng(1)
    draws = [msgspec.structs.asdict(MODEL.draw(random)) for _ in range(300)]
    for name, one in MODEL.parameters.items():
        assert one.source
        assert one.meaning
        values = [draw[name] for draw in draws]
        assert one.low <= min(values)
        assert max(values) <= one.high
        if one.low < one.value < one.high:
            assert 0.4 < np.mean([value < one.value for value in values]) < 0.6


def test_a_value_outside_its_range_and_an_unknown_fabric_are_refused():
    with pytest.raises(ValueError, match=r"not within 0.0\.\.1.0"):
        Range(value=2.0, low=0.0, high=1.0, meaning="m", source="s")
    with pytest.raises(UserError, match=r"there is no fabric 'torus'.*rail-optimised"):
        require_fabric(MODEL, "torus")
