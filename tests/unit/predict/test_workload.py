"""The closed forms by numbers worked out by hand, and what must hold for every run."""

from collections import Counter

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scaling_study.predict.operations import Communication, Direction, Operation, OperationKind
from scaling_study.predict.workload import workload_of
from scaling_study.roofline import model_flops_per_token
from scaling_study.spec import (
    ActivationCheckpointing,
    Axis,
    CollectiveOp,
    Model,
    PipelineSchedule,
    Precision,
    Protocol,
    ReductionDtype,
)
from tests.unit.samples import CONFIG, bounded, training_run

MODEL = Model(name="small", layers=2, hidden=16, heads=4, kv_heads=2, ffn=24, vocabulary=64, source="test")
#: wq and wo 16 x 16, wk and wv 8 x 16, three of 24 x 16, two norms of 16
BLOCK = 2 * 256 + 2 * 128 + 3 * 384 + 2 * 16
ROOT = 2 * 64 * 16 + 16
FULL, SELECTIVE = ActivationCheckpointing.FULL, ActivationCheckpointing.SELECTIVE


def run_of(**fields):
    return training_run(**{"precision": Precision.BF16, "sequence_length": 8, "micro_batch": 1, **fields})


def communications(run, stage=0, model=MODEL):
    return [step for step in workload_of(run, model, stage).steps() if isinstance(step, Communication)]


def operations(run, stage=0, model=MODEL):
    return [step for step in workload_of(run, model, stage).steps() if isinstance(step, Operation)]


def named(steps, name):
    return [step for step in steps if step.name == name]


def test_parameters_of_the_sample():
    assert MODEL.layer_parameters == BLOCK
    assert MODEL.parameters == 2 * BLOCK + ROOT


def test_matmuls_of_a_block_forward():
    steps = operations(run_of(dp=1, global_batch=3, micro_batch=3))
    forward = [(s.name, s.shape) for s in steps if s.kind is OperationKind.MATMUL and not s.backward]
    block = [
        ("attention.wq", (24, 16, 16)),
        ("attention.wk", (24, 8, 16)),
        ("attention.wv", (24, 8, 16)),
        ("attention.wo", (24, 16, 16)),
        ("feed_forward.w1", (24, 24, 16)),
        ("feed_forward.w3", (24, 24, 16)),
        ("feed_forward.w2", (24, 16, 24)),
    ]
    assert forward == [*block, *block, ("output", (24, 64, 16))]


def test_matmuls_of_a_weight_backward():
    steps = operations(run_of(dp=1, global_batch=3, micro_batch=3))
    assert {s.shape for s in named(steps, "attention.wk.grad_weight")} == {(8, 16, 24)}
    assert {s.shape for s in named(steps, "attention.wk.grad_input")} == {(24, 16, 8)}
    assert {s.shape for s in named(steps, "output.grad_weight")} == {(64, 16, 24)}
    assert {s.shape for s in named(steps, "output.grad_input")} == {(24, 16, 64)}
    assert {s.flops for s in named(steps, "output.grad_input")} == {2 * 24 * 16 * 64}


def test_attention():
    forward, backward = (
        [s for s in operations(run_of(dp=1, micro_batch=2, global_batch=2)) if s.kind is OperationKind.ATTENTION][i]
        for i in (0, -1)
    )
    assert forward.shape == backward.shape == (2, 4, 2, 8, 4)
    assert forward.flops == 4 * 2 * 4 * 8 * 8 * 4
    assert backward.flops == 10 * 2 * 4 * 8 * 8 * 4
    #: q and out of 2 x 8 x 16 bf16 elements, k and v of 2 x 8 x 8, a fp32 logarithm for each of 2 x 8 x 4 rows
    assert forward.moved_bytes == (2 * 256 + 2 * 128) * 2 + 64 * 4
    assert backward.moved_bytes == 2 * (2 * 256 + 2 * 128) * 2 + 64 * 4


def expected_flops(run, model):
    """Of all ranks together, without recomputation: 6 a parameter of a matmul and token, and 14 for attention.

    The study's MFU counts 6 a parameter, embedding and norms included, and 12 for attention, without its recomputation.
    """
    idle = model.embedding_parameters + (2 * model.layers + 1) * model.hidden
    attention = 2 * model.layers * model.hidden * run.sequence_length
    token = model_flops_per_token(model, run.sequence_length) - 6 * idle + attention
    return token * run.tokens_per_iteration


def all_flops(run, model):
    return sum(workload_of(run, model, stage).flops for stage in range(run.pp)) * run.dp * run.tp


@pytest.mark.parametrize("name", ["llama2-7b", "llama2-70b"])
def test_flops_of_a_large_model(name):
    model = CONFIG.catalogue.models[name]
    run = run_of(dp=64, tp=8, pp=4, micro_batch=2, global_batch=1024, sequence_length=4096)
    assert all_flops(run, model) == expected_flops(run, model)


LAYOUTS = st.tuples(*[st.sampled_from([1, 2])] * 3, st.sampled_from([1, 2]), st.integers(1, 3), st.booleans())


@bounded
@given(LAYOUTS, st.sampled_from(list(Precision)))
def test_flops_do_not_depend_on_the_layout(layout, precision):
    dp, tp, pp, micro_batch, rounds, interleaved = layout
    assume(pp > 1 or not interleaved)
    model = msgspec.structs.replace(MODEL, layers=4)
    choice = {"schedule": PipelineSchedule.INTERLEAVED, "virtual_stages": 2} if interleaved else {}
    batch = dp * micro_batch * pp * rounds
    run = run_of(dp=dp, tp=tp, pp=pp, micro_batch=micro_batch, global_batch=batch, precision=precision, **choice)
    assert all_flops(run, model) == expected_flops(run, model)


@bounded
@given(st.sampled_from([1, 2, 4]), st.sampled_from(list(ActivationCheckpointing)))
def test_work_splits_evenly_over_the_tensor_axis(tp, checkpointing):
    model = msgspec.structs.replace(MODEL, kv_heads=4)
    runs = [run_of(dp=2, tp=size, global_batch=4, activation_checkpointing=checkpointing) for size in (1, tp)]
    whole, part = (workload_of(run, model).flops for run in runs)
    assert whole == tp * part


def test_full_checkpointing_repeats_all_but_the_last_matmul():
    again = [s for s in operations(run_of(dp=1, global_batch=1, activation_checkpointing=FULL)) if s.recomputed]
    matmuls = Counter(s.name for s in again if s.kind is OperationKind.MATMUL)
    names = {f"attention.w{x}" for x in "qkvo"} | {"feed_forward.w1", "feed_forward.w3"}
    assert matmuls == dict.fromkeys(names, 2)
    assert sum(s.kind is OperationKind.ATTENTION for s in again) == 2
    assert all(s.backward for s in again)


def test_selective_checkpointing_repeats_element_wise_work_only():
    plain = operations(run_of(dp=1, global_batch=1))
    steps = operations(run_of(dp=1, global_batch=1, activation_checkpointing=SELECTIVE))
    again = [s for s in steps if s.recomputed]
    assert {s.kind for s in again} == {OperationKind.ELEMENTWISE}
    assert [s for s in steps if not s.recomputed] == plain


def test_gathers_without_resharding_are_once_a_step_however_many_micro_batches():
    found = communications(run_of(dp=2, global_batch=8))
    assert [(c.op, c.message_bytes) for c in found] == [
        (CollectiveOp.ALL_GATHER, 2 * ROOT),
        (CollectiveOp.ALL_GATHER, 2 * BLOCK),
        (CollectiveOp.ALL_GATHER, 2 * BLOCK),
        (CollectiveOp.REDUCE_SCATTER, 4 * BLOCK),
        (CollectiveOp.REDUCE_SCATTER, 4 * BLOCK),
        (CollectiveOp.REDUCE_SCATTER, 4 * ROOT),
    ]
    assert {(c.axis, c.ranks) for c in found} == {(Axis.DATA, 2)}


def test_resharding_gathers_again_in_every_backward_pass():
    counts = Counter(c.op for c in communications(run_of(dp=2, global_batch=8, reshard_after_forward=True)))
    assert counts == {CollectiveOp.ALL_GATHER: 4 * 2 * 3, CollectiveOp.REDUCE_SCATTER: 3}


def test_resharding_gathers_ahead_in_the_backward_pass():
    model = msgspec.structs.replace(MODEL, layers=3)
    steps = list(workload_of(run_of(dp=2, global_batch=2, reshard_after_forward=True), model).steps())
    backward = steps[[s.name for s in steps].index("loss.grad") - 6 :]
    names = [s.name for s in backward if s.name.startswith("gather ") or s.name.endswith("w2.grad_weight")]
    w2 = "feed_forward.w2.grad_weight"
    assert names == ["gather root", "gather block", "gather block", w2, "gather block", w2, w2]


def test_reduction_in_bf16_halves_the_bytes():
    wide, narrow = (communications(run_of(dp=2, global_batch=2, reduction_dtype=dtype)) for dtype in ReductionDtype)
    for one, other in zip(wide, narrow, strict=True):
        factor = 2 if one.op is CollectiveOp.REDUCE_SCATTER else 1
        assert one.message_bytes == factor * other.message_bytes


def test_rows_are_padded_to_the_data_parallel_ranks():
    """Rows of 16, 8, 8, 16 and 24, 16, 24 over 10 ranks become 20, 10, 10, 20 and 30, 20, 30."""
    block = 2 * 20 + (20 + 10 + 10 + 20) * 16 + 30 * 16 + 20 * 24 + 30 * 16
    gathers = named(communications(run_of(dp=10, global_batch=10)), "gather block")
    assert {c.message_bytes for c in gathers} == {2 * block}


def test_tensor_parallel_collectives_of_a_block():
    """Four a block and direction over all tokens, one for the embedding, the head's, and the logits once."""
    found = communications(run_of(dp=1, tp=2, micro_batch=2, global_batch=2))
    tokens, logits = 2 * 8 * 16 * 2, 2 * 8 * 64 * 2
    counts = Counter((c.op, c.message_bytes) for c in found)
    assert counts == {
        (CollectiveOp.ALL_GATHER, tokens): 2 * 4 + 1 + 1,
        (CollectiveOp.REDUCE_SCATTER, tokens): 2 * 4 + 1 + 1,
        (CollectiveOp.ALL_GATHER, logits): 1,
        (CollectiveOp.ALL_REDUCE, 16 * 2): 2 * 2 + 1,
    }
    assert {(c.axis, c.ranks) for c in found} == {(Axis.TENSOR, 2)}


@pytest.mark.parametrize(("batch", "dtype_bytes"), [(1, 2), (2, 4)])
def test_norm_gradients_are_added_up_in_the_dtype_that_they_have(batch, dtype_bytes):
    found = named(communications(run_of(dp=1, tp=2, global_batch=batch)), "gradient of a norm")
    assert {(c.message_bytes, c.dtype_bytes) for c in found} == {(16 * dtype_bytes, dtype_bytes)}


def test_clipping_reduces_one_number_a_parameter_then_one():
    run = run_of(dp=2, tp=2, pp=2, global_batch=4, protocol=Protocol(max_gradient_norm=1.0))
    assert [(c.axis, c.message_bytes) for c in communications(run)[-3:]] == [
        (Axis.DATA, 4 * 10),  # nine of a block and the embedding
        (Axis.TENSOR, 4 * 10),
        (Axis.PIPELINE, 4),
    ]


@pytest.mark.parametrize(("dp", "tp", "axis"), [(4, 1, Axis.DATA), (1, 2, Axis.TENSOR), (2, 2, None), (1, 1, None)])
def test_the_loss_scaler_asks_every_rank(dp, tp, axis):
    found = named(communications(run_of(dp=dp, tp=tp, global_batch=dp, precision=Precision.FP16)), "finite")
    assert [(c.axis, c.ranks, c.message_bytes) for c in found] == [(axis, dp * tp, 4)]


def test_messages_between_stages():
    model = msgspec.structs.replace(MODEL, layers=3)
    run = run_of(dp=1, pp=3, micro_batch=2, global_batch=8)
    size = 2 * 8 * 16 * 2
    for stage, peers in enumerate([{1}, {0, 2}, {1}]):
        found = [c for c in communications(run, stage, model) if c.op is CollectiveOp.SEND_RECV]
        assert Counter((c.direction, c.peer) for c in found) == {
            (direction, peer): 4 for direction in Direction for peer in peers
        }
        assert {(c.message_bytes, c.axis, c.ranks) for c in found} == {(size, Axis.PIPELINE, 3)}


def test_one_rank_in_fp32_sends_nothing():
    assert communications(run_of(dp=1, global_batch=2, precision=Precision.FP32)) == []


@bounded
@given(LAYOUTS, st.sampled_from(list(ActivationCheckpointing)), st.booleans())
def test_the_tally_is_what_the_steps_are(layout, checkpointing, reshards):
    dp, tp, pp, micro_batch, rounds, interleaved = layout
    assume(pp > 1 or not interleaved)
    choice = {"schedule": PipelineSchedule.INTERLEAVED, "virtual_stages": 2} if interleaved else {}
    run = run_of(
        dp=dp,
        tp=tp,
        pp=pp,
        micro_batch=micro_batch,
        global_batch=dp * micro_batch * pp * rounds,
        activation_checkpointing=checkpointing,
        reshard_after_forward=reshards,
        **choice,
    )
    model = msgspec.structs.replace(MODEL, layers=4)
    for stage in range(pp):
        workload = workload_of(run, model, stage)
        assert workload.tally() == Counter(workload.steps())


def test_a_large_run_is_small():
    model = CONFIG.catalogue.models["llama2-70b"]
    run = run_of(dp=16, tp=8, pp=16, global_batch=2048, sequence_length=4096)
    workload = workload_of(run, model, 3)
    assert len(workload.passes) < 20
    assert sum(len(part.steps) for one in workload.passes for part in one.parts) < 1000
    assert sum(1 for _ in workload.steps()) > 10_000
