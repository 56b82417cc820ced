"""Our own runs as setups."""

import pytest

from scaling_study.errors import UserError
from scaling_study.predict.ours import setup_of_run
from scaling_study.predict.predictions import predict
from scaling_study.predict.setup import Attention, Elementwise, Recompute, Setup, Sharding
from scaling_study.spec import ActivationCheckpointing, Outcome, Precision, ReductionDtype, TrainingRun
from tests.unit.predict.setups import LIBRARY
from tests.unit.samples import CONFIG


def made(hardware="h100", **fields):
    catalogue = CONFIG.catalogue
    defaults = {"model": "llama2-7b", "hardware": hardware, "nodes": 4, "dp": 32, "micro_batch": 2, "global_batch": 64}
    run = TrainingRun(**{**defaults, **fields})
    return setup_of_run(run, catalogue.models[run.model], catalogue.hardware[hardware], LIBRARY)


def test_our_stack():
    found = made(dp=8, tp=2, pp=2, global_batch=32)
    assert (found.gpus, found.microbatches, found.sharding, found.shard_group) == (32, 2, Sharding.ZERO3, 8)
    stack = found.stack
    assert (stack.attention, stack.elementwise) == (Attention.FLASH2, Elementwise.EAGER)
    assert stack.dtensor
    assert stack.sequence_parallel
    assert not stack.parallel_loss
    assert found.node_network_gb_per_s == 400
    assert found.reduce_bytes == 4
    assert made(reduction_dtype=ReductionDtype.BF16).reduce_bytes == 2


def test_checkpointing_maps_to_what_the_training_code_does():
    kinds = {kind: made(activation_checkpointing=kind).recompute for kind in ActivationCheckpointing}
    assert kinds == {
        ActivationCheckpointing.NONE: Recompute.NONE,
        ActivationCheckpointing.SELECTIVE: Recompute.POINTWISE,
        ActivationCheckpointing.FULL: Recompute.FULL,
    }


def test_volta_has_no_flash_attention_2():
    assert made("v100", precision=Precision.FP16).stack.attention is Attention.FLASH1


def test_hardware_files_rule_over_parts():
    assert made("h100-ib100").node_network_gb_per_s == 100
    assert made("h100-nvl72", dp=288, global_batch=576).gpus_per_node == 72
    assert made("v100", precision=Precision.FP16).node_network_gb_per_s == 100


def test_a_processor_is_no_part():
    with pytest.raises(UserError, match="knows no part"):
        made("cpu")


@pytest.mark.parametrize("hardware", ["v100", "a100", "h100", "h200"])
def test_every_gpu_of_the_study_is_predicted(hardware):
    precision = Precision.FP16 if hardware == "v100" else Precision.BF16
    found = made(hardware, precision=precision, activation_checkpointing=ActivationCheckpointing.FULL)
    assert isinstance(found, Setup)
    (prediction,) = predict([found], LIBRARY)
    assert 0.2 < prediction.mfu < 0.65
    assert prediction.low_s < prediction.step_time_s < prediction.high_s
    assert prediction.extrapolated == (hardware in ("v100", "h200"))


def test_seventy_billion_parameters_do_not_fit_one_node():
    (prediction,) = predict([made(model="llama2-70b", nodes=1, dp=8, global_batch=16)], LIBRARY)
    assert prediction.outcome is Outcome.OUT_OF_MEMORY
