"""Claims are held against the right roof: closed forms, the third document's questions, and what others claim."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.roofline import Claim, judge, model_flops_per_token, network_of, network_of_parameters
from scaling_study.spec import NumberFormat, Phase, Regime
from tests.unit.samples import CONFIG, bounded

MODELS, HARDWARE = CONFIG.catalogue.models, CONFIG.catalogue.hardware
LLAMA = network_of(MODELS["llama2-70b"])
#: 80 blocks of 2 h^2 + 2 h k + 3 h f, and a head of 32,000 x h.
BLOCKS = 80 * (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
MULTIPLIED = BLOCKS + 32000 * 8192


def claim(**fields):
    defaults = {
        "network": LLAMA,
        "hardware": HARDWARE["h100"],
        "gpus": 8,
        "phase": Phase.DECODE,
        "tokens_per_second": 100.0,
    }
    return Claim(**{**defaults, **fields})


def roof(made, regime):
    return next(one.tokens_per_second for one in judge(made).roofs if one.regime is regime)


def test_sizes_of_a_network():
    assert (LLAMA.blocks, LLAMA.multiplied) == (BLOCKS, MULTIPLIED)
    assert LLAMA.parameters == MODELS["llama2-70b"].parameters
    assert LLAMA.key_value_elements == 80 * 2 * 8 * 128
    assert LLAMA.model_flops(4096) == model_flops_per_token(MODELS["llama2-70b"], 4096)


def test_the_least_work_is_below_the_convention_of_mfu():
    for name, model in MODELS.items():
        network = network_of(model)
        assert network.training_flops(4096) < network.model_flops(4096), name
        assert network.training_flops(4096) == pytest.approx(
            3 * (2 * network.multiplied + 2 * network.layers * model.hidden * 4096)
        )


def test_roofs_of_training_by_hand():
    made = claim(phase=Phase.TRAIN, gpus=256, context_length=4096, batch=512, tp=8, tokens_per_second=1e5)
    flops = 3 * (2 * MULTIPLIED + 2 * 80 * 8192 * 4096)
    assert roof(made, Regime.COMPUTE) == pytest.approx(256 * 989.4e12 / flops)
    assert roof(made, Regime.MEMORY) == pytest.approx(512 * 4096 * 256 * 3350e9 / (2 * MULTIPLIED * 2))
    tokens, groups = 512 * 4096, 256 / 8
    wire = 4 * 80 * 7 / 8 * 8192 * 2 / 450e9
    assert roof(made, Regime.COMMUNICATION) == pytest.approx(tokens / (tokens / groups * wire + 4 * 80 * 0.47e-6))


def test_roofs_of_a_prompt_leave_the_head_out():
    made = claim(phase=Phase.PREFILL, batch=1, context_length=2048, tp=2, gpus=2)
    assert roof(made, Regime.COMPUTE) == pytest.approx(2 * 989.4e12 / (2 * BLOCKS + 2 * 80 * 8192 * 2048))
    assert roof(made, Regime.MEMORY) == pytest.approx(2048 * 2 * 3350e9 / (2 * BLOCKS))


def test_roofs_of_decoding_by_hand():
    made = claim(batch=4, context_length=1000, tp=2)
    weights, kept = 2 * MULTIPLIED, 80 * 2 * 8 * 128 * 2 * 1000
    assert roof(made, Regime.MEMORY) == pytest.approx(4 * 8 * 3350e9 / (weights * 4 + 4 * kept))
    assert roof(made, Regime.COMPUTE) == pytest.approx(8 * 989.4e12 / (2 * MULTIPLIED + 4 * 80 * 8192 * 1000))
    wire = 2 * 80 / 2 * 8192 * 2 / 450e9
    assert roof(made, Regime.COMMUNICATION) == pytest.approx(4 / (wire + 160 * 0.47e-6))


def test_one_sequence_cannot_use_more_than_its_replica():
    alone = claim(batch=1, tp=2)
    assert roof(alone, Regime.MEMORY) == pytest.approx(2 * 3350e9 / (2 * MULTIPLIED))
    assert roof(alone, Regime.COMPUTE) == pytest.approx(2 * 989.4e12 / (2 * MULTIPLIED))


def test_quantised_weights_weigh_less_and_keys_and_values_half():
    for number_format, share in ((NumberFormat.FP8, 2), (NumberFormat.INT8, 2), (NumberFormat.INT4, 4)):
        assert roof(claim(number_format=number_format), Regime.MEMORY) == pytest.approx(
            share * roof(claim(), Regime.MEMORY)
        )
    assert roof(claim(number_format=NumberFormat.FP8), Regime.COMPUTE) == pytest.approx(
        2 * roof(claim(), Regime.COMPUTE), rel=1e-3
    )


def test_weights_that_do_not_fit_come_over_the_host():
    made = claim(gpus=1, tokens_per_second=1.0)
    rest = 2 * LLAMA.parameters - 80 * 2**30
    assert roof(made, Regime.CAPACITY) == pytest.approx(64e9 / rest)
    judged = judge(made)
    assert (judged.possible, judged.limit.regime) == (True, Regime.CAPACITY)
    nowhere = judge(claim(gpus=1, hardware=HARDWARE["h200"], network=network_of_parameters(405e9)))
    assert (nowhere.possible, nowhere.limit.tokens_per_second, nowhere.share_of_limit) == (False, 0.0, None)


def test_a_mixture_of_experts_reads_what_is_active_and_keeps_everything():
    mixture = network_of_parameters(671e9, 37e9)
    made = claim(network=mixture, number_format=NumberFormat.FP8, gpus=16)
    assert roof(made, Regime.MEMORY) == pytest.approx(16 * 3350e9 / 37e9)
    assert judge(msgspec.structs.replace(made, gpus=4)).limit.regime is Regime.CAPACITY


def test_a_part_of_which_nothing_is_published_makes_nothing_impossible():
    judged = judge(claim(hardware=HARDWARE["cpu"], tokens_per_second=1e12))
    assert (judged.possible, judged.limit, judged.roofs) == (True, None, ())
    assert "nothing is published" in judged.notes[0]


# -- the third document ---------------------------------------------------------------------------------------------


def test_decoding_one_sequence_near_peak_is_impossible():
    """Its third step: a claim of batch-1 decoding of 70B near peak TFLOPS is refuted by intensity."""
    near_peak = 0.9 * 989.4e12 * 8 / (2 * LLAMA.parameters)
    judged = judge(claim(tokens_per_second=near_peak, batch=1))
    assert not judged.possible
    assert judged.limit.regime is Regime.MEMORY
    ridge = 989.4e12 / 3350e9  # FLOPs a byte; a decoded token has one
    assert judged.share_of_limit == pytest.approx(0.9 * ridge, rel=0.01)
    assert "264 tokens a pass" in judge(claim(tokens_per_second=near_peak * 264 / judged.share_of_limit)).notes[0]


def test_the_longer_of_bytes_and_flops_is_the_lower_bound():
    """Its first step. A large batch turns decoding from memory to compute."""
    small, large = judge(claim(batch=1)), judge(claim(batch=4096))
    assert small.limit.regime is Regime.MEMORY
    assert large.limit.regime is Regime.COMPUTE


def test_a_starved_gpu_stays_under_both_ceilings():
    """A 3 us kernel launched every 10 us: 30% of what its own roof allows, and the regime is overhead."""
    kernels, kernel_s = 1000, 3e-6
    network = network_of_parameters(kernels * kernel_s * 3350e9 / 2)  # bf16 weights that take 3 us a kernel to read
    made = claim(network=network, gpus=1, kernels=kernels, launch_interval_s=10e-6)
    judged = judge(made)
    assert judged.limit.regime is Regime.OVERHEAD
    assert judged.limit.tokens_per_second == pytest.approx(0.3 * roof(made, Regime.MEMORY))
    assert judged.limit.tokens_per_second < roof(made, Regime.COMPUTE)
    graphed = msgspec.structs.replace(made, launch_interval_s=1e-6)  # fused, compiled or graphed
    assert judge(graphed).limit.regime is Regime.MEMORY


def test_a_prompt_far_below_the_compute_roof_is_possible_and_looked_into():
    """Its fourth step."""
    made = claim(phase=Phase.PREFILL, tokens_per_second=1000.0)
    assert judge(made).possible
    assert "launch overhead, poor shapes of matrix products" in judge(made).notes[0]
    near = msgspec.structs.replace(made, tokens_per_second=0.7 * roof(made, Regime.COMPUTE))
    assert judge(near).notes == ()


def test_the_sparse_peak_is_recognised():
    made = claim(phase=Phase.TRAIN, tokens_per_second=0.7 * 1979e12 * 8 / LLAMA.training_flops(0))
    assert not judge(made).possible
    assert "2:4 sparse" in judge(made).notes[0]


def test_a_rate_of_all_taken_for_one_is_asked_about():
    made = claim(phase=Phase.TRAIN, gpus=64, tokens_per_second=64 * 0.4 * 64 * 989.4e12 / LLAMA.training_flops(0))
    assert any("per accelerator or over all" in note for note in judge(made).notes)


@bounded
@given(
    batch=st.integers(1, 512),
    context=st.integers(0, 32768),
    tp=st.sampled_from([None, 1, 2, 4, 8]),
    phase=st.sampled_from(list(Phase)),
    number_format=st.sampled_from(list(NumberFormat)),
)
def test_more_hardware_lifts_roofs_and_verdicts_are_monotone(batch, context, tp, phase, number_format):
    made = claim(batch=batch, context_length=context, tp=tp, phase=phase, number_format=number_format)
    judged = judge(made)
    limit = judged.limit.tokens_per_second
    assert limit == min(one.tokens_per_second for one in judged.roofs)
    twice = judge(msgspec.structs.replace(made, gpus=16)).limit.tokens_per_second
    assert twice >= limit * (1 - 1e-12)
    for factor in (0.5, 0.999, 1.001, 2.0):
        assert judge(msgspec.structs.replace(made, tokens_per_second=limit * factor)).possible == (factor < 1)
