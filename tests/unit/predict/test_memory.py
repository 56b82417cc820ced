"""Swings put together, and memory by numbers worked out by hand."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.predict.memory import memory_of
from scaling_study.predict.swings import MemoryKind, repeat, sequence, swing
from scaling_study.roofline import least_memory_gib
from scaling_study.spec import ActivationCheckpointing, Precision
from tests.unit.predict.test_workload import BLOCK, MODEL, ROOT, run_of
from tests.unit.samples import CONFIG, bounded

A, B = MemoryKind.ACTIVATIONS, MemoryKind.GRADIENTS
changes = st.lists(st.tuples(st.sampled_from([A, B]), st.integers(-9, 9)), max_size=6)


def test_a_swing():
    found = swing([(A, 5), (B, 3), (A, -4), (B, 1)])
    assert found.change == {A: 1, B: 4}
    assert found.highest == {A: 5, B: 3}
    assert found.rise == 8


def test_what_only_falls_does_not_rise():
    assert swing([(A, -2), (A, 1)]).rise == 0


@bounded
@given(st.lists(changes, max_size=4))
def test_pieces_one_after_another_are_one_swing(pieces):
    together = swing([change for piece in pieces for change in piece])
    found = sequence(swing(piece) for piece in pieces)
    assert found.rise == together.rise
    assert sum(found.change.values()) == sum(together.change.values())


@bounded
@given(changes, st.integers(0, 4))
def test_a_piece_repeated(piece, count):
    found, together = repeat(swing(piece), count), swing(piece * count)
    assert found.rise == together.rise
    assert sum(found.change.values()) == sum(together.change.values())


def test_state_of_one_rank_in_fp32():
    run = run_of(dp=1, global_batch=1, precision=Precision.FP32)
    found = memory_of(run, MODEL).by_kind
    assert found[MemoryKind.WEIGHTS] == 4 * (2 * BLOCK + ROOT)
    assert found[MemoryKind.OPTIMIZER] == 8 * (2 * BLOCK + ROOT) + 4 * (2 * 9 + 3)
    assert found[MemoryKind.OTHER] == 2 * 8 * 2 * 4 + 2 * 8 * 8  # angles of 2 pairs, tokens and targets
    assert MemoryKind.GATHERED not in found
    assert MemoryKind.MESSAGES not in found


def test_gathered_parameters_stay_without_resharding():
    run = run_of(dp=2, micro_batch=64, global_batch=128)
    kept, released = (
        memory_of(msgspec.structs.replace(run, reshard_after_forward=reshards), MODEL).by_kind
        for reshards in (False, True)
    )
    assert kept[MemoryKind.GATHERED] == 2 * (2 * BLOCK + ROOT)
    assert MemoryKind.GATHERED not in released  # the peak is at the loss


def test_activations_of_the_7b():
    """Per token and block: fp32 copies and casts of two norms, their outputs, q, k, v, the output, four of SwiGLU.

    Beside them the logits of two sequences three times in fp32.
    """
    run = run_of(dp=256, micro_batch=2, global_batch=512, sequence_length=4096)
    found = memory_of(run, CONFIG.catalogue.models["llama2-7b"]).by_kind
    hidden, ffn, tokens = 4096, 11008, 8192
    token = 2 * (4 + 2 + 2) * hidden + 2 * 4 + 4 * 2 * hidden + 4 * 32 + 4 * 2 * ffn
    angles = 2 * 4096 * 64 * 2
    assert found[MemoryKind.LOGITS] == 3 * tokens * 32000 * 4
    assert found[MemoryKind.ACTIVATIONS] == pytest.approx(32 * (tokens * token + angles), rel=0.01)


@pytest.mark.parametrize(("pp", "rank", "flying"), [(4, 0, 4), (4, 2, 2), (4, 3, 1)])
def test_micro_batches_in_flight(pp, rank, flying):
    model = msgspec.structs.replace(MODEL, layers=8)
    longer = msgspec.structs.replace(model, layers=16)
    run = run_of(dp=1, pp=pp, micro_batch=64, global_batch=64 * 8)
    more, less = (memory_of(run, one, rank).by_kind[MemoryKind.ACTIVATIONS] for one in (longer, model))
    single = run_of(dp=1, micro_batch=64, global_batch=64)
    block = [
        memory_of(single, msgspec.structs.replace(MODEL, layers=n)).by_kind[MemoryKind.ACTIVATIONS] for n in (9, 8)
    ]
    assert more - less == flying * 2 * (block[0] - block[1])


def test_checkpointing_trades_activations_for_work():
    model = CONFIG.catalogue.models["llama2-7b"]
    run = run_of(dp=256, tp=2, micro_batch=2, global_batch=512, sequence_length=4096)
    none, selective, full = (
        memory_of(msgspec.structs.replace(run, activation_checkpointing=kind), model).by_kind[MemoryKind.ACTIVATIONS]
        for kind in ActivationCheckpointing
    )
    assert full < selective / 4 < none / 4


layouts = st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.booleans())


@bounded
@given(layouts, st.sampled_from(list(Precision)), st.sampled_from(list(ActivationCheckpointing)))
def test_memory_is_above_the_bound(layout, precision, checkpointing):
    dp, tp, pp, reshards = layout
    run = run_of(
        dp=dp,
        tp=tp,
        pp=pp,
        micro_batch=4,
        global_batch=4 * dp * pp,
        precision=precision,
        reshard_after_forward=reshards,
        activation_checkpointing=checkpointing,
    )
    peaks = [memory_of(run, MODEL, stage) for stage in range(pp)]
    assert max(peak.peak_gib for peak in peaks) >= least_memory_gib(run, MODEL)
    assert all(sum(peak.by_kind.values()) == peak.peak_bytes for peak in peaks)
