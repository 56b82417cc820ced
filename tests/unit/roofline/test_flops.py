"""Floating-point work by its closed form, and rates that a part cannot have."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.roofline import least_gpu_hours, model_flops_per_token, utilisation
from scaling_study.spec import Precision, Protocol, TrainingRun
from tests.unit.samples import CONFIG, PART, TINY, bounded, training_run

MODELS, HARDWARE = CONFIG.catalogue.models, CONFIG.catalogue.hardware


def test_flops_of_a_token_by_hand():
    assert model_flops_per_token(TINY, 16) == 6 * 1704 + 12 * 2 * 8 * 16


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("llama2-7b", 6 * 6_738_415_616 + 12 * 32 * 4096 * 4096),
        ("llama2-70b", 6 * 68_976_648_192 + 12 * 80 * 8192 * 4096),
    ],
)
def test_flops_of_a_token_of_llama_2(name, flops):
    assert model_flops_per_token(MODELS[name], 4096) == flops


def test_the_share_of_attention_in_7b_is_an_eighth():
    whole = model_flops_per_token(MODELS["llama2-7b"], 4096)
    assert whole == 46_872_944_640
    assert 12 * 32 * 4096 * 4096 / whole == pytest.approx(0.1374, abs=1e-4)


@bounded
@given(st.sampled_from(sorted(MODELS)), st.integers(1, 2**17))
def test_work_grows_linearly_with_the_sequence(name, length):
    model = MODELS[name]
    step = model_flops_per_token(model, length + 1) - model_flops_per_token(model, length)
    assert step == 12 * model.layers * model.hidden
    assert model_flops_per_token(model, length) > 6 * model.parameters


H100_RUN = TrainingRun(model="llama2-7b", hardware="h100", nodes=1, dp=8, micro_batch=2, global_batch=16)


@pytest.mark.parametrize(("tflops", "mfu"), [(989.4, 1.0), (494.7, 0.5), (0.0, 0.0)])
def test_utilisation_is_the_share_of_the_peak(tflops, mfu):
    assert utilisation(tflops, H100_RUN, HARDWARE["h100"]) == (pytest.approx(mfu), None)


def test_utilisation_uses_the_peak_of_the_precision():
    both = msgspec.structs.replace(
        PART, peak_tflops={**PART.peak_tflops, Precision.BF16: msgspec.structs.replace(PART.memory_gib, value=8.0)}
    )
    assert utilisation(2.0, training_run(precision=Precision.BF16), both) == (0.25, None)
    assert utilisation(2.0, training_run(), both) == (1.0, None)


def test_more_than_the_peak_is_refused_with_a_reason():
    value, reason = utilisation(1200.0, H100_RUN, HARDWARE["h100"])
    assert value is None
    assert reason == "the rate is 121% of the peak of NVIDIA H100 SXM 80 GB in a DGX H100: wrong part or wrong clock"


@pytest.mark.parametrize(
    ("hardware", "precision", "reason"),
    [
        ("cpu", Precision.FP32, "no peak is published for fp32 on CPU ranks of one machine"),
        ("v100", Precision.BF16, "no peak is published for bf16 on NVIDIA V100 SXM2 in a hybrid cube mesh"),
    ],
)
def test_an_undefined_peak_is_a_reason_and_no_number(hardware, precision, reason):
    run = msgspec.structs.replace(H100_RUN, precision=precision)
    assert utilisation(1.0, run, HARDWARE[hardware]) == (None, reason)
    assert least_gpu_hours(run, MODELS["llama2-7b"], HARDWARE[hardware]) is None


def test_gpu_hours_at_peak_by_hand():
    run = training_run(protocol=Protocol(iterations=3600, discard=0))
    # 3600 iterations of 4 * 16 tokens at 2 TFLOP/s, in hours of one part
    assert least_gpu_hours(run, TINY, PART) == pytest.approx(13296 * 64 / 2e12)


def test_gpu_hours_do_not_depend_on_how_many_share_the_work():
    hours = {
        least_gpu_hours(
            msgspec.structs.replace(H100_RUN, nodes=nodes, dp=8 * nodes, global_batch=512),
            MODELS["llama2-7b"], HARDWARE["h100"],
        )
        for nodes in (1, 8, 32)
    }  # fmt: skip
    assert len(hours) == 1
    assert hours.pop() == pytest.approx(46_872_944_640 * 512 * 4096 * 60 / 989.4e12 / 3600)
