"""Memory: by hand, and against runs that fitted or did not."""

import itertools

import pytest

from scaling_study.predict.footprint import FRAGMENTATION, activation_bytes, fits, memory_gib
from scaling_study.predict.rows import setup_of
from scaling_study.predict.setup import Attention, Recompute, Sharding
from tests.unit.predict.setups import LLAMA_7B, one
from tests.unit.predict.test_rows import GOOD


def gib(**fields):
    return float(memory_gib(one(**fields))[0])


def test_activations_of_a_block_by_hand():
    # Fused norms keep 4 bytes twice; q, k, v and the result 2 each; gate, up and product 2 each of the MLP.
    assert activation_bytes(one())[0] == 2048 * (2 * 4 * 4096 + 2 * 4 * 4096 + 6 * 11008)


def test_replicated_state_by_hand():
    # 2 + 4 + 12 bytes a parameter, activations of 32 blocks, 6 bytes a logit.
    kept = 32 * 2048 * (2 * 4 * 4096 + 2 * 4 * 4096 + 6 * 11008) + 6 * 2048 * 32000
    whole = (18 * LLAMA_7B.parameters + kept) * FRAGMENTATION / 2**30
    assert gib() == pytest.approx(whole, rel=1e-6)


def test_sharding_saves_in_order():
    spread = {"dp": 64, "global_batch": 64, "shard_group": 64, "reshard_after_forward": True}
    kinds = [Sharding.NONE, Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3]
    sizes = [gib(sharding=kind, **spread) for kind in kinds]
    assert sizes == sorted(sizes, reverse=True)


def test_sharding_over_more_ranks_saves_less_and_less():
    sizes = [gib(dp=dp, global_batch=dp, sharding=Sharding.ZERO3, shard_group=dp) for dp in (8, 16, 32, 64)]
    steps = [a - b for a, b in itertools.pairwise(sizes)]
    assert all(step > 0 for step in steps)
    assert steps == sorted(steps, reverse=True)


def test_recomputation_saves_activations():
    kinds = [Recompute.NONE, Recompute.POINTWISE, Recompute.SELECTIVE_OPS, Recompute.FULL]
    sizes = [gib(recompute=kind, micro_batch=8, global_batch=64) for kind in kinds]
    assert sizes == sorted(sizes, reverse=True)


def test_scores_are_kept_by_unfused_attention_only():
    long = {"sequence_length": 8192}
    assert gib(attention=Attention.UNFUSED, **long) > gib(attention=Attention.FUSED_SOFTMAX, **long) > gib(**long)


def test_a_first_stage_holds_as_many_micro_batches_as_there_are_stages():
    same = {"dp": 1, "pp": 4, "sequence_length": 8192}
    assert gib(global_batch=8, **same) > gib(global_batch=1, **same)
    assert gib(global_batch=16, **same) == gib(global_batch=8, **same)


@pytest.mark.parametrize(
    ("changes", "measured_gib"),
    [
        # torchtitan_h100_202412, Llama 3.1 8B, peak reserved: eager and compiled on 8 and 128 GPUs.
        ({"dp": "8", "num_gpus": "8", "norm_kernels": "eager"}, 82.4),
        ({"dp": "8", "num_gpus": "8"}, 77.0),
        ({"dp": "128", "num_gpus": "128", "norm_kernels": "eager"}, 67.0),
        ({"dp": "128", "num_gpus": "128"}, 62.0),
    ],
)
def test_printed_peaks_are_met(changes, measured_gib):
    from scaling_study.predict.batch import batch_of
    from tests.unit.predict.setups import LIBRARY

    row = {**GOOD, "gpu": "H100-96GB-500W", "tp": "1", "global_batch": "1024", "sequence_parallel": "0", **changes}
    row["global_batch"] = str(int(row["dp"]) * 2)
    assert float(memory_gib(batch_of([setup_of(row, LIBRARY)]))[0]) == pytest.approx(measured_gib, rel=0.06)


def test_what_does_not_fit_is_told():
    batch = one(dp=8, micro_batch=8, global_batch=64, sequence_length=8192)
    assert not fits(batch, memory_gib(batch))[0]
    small = one(recompute=Recompute.FULL, sharding=Sharding.ZERO3, reshard_after_forward=True)
    assert fits(small, memory_gib(small))[0]
