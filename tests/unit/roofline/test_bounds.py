"""Bounds of a layer and of an iteration: closed forms, and the regime that limits."""

from __future__ import annotations

import pytest

from scaling_study.roofline import bounds_of_iteration, bounds_of_layer, least_traffic, network_of
from scaling_study.roofline.bounds import ON_CHIP_BYTES
from scaling_study.spec import Regime, TrainingRun
from tests.unit.samples import CONFIG

MODELS, HARDWARE = CONFIG.catalogue.models, CONFIG.catalogue.hardware
SEVEN = network_of(MODELS["llama2-7b"])


def run(**fields):
    dp, tp, pp = (fields.get(name, 1) for name in ("dp", "tp", "pp"))
    defaults = {"model": "llama2-7b", "hardware": "h100", "nodes": max(1, dp * tp * pp // 8), "dp": dp}
    return TrainingRun(**{**defaults, "micro_batch": 2, "global_batch": 2 * dp, **fields})


def found(bounds, regime):
    return next(one.seconds for one in bounds.bounds if one.regime is regime)


def test_an_iteration_by_hand():
    made = run(dp=16)
    bounds = bounds_of_iteration(made, MODELS["llama2-7b"], HARDWARE["h100"])
    assert found(bounds, Regime.COMPUTE) == pytest.approx(2 * 4096 * SEVEN.training_flops(4096) / 989.4e12)
    optimizer = 24 * SEVEN.parameters / 16 - ON_CHIP_BYTES
    weights = 2 * (2 * SEVEN.multiplied - ON_CHIP_BYTES)
    assert least_traffic(made, MODELS["llama2-7b"]) == pytest.approx(optimizer + weights)
    assert found(bounds, Regime.MEMORY) == pytest.approx((optimizer + weights) / 3350e9)
    leaving = (
        15 / 16 * 4 + 1 / 16 * 2
    ) * SEVEN.multiplied  # of a rank: gradients in fp32, and its share of the weights
    assert leaving / 500e9 > (1 / 2 * 4 + 1 / 2 * 2) * SEVEN.multiplied / 400e9  # of a node
    assert found(bounds, Regime.COMMUNICATION) == pytest.approx(leaving / 500e9 + 2 * 2.7e-6)
    assert found(bounds, Regime.OVERHEAD) == pytest.approx(32 * 39 * 10e-6)
    assert bounds.longest.regime is Regime.COMPUTE


def test_a_layer_by_hand():
    made = run(dp=2, tp=4, micro_batch=1, global_batch=4)
    forward, backward = bounds_of_layer(made, MODELS["llama2-7b"], HARDWARE["h100"])
    block = SEVEN.blocks / 32
    flops = 2 * 4096 * (2 * block + 2 * 4096 * 4096) / 4
    assert found(forward, Regime.COMPUTE) == pytest.approx(flops / 989.4e12)
    assert found(backward, Regime.COMPUTE) == pytest.approx(2 * flops / 989.4e12)
    assert found(forward, Regime.MEMORY) == pytest.approx(2 * block / 4 * 2 / 3350e9)
    activations = 2 * 2 * 3 / 4 * 4096 * 4096 * 2  # two micro-batches, two all-reduces
    gathered = block / 4 * 2 / 2
    hops = 4 + 1
    assert found(forward, Regime.COMMUNICATION) == pytest.approx((activations + gathered) / 450e9 + hops * 0.47e-6)
    assert found(forward, Regime.OVERHEAD) == pytest.approx(2 * 16 * 10e-6)


def test_layers_add_up_to_no_more_than_the_iteration_has():
    for layout in ({"dp": 8}, {"dp": 2, "tp": 4}, {"dp": 2, "pp": 4, "global_batch": 16}):
        made = run(**layout)
        layers = bounds_of_layer(made, MODELS["llama2-7b"], HARDWARE["h100"])
        whole = bounds_of_iteration(made, MODELS["llama2-7b"], HARDWARE["h100"])
        of_layers = sum(found(one, Regime.COMPUTE) for one in layers) * 32 / made.pp
        assert 0.9 * found(whole, Regime.COMPUTE) < of_layers < found(whole, Regime.COMPUTE)
        assert sum(found(one, Regime.OVERHEAD) for one in layers) * 32 / made.pp == pytest.approx(
            found(whole, Regime.OVERHEAD)
        )


@pytest.mark.parametrize(
    ("layout", "interval_s", "regime"),
    [
        ({"dp": 2048}, 10e-6, Regime.COMPUTE),
        ({"dp": 16, "tp": 16, "micro_batch": 1, "global_batch": 16}, 1e-6, Regime.COMMUNICATION),
        ({"dp": 8, "micro_batch": 1, "global_batch": 8, "sequence_length": 16}, 1e-7, Regime.COMMUNICATION),
        ({"dp": 8, "micro_batch": 1, "global_batch": 8, "sequence_length": 16}, 1e-3, Regime.OVERHEAD),
        ({"dp": 1, "nodes": 1, "micro_batch": 1, "global_batch": 1, "sequence_length": 16}, 1e-7, Regime.MEMORY),
    ],
)
def test_the_regime_is_that_of_the_longest(layout, interval_s, regime):
    bounds = bounds_of_iteration(run(**layout), MODELS["llama2-7b"], HARDWARE["h100"], launch_interval_s=interval_s)
    assert bounds.longest.regime is regime
    assert bounds.hardest_s == max(one.seconds for one in bounds.bounds if one.regime is not Regime.OVERHEAD)


def test_what_is_not_published_is_no_bound():
    bounds = bounds_of_iteration(run(dp=2), MODELS["llama2-7b"], HARDWARE["cpu"])
    assert [one.seconds for one in bounds.bounds if one.regime is not Regime.OVERHEAD] == [None] * 3
    assert [one.arithmetic for one in bounds.bounds][:2] == [
        "no peak is published for bf16",
        "no memory bandwidth is published",
    ]
    assert bounds.hardest_s is None
