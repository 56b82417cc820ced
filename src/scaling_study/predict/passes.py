"""The inside of a pass: a stage's blocks with the collectives in and beside them, as spans relative to its start.

A block computes in two parts, attention and MLP, each between its tensor-parallel collectives; what of a collective is
hidden lies over the computation before it. Gathers of sharded parameters and reductions of gradients are on a stream
of their own: gather i + 1 starts with block i, and a block waits for its own (`fast._sharding` is the closed form).
"""

from __future__ import annotations

import msgspec

from scaling_study.spec import Axis, CollectiveOp, SpanKind

COMPUTE_STREAM, TENSOR_STREAM, DATA_STREAM, PIPELINE_STREAM = "compute", "comm_tp", "comm_dp", "comm_pp"


class Span(msgspec.Struct, frozen=True):
    """A span of a pass: seconds from the pass's start."""

    stream: str
    kind: SpanKind
    op: str
    axis: Axis | None
    message_bytes: int | None
    start_s: float
    end_s: float


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """One pass through a stage: how long the stage is busy with it, and its spans."""

    seconds: float
    spans: tuple[Span, ...]


class BlockTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one block in one pass.

    Attributes:
        whole: from start to end; what is neither computation nor exposed communication is the host's.
        compute: on the device, not slowed.
        exposed: of the tensor-parallel collectives; `wire` is their whole length.
        attention_share: of the computation that lies before the MLP.
        parallel: whether there are tensor-parallel collectives, and whether they are split by sequence.
    """

    whole: float
    compute: float
    exposed: float
    wire: float
    attention_share: float
    tensor: bool
    sequence: bool
    message_bytes: int


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds and bytes of a block's sharded parameters and gradients on the wire, in one pass; 0 where there are none.

    Attributes:
        gather, reduce: of a block; `gather_ends`, `reduce_ends`: of embedding and head.
        slowdown: of computation, as a share of the communication beside it.
    """

    gather: float = 0.0
    reduce: float = 0.0
    gather_ends: float = 0.0
    reduce_ends: float = 0.0
    gather_bytes: int = 0
    reduce_bytes: int = 0
    slowdown: float = 0.0


def build_pass(blocks: int, times: BlockTimes, beside: Beside, ends_s: float, *, backward: bool) -> Pass:
    """A forward or a backward pass of a stage of that many blocks.

    Args:
        ends_s: embedding, head and loss, before the blocks in a backward pass and after them in a forward one.
    """
    spans: list[Span] = []
    wire = beside.gather + beside.reduce
    step = max(times.whole + beside.slowdown * min(times.whole, wire), wire)
    cursor = 0.0
    if not backward and beside.gather:
        spans.append(_data("all_gather", beside.gather_bytes, 0.0, beside.gather + beside.gather_ends))
        cursor = beside.gather + beside.gather_ends
    if backward and ends_s:
        spans.append(_computation("loss", cursor, cursor + ends_s))
        cursor += ends_s
    for index in range(blocks):
        name = f"block {blocks - 1 - index if backward else index}"
        spans += _block(name, times, cursor, step)
        spans += _collectives_beside(beside, cursor, last=index == blocks - 1, backward=backward)
        cursor += step
    if not backward and ends_s:
        spans.append(_computation("head", cursor, cursor + ends_s))
        cursor += ends_s
    if backward and beside.reduce:
        tail = beside.reduce + beside.reduce_ends
        spans.append(_data("reduce_scatter", beside.reduce_bytes, cursor, cursor + tail))
        cursor += tail
    return Pass(seconds=cursor, spans=tuple(spans))


def _collectives_beside(beside: Beside, start: float, *, last: bool, backward: bool) -> list[Span]:
    """The gather of the next block and the reduction of the one before, one after another."""
    found: list[Span] = []
    if beside.gather and (backward or not last):
        found.append(_data("all_gather", beside.gather_bytes, start, start + beside.gather))
        start += beside.gather
    if beside.reduce:
        found.append(_data("reduce_scatter", beside.reduce_bytes, start, start + beside.reduce))
    return found


def _block(name: str, times: BlockTimes, start: float, step: float) -> list[Span]:
    """Computation and tensor-parallel collectives of one block inside `step` seconds."""
    busy = times.compute + times.exposed
    stretch = max(1.0, (step - max(0.0, times.whole - busy)) / busy) if busy else 1.0
    compute = times.compute * stretch if step > times.whole else times.compute
    compute = min(compute, step - times.exposed)
    found: list[Span] = []
    cursor = start
    for part, share in (("attention", times.attention_share), ("mlp", 1 - times.attention_share)):
        length = compute * share
        before, after = (times.exposed / 4, times.exposed / 4) if times.sequence else (0.0, times.exposed / 2)
        if times.tensor and times.sequence:
            found.append(_tensor(CollectiveOp.ALL_GATHER, times, cursor, cursor + before, times.wire / 4))
            cursor += before
        found.append(_computation(f"{name} {part}", cursor, cursor + length))
        cursor += length
        if times.tensor:
            op = CollectiveOp.REDUCE_SCATTER if times.sequence else CollectiveOp.ALL_REDUCE
            wire = times.wire / (4 if times.sequence else 2)
            found.append(_tensor(op, times, cursor, cursor + after, wire))
            cursor += after
    return found


def _computation(op: str, start: float, end: float) -> Span:
    return Span(COMPUTE_STREAM, SpanKind.COMPUTE, op, None, None, start, end)


def _tensor(op: CollectiveOp, times: BlockTimes, start: float, end: float, wire: float) -> Span:
    """A collective that ends where its exposed part does; what is hidden began before."""
    begin = min(start, max(0.0, end - wire))
    return Span(TENSOR_STREAM, SpanKind.COMMUNICATION, op.value, Axis.TENSOR, times.message_bytes, begin, end)


def _data(op: str, message_bytes: int, start: float, end: float) -> Span:
    return Span(DATA_STREAM, SpanKind.COMMUNICATION, op, Axis.DATA, message_bytes, start, end)
