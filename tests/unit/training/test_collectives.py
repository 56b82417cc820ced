"""Primitives return what they must on real ranks, and one that does not is found out."""

from scaling_study.spec import CollectiveOp, CollectiveRun, Precision
from tests.ranks import run_on_ranks

RANKS = 3


def run_of(op, dtype, message_bytes=4 * RANKS * 8):
    return CollectiveRun(op=op, hardware="cpu", nodes=RANKS, message_bytes=message_bytes, dtype=dtype)


def _seen():
    """Of every primitive and dtype the elements of its buffers; of every wrong result whether it is found."""
    import torch

    from scaling_study.training.collectives import Primitive, WrongResultError

    sizes, found, cpu = {}, {}, torch.device("cpu")
    for op in CollectiveOp:
        for dtype in (Precision.FP32, Precision.BF16):
            primitive = Primitive(run_of(op, dtype), cpu)
            primitive.check()
            primitive()
            assert not primitive.output.isnan().any()
            sizes[op.value, dtype.value] = (primitive.input.numel(), primitive.output.numel())
        for fault in (_off_by_one, _rolled, _without_the_last_rank):
            primitive = Primitive(run_of(op, Precision.FP32), cpu)
            fault(primitive)
            try:
                primitive.check()
            except WrongResultError as error:
                found[op.value, fault.__name__] = str(error)
    return sizes, found


def _off_by_one(primitive):
    right = primitive._call
    primitive._call = lambda: (right(), primitive.output[-1].add_(1))


def _rolled(primitive):
    """As if shards, or neighbours, were exchanged."""
    right = primitive._call
    shift = primitive.output.numel() // RANKS

    def wrong():
        right()
        others = primitive.run.op in (CollectiveOp.REDUCE_SCATTER, CollectiveOp.SEND_RECV)
        primitive.output.copy_(primitive.output.roll(shift) + (1 if others else 0))

    primitive._call = wrong


def _without_the_last_rank(primitive):
    right = primitive._call

    def wrong():
        if primitive.rank == RANKS - 1:
            primitive.input.zero_()
            if primitive.run.op is CollectiveOp.ALL_REDUCE:
                primitive.output.zero_()
        right()

    primitive._call = wrong


def _refused():
    import torch

    from scaling_study.training.collectives import Primitive

    try:
        Primitive(run_of(CollectiveOp.ALL_GATHER, Precision.FP32, 28), torch.device("cpu"))
    except ValueError as error:
        return str(error)
    return None


def _both():
    return *_seen(), _refused()


def test_primitives_on_ranks():
    for rank, (sizes, found, refused) in enumerate(run_on_ranks(_both, RANKS)):
        assert sizes["all_reduce", "fp32"] == (0, 24)
        assert sizes["all_gather", "fp32"] == (8, 24)
        assert sizes["reduce_scatter", "fp32"] == (24, 8)
        assert sizes["send_recv", "fp32"] == (24, 24)
        assert sizes["all_gather", "bf16"] == (16, 48)
        everywhere = {(op, fault) for op in CollectiveOp for fault in ("_off_by_one", "_rolled")}
        lost = {(op, "_without_the_last_rank") for op in CollectiveOp if op != "send_recv" or rank == 0}
        assert set(found) == everywhere | lost
        assert found["all_reduce", "_rolled"] == "all_reduce over 3 ranks returned wrong values"
        assert refused == "28 bytes of fp32 cannot be split evenly over 3 ranks"
