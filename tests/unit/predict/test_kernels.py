"""Kernels by hand, in their limits, and against measured tables."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.predict import kernels
from scaling_study.predict.kernels import Device, device_of, matmul
from scaling_study.predict.parameters import prior
from scaling_study.predict.setup import Attention, Elementwise
from tests.unit.predict.setups import LLAMA_7B, ROUND, one
from tests.unit.samples import bounded

CONSTANTS = prior("a100")


def device(**fields):
    """100 multiprocessors, 100 TFLOP/s and 1 TB/s."""
    arrays = {"matmul_flops": 1e14, "flash_flops": 1e14, "memory": 1e12, "multiprocessors": 100.0}
    numbers = {"quantisation": 1.0, "prologue": 0.0, **fields}
    return Device(**{name: np.array([value]) for name, value in arrays.items()}, **numbers)


def seconds(m, n, k, **fields):
    return float(matmul(device(**fields), *(np.array([float(size)]) for size in (m, n, k)))[0])


def test_a_matmul_of_whole_waves_runs_at_the_sustained_rate():
    # 2560 x 1280 is 10 x 10 tiles of 256 x 128: one wave of 100 multiprocessors.
    assert seconds(2560, 1280, 4096) == pytest.approx(2 * 2560 * 1280 * 4096 / 1e14)


def test_a_partly_filled_wave_costs_a_whole_one_where_quantisation_is_full():
    # 101 tiles of 256 x 128 are two waves; 128 x 128 tiles (0.96 of the rate) fill three: 202 tiles, 3 x 100.
    two_waves = 2 * (2 * 256 * 128 * 4096) / (1e14 / 100)
    assert seconds(256 * 101, 128, 4096) <= two_waves
    assert seconds(256 * 101, 128, 4096) > 2 * 256 * 101 * 128 * 4096 / 1e14


def test_a_thin_matmul_takes_the_time_of_its_bytes():
    assert seconds(1, 65536, 65536) == pytest.approx(2 * (65536 + 65536 * 65536 + 65536) / 1e12)


@bounded
@given(m=st.integers(64, 20000), n=st.integers(64, 20000), k=st.integers(64, 20000))
def test_a_matmul_is_never_faster_than_rate_or_memory_and_grows_with_depth(m, n, k):
    time = seconds(m, n, k, quantisation=0.3, prologue=100.0)
    assert time >= 2 * m * n * k / 1e14 * 0.999
    assert time >= 2 * (m * k + n * k + m * n) / 1e12 * 0.999
    assert seconds(m, n, 2 * k, quantisation=0.3, prologue=100.0) >= time


def test_measured_matmuls_are_met_on_the_whole():
    # gemm.csv, vidur_mlp, A100, fp16: (m, n, k, ms).
    rows = [
        (4096, 4096, 4096, 0.611), (4096, 12288, 4096, 1.911), (4096, 8192, 28672, 8.383), (4096, 5120, 5120, 0.9015),
        (4096, 4096, 512, 0.086), (16384, 4096, 4096, 2.5685), (16384, 28672, 8192, 32.623), (4096, 768, 4096, 0.122),
        (4096, 1280, 8192, 0.348), (4096, 13824, 5120, 2.313),
    ]  # fmt: skip
    part = device_of(one(), msgspec.structs.replace(CONSTANTS, matmul_rate=0.76))
    errors = [
        abs(float(matmul(part, *(np.array([float(size)]) for size in row[:3]))[0]) * 1e3 / row[3] - 1) for row in rows
    ]
    assert np.mean(errors) < 0.07


def test_a_power_limit_slows_computation():
    full, capped = (device_of(one(power_limit_w=watts), CONSTANTS).matmul_flops[0] for watts in (400, 200))
    assert capped / full == pytest.approx(0.5**CONSTANTS.power_exponent)


def test_flash_attention_computes_half_of_the_scores():
    batch = one(part=ROUND, power_limit_w=100, sequence_length=2**20, micro_batch=1)
    part = device_of(batch, CONSTANTS)
    forward, backward = (float(x[0]) for x in kernels.attention(batch, part, CONSTANTS))
    flops = 4 * 2**20 * 2**20 * 4096 / 2
    assert forward == pytest.approx(flops / (100e12 * CONSTANTS.flash_rate), rel=1e-3)  # the ramp is over
    assert backward == pytest.approx(2.5 * forward / CONSTANTS.flash_backward)


def test_kernels_of_attention_rank_as_they_should():
    def forward(kind):
        batch = one(attention=kind)
        return float(kernels.attention(batch, device_of(batch, CONSTANTS), CONSTANTS)[0][0])

    times = [
        forward(kind)
        for kind in (Attention.CUDNN, Attention.FLASH2, Attention.FLASH1, Attention.FUSED_SOFTMAX, Attention.UNFUSED)
    ]
    assert times == sorted(times)


def test_elementwise_bytes_by_hand():
    # Fused, no rotary, GELU: two norms of 4 and two additions of 6 bytes, 4 bytes of the MLP, 2 around attention.
    batch = one(part=ROUND, power_limit_w=100, decoder=msgspec.structs.replace(LLAMA_7B, gated_mlp=False, rotary=False))
    part = device_of(batch, CONSTANTS)
    forward = float(kernels.elementwise(batch, part, CONSTANTS)[0][0])
    moved = 2048 * (2 * (4 + 6) * 4096 + 4 * 11008 + 2 * 4096)
    assert forward == pytest.approx(moved / (1e12 * CONSTANTS.memory_rate))


def test_sequence_parallelism_shares_out_what_is_between_regions():
    def passes(**fields):
        batch = one(tp=4, dp=2, global_batch=2, **fields)
        return float(kernels.elementwise(batch, device_of(batch, CONSTANTS), CONSTANTS)[0][0])

    assert passes(sequence_parallel=True) < passes()


def test_eager_norms_cost_more_memory_and_more_launches():
    eager, fused = (
        one(elementwise=kind, fused_pointwise=kind is Elementwise.FUSED)
        for kind in (Elementwise.EAGER, Elementwise.FUSED)
    )
    for batch_time in (
        lambda b: kernels.elementwise(b, device_of(b, CONSTANTS), CONSTANTS),
        lambda b: kernels.host(b, CONSTANTS),
    ):
        assert float(batch_time(eager)[0][0]) > float(batch_time(fused)[0][0])


def test_launches_by_hand():
    forward, backward = (float(x[0]) for x in kernels.host(one(), CONSTANTS))
    assert forward == pytest.approx(40 * CONSTANTS.launch_us * 1e-6)
    assert backward == pytest.approx(60 * CONSTANTS.launch_us * 1e-6)
