"""Iterations: limits, monotonicities, and a pipeline by hand."""

import time

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.predict.batch import batch_of
from scaling_study.predict.fast import end_parameters, iteration, layer_parameters
from scaling_study.predict.parameters import KNOBS, Constants, prior
from scaling_study.predict.setup import Attention, Recompute, Sharding
from tests.unit.predict.setups import H100, LLAMA_7B, one, setup
from tests.unit.samples import bounded

CONSTANTS = prior("a100")


def total(constants=CONSTANTS, **fields):
    return float(iteration(one(**fields), constants, "a100").total[0])


def without_overheads():
    quiet = {
        "stage_sync_us": 1e-9,
        "stage_jitter": 1e-12,
        "scale_jitter": 1e-12,
        "step_ms": 1e-9,
        "optimizer_bytes": 1e-9,
    }
    return msgspec.structs.replace(CONSTANTS, **quiet)


def test_every_constant_has_its_knob():
    assert set(Constants.__struct_fields__) == set(KNOBS)


def test_parameters_are_those_of_the_model():
    batch = one()
    whole = 32 * layer_parameters(batch)[0] + end_parameters(batch)[0]
    assert whole == LLAMA_7B.parameters
    assert whole == 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 2 * 32000 * 4096


def test_one_gpu_communicates_nothing():
    found = iteration(one(dp=1, global_batch=1), CONSTANTS, "a100")
    for part in (found.reduction, found.gather, found.reduce, found.message, found.block.forward_exposed):
        assert part[0] == 0


def test_one_gpu_fully_sharded_is_as_one_gpu_replicated():
    same = {"dp": 1, "global_batch": 1}
    quiet = msgspec.structs.replace(CONSTANTS, unit_launch_us=1e-9)
    sharded = total(quiet, sharding=Sharding.ZERO3, shard_group=1, **same)
    assert sharded == pytest.approx(total(quiet, **same), rel=1e-6)


def test_micro_batches_of_one_stage_add_up():
    quiet, alone = without_overheads(), {"dp": 1}
    first, fourth = (total(quiet, global_batch=count, **alone) for count in (1, 4))
    assert fourth == pytest.approx(4 * first, rel=1e-6)


def test_a_pipeline_by_hand():
    """m micro-batches through p stages take (m + p - 1) times a stage's where stages are alike."""
    decoder = msgspec.structs.replace(LLAMA_7B, vocabulary=1)  # no head worth mentioning
    quiet = without_overheads()
    found = iteration(one(decoder=decoder, dp=1, pp=4, global_batch=8, pipeline_scatter=True), quiet, "a100")
    stage = 8 * (found.block.forward + found.block.backward) + 2 * found.message
    assert found.total[0] == pytest.approx((8 + 4 - 1) * stage[0], rel=1e-2)


def test_interleaving_divides_the_bubble():
    decoder = msgspec.structs.replace(LLAMA_7B, vocabulary=1)
    quiet, same = without_overheads(), {"decoder": decoder, "dp": 1, "pp": 4, "global_batch": 8}
    plain, halved = (total(quiet, virtual_stages=chunks, **same) for chunks in (1, 2))
    whole = plain / (8 + 3)
    assert plain - halved == pytest.approx(3 * whole / 2, rel=3e-2)  # less what more messages cost


def test_recomputation_adds_about_a_third_and_stopping_early_saves_a_matmul():
    alone = {"dp": 1, "global_batch": 1}
    none = total(early_stop=False, **alone)
    full = total(early_stop=False, recompute=Recompute.FULL, **alone)
    early = total(early_stop=True, recompute=Recompute.FULL, **alone)
    assert 1.2 < full / none < 1.4
    assert none < early < full


def test_kinds_of_recomputation_rank():
    same = {"attention": Attention.FUSED_SOFTMAX}
    kinds = [Recompute.NONE, Recompute.POINTWISE, Recompute.SELECTIVE_OPS, Recompute.FULL]
    times = [total(recompute=kind, **same) for kind in kinds]
    assert times == sorted(times)
    half = total(recompute=Recompute.FRACTION_OF_BLOCKS, recomputed_block_fraction=0.5, **same)
    assert times[0] < half < times[-1]


def test_reductions_in_32_bit_take_longer_than_in_16_bit():
    spread = {"dp": 64, "global_batch": 64, "sharding": Sharding.ZERO3, "shard_group": 64}
    assert total(reduce_bytes=4, **spread) > total(reduce_bytes=2, **spread)


def test_without_resharding_nothing_is_gathered_in_the_backward_pass():
    spread = {
        "dp": 256,
        "global_batch": 256,
        "sharding": Sharding.ZERO3,
        "node_network_gb_per_s": 50,
        "shard_group": 256,
    }
    assert total(reshard_after_forward=False, **spread) < total(reshard_after_forward=True, **spread)


def test_gathers_hide_behind_computation_until_the_network_is_too_slow():
    spread = {"dp": 64, "global_batch": 64 * 4, "micro_batch": 4, "sharding": Sharding.ZERO3, "shard_group": 64}
    alone = total(dp=1, global_batch=4, micro_batch=4)
    assert total(node_network_gb_per_s=400, **spread) < 1.3 * alone
    assert total(node_network_gb_per_s=4, **spread) > 3 * alone


def test_groups_of_hybrid_sharding_escape_the_latency_of_a_long_ring():
    spread = {"dp": 2048, "global_batch": 2048}
    whole = total(sharding=Sharding.ZERO3, shard_group=2048, reshard_after_forward=True, **spread)
    assert total(sharding=Sharding.HSDP, shard_group=8, reshard_after_forward=True, **spread) < whole


def test_context_parallelism_shares_out_a_long_sequence():
    long = {"sequence_length": 65536, "dp": 1, "global_batch": 1}
    assert 0.45 < total(cp=2, **long) / total(**long) < 0.65


def test_overlap_of_data_parallel_communication_never_costs():
    same = {"dp": 64, "global_batch": 64}
    assert total(dp_overlap=True, **same) < total(dp_overlap=False, **same)


@bounded
@given(
    nodes=st.sampled_from([1, 2, 8, 64]), tp=st.sampled_from([1, 2, 8]), pp=st.sampled_from([1, 2]),
    sharding=st.sampled_from(list(Sharding)), sequence=st.sampled_from([512, 2048, 8192]),
    recompute=st.sampled_from([Recompute.NONE, Recompute.FULL]),
)  # fmt: skip
def test_time_is_finite_and_grows_with_work(nodes, tp, pp, sharding, sequence, recompute):
    dp = max(1, 8 * nodes // (tp * pp))
    same = {
        "dp": dp,
        "tp": tp,
        "pp": pp,
        "sharding": sharding,
        "shard_group": dp,
        "recompute": recompute,
        "sequence_length": sequence,
    }
    small, large = total(global_batch=2 * dp, **same), total(global_batch=4 * dp, **same)
    assert np.isfinite(small)
    assert 0 < small < large
    deeper = msgspec.structs.replace(LLAMA_7B, layers=64)
    assert total(global_batch=2 * dp, decoder=deeper, **same) > small


def test_a_batch_is_its_setups_one_by_one():
    setups = [setup(dp=dp, global_batch=8 * dp, tp=tp) for dp, tp in ((1, 1), (4, 2), (8, 8), (64, 1))]
    together = iteration(batch_of(setups), CONSTANTS, "a100").total
    alone = [float(iteration(batch_of([single]), CONSTANTS, "a100").total[0]) for single in setups]
    assert together.tolist() == pytest.approx(alone, rel=1e-12)


def test_a_batch_is_of_one_family():
    with pytest.raises(ValueError, match="one family"):
        batch_of([setup(), setup(part=H100)])


def test_two_thousand_setups_a_second():
    setups = [setup(dp=dp, global_batch=8 * dp, tp=tp) for dp in (1, 2, 4, 8, 16) for tp in (1, 2, 4, 8)] * 50
    start = time.process_time()
    iteration(batch_of(setups), CONSTANTS, "a100")
    assert len(setups) / (time.process_time() - start) > 2000
