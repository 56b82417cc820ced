"""Primitives return what they must on real ranks, and one that does not is found out."""

import pytest

from scaling_study.spec import CollectiveOp, CollectiveRun, Precision
from tests.ranks import run_on_ranks

RANKS = 3


def run_of(op, dtype, message_bytes=4 * RANKS * 8):
    return CollectiveRun(op=op, hardware="cpu", nodes=RANKS, message_bytes=message_bytes, dtype=dtype)


def _checked():
    """Every primitive in every dtype that a mini or a full study uses: sizes of its buffers, in elements."""
    import torch

    from scaling_study.training.collectives import Primitive

    sizes = {}
    for op in CollectiveOp:
        for dtype in (Precision.FP32, Precision.BF16):
            primitive = Primitive(run_of(op, dtype), torch.device("cpu"))
            primitive.check()
            primitive()
            assert not primitive.output.isnan().any()
            sizes[op.value, dtype.value] = (primitive.input.numel(), primitive.output.numel())
    return sizes


def _found_out(op_name):
    import torch

    from scaling_study.training.collectives import Primitive, WrongResultError

    primitive = Primitive(run_of(CollectiveOp(op_name), Precision.FP32), torch.device("cpu"))
    right = primitive._call

    def wrong():
        right()
        primitive.output[-1] += 1

    primitive._call = wrong
    try:
        primitive.check()
    except WrongResultError as error:
        return str(error)
    return None


def test_buffers_have_the_size_that_nccl_tests_means():
    for sizes in run_on_ranks(_checked, RANKS):
        assert sizes["all_reduce", "fp32"][1] == 24
        assert sizes["all_gather", "fp32"] == (8, 24)
        assert sizes["reduce_scatter", "fp32"] == (24, 8)
        assert sizes["send_recv", "fp32"] == (24, 24)
        assert sizes["all_gather", "bf16"] == (16, 48)


@pytest.mark.parametrize("op", ["all_reduce", "send_recv"])
def test_a_wrong_value_is_found(op):
    assert run_on_ranks(_found_out, RANKS, op) == [f"{op} over 3 ranks returned wrong values"] * RANKS


def _refused():
    import torch

    from scaling_study.training.collectives import Primitive

    with pytest.raises(ValueError, match="28 bytes of fp32 cannot be split evenly over 3 ranks"):
        Primitive(run_of(CollectiveOp.ALL_GATHER, Precision.FP32, 28), torch.device("cpu"))


def test_a_message_that_cannot_be_split_is_refused():
    run_on_ranks(_refused, RANKS)
