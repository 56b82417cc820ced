"""The least memory of a layout: closed forms, what cannot fit, and how it must move with the layout."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.roofline import infeasible_because, least_memory_gib
from scaling_study.roofline.memory import stage_parameters
from scaling_study.spec import Precision, Sourced, TrainingRun
from tests.unit.samples import CONFIG, PART, TINY, bounded, training_run

MODELS, HARDWARE = CONFIG.catalogue.models, CONFIG.catalogue.hardware
GIB = 2**30


def _run(model="llama2-7b", hardware="h100", **fields):
    dp, tp, pp = (fields.get(name, 1) for name in ("dp", "tp", "pp"))
    defaults = {"nodes": max(1, dp * tp * pp // 8), "dp": dp, "micro_batch": 1, "global_batch": 4096}
    return TrainingRun(model=model, hardware=hardware, **{**defaults, **fields})


# One block of TINY has 592 parameters, its embedding and its head 256 each.
@pytest.mark.parametrize(
    ("layout", "parameters"),
    [
        ({}, 2 * 592 + 2 * 256),
        ({"tp": 2}, (2 * 592 + 2 * 256) // 2),
        ({"pp": 2}, 592 + 256),
        ({"tp": 2, "pp": 2}, (592 + 256) // 2),
    ],
)
def test_parameters_of_a_stage_by_hand(layout, parameters):
    assert stage_parameters(training_run(**layout), TINY) == parameters


@pytest.mark.parametrize(
    ("fields", "least"),
    [
        # fp32, one replica: the master weight is the parameter itself
        ({"dp": 1}, 1696 * 12),
        # two replicas: half the state each, and the gathered fp32 parameters
        ({"dp": 2}, 1696 * 12 / 2 + 1696 * 4),
        # bf16: a copy of two bytes each, however many replicas
        ({"dp": 1, "precision": Precision.BF16}, 1696 * 12 + 1696 * 2),
        ({"dp": 4, "precision": Precision.FP16}, 1696 * 12 / 4 + 1696 * 2),
        # resharding keeps one gathered block
        ({"dp": 2, "reshard_after_forward": True}, 1696 * 12 / 2 + 592 * 4),
        ({"dp": 2, "tp": 2, "reshard_after_forward": True}, 848 * 12 / 2 + 592 / 2 * 4),
        ({"dp": 1, "pp": 2}, 848 * 12),
    ],
)
def test_least_memory_by_hand(fields, least):
    assert least_memory_gib(training_run(**fields), TINY) == pytest.approx(least / GIB)


def test_7b_on_8_gpus_by_hand():
    parameters = 6_738_415_616 - 4096  # the final norm is left out of the bound
    expected = (parameters * 12 / 8 + parameters * 2) / GIB
    assert least_memory_gib(_run(dp=8), MODELS["llama2-7b"]) == pytest.approx(expected, rel=1e-9)
    assert expected == pytest.approx(21.96, abs=0.01)


def test_70b_cannot_be_data_parallel_on_80_gib():
    reason = infeasible_because(_run("llama2-70b", dp=2048, nodes=256), MODELS["llama2-70b"], HARDWARE["h100"])
    assert reason == ("parameters and optimizer alone need 129 GiB a GPU, NVIDIA H100 SXM 80 GB in a DGX H100 has 80")
    assert (
        infeasible_because(_run("llama2-70b", dp=1024, tp=2, nodes=256), MODELS["llama2-70b"], HARDWARE["h100"]) is None
    )
    h200 = HARDWARE["h200"]
    assert infeasible_because(_run("llama2-70b", "h200", dp=2048, nodes=256), MODELS["llama2-70b"], h200) is None


@pytest.mark.parametrize(("capacity", "fits"), [(1696 * 12 / GIB, True), (1696 * 12 / GIB * 0.999, False)])
def test_a_layout_that_just_fits_is_feasible(capacity, fits):
    part = msgspec.structs.replace(PART, memory_gib=Sourced(capacity, "s"))
    assert (infeasible_because(training_run(dp=1), TINY, part) is None) == fits


def test_hardware_of_unknown_memory_excludes_nothing():
    assert infeasible_because(_run("llama2-70b", "cpu", dp=1), MODELS["llama2-70b"], HARDWARE["cpu"]) is None


sizes = st.sampled_from(["llama2-1b", "llama2-7b", "llama2-13b", "llama2-70b"])
powers = st.integers(0, 3).map(lambda exponent: 2**exponent)


@bounded
@given(sizes, powers, powers, powers, st.sampled_from(Precision), st.booleans())
def test_memory_falls_with_every_kind_of_sharding(name, dp, tp, pp, precision, reshard):
    model = MODELS[name]
    fields = {"precision": precision, "reshard_after_forward": reshard}

    def least(**layout):
        return least_memory_gib(_run(name, **{"dp": dp, "tp": tp, "pp": pp, **layout}, **fields), model)

    assert least(tp=2 * tp) == pytest.approx(least() / 2, rel=1e-6)
    if dp > 1 or precision is not Precision.FP32:
        assert least(dp=2 * dp) < least()
    if model.layers % (2 * pp) == 0:
        assert least(pp=2 * pp) < least()
    assert (
        least_memory_gib(_run(name, dp=dp, tp=tp, pp=pp, precision=precision, reshard_after_forward=True), model)
        <= least()
    )


@bounded
@given(sizes, st.integers(0, 9))
def test_savings_of_more_replicas_diminish(name, exponent):
    one, two, four = (least_memory_gib(_run(name, dp=2**exponent * k), MODELS[name]) for k in (1, 2, 4))
    assert one - two == pytest.approx(2 * (two - four), rel=1e-6)  # HST appendix D: convex and decreasing
    assert one > two > four


@bounded
@given(st.sampled_from([1, 2, 4, 8]), powers)
def test_larger_models_need_more(tp, dp):
    ordered = ["llama2-1b", "llama2-7b", "llama2-13b", "llama2-70b"]
    needs = [least_memory_gib(_run(name, tp=tp, dp=dp), MODELS[name]) for name in ordered]
    assert needs == sorted(needs)
