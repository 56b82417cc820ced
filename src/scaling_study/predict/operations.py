"""The vocabulary of a workload: what one rank computes, and what it sends, without any time.

Beside what it is, an operation says its dtype and whether it is computed again; a communication says its direction and
peer, where it is one half of a message between pipeline stages.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from scaling_study.spec import Axis, CollectiveOp


class OperationKind(StrEnum):
    """What bounds an operation."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"


class Direction(StrEnum):
    """Which half of a message between two ranks."""

    SEND = "send"
    RECEIVE = "receive"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One computation of one rank.

    Attributes:
        name: what it is in the model, such as `attention.wq` or `attention_norm`; the two matmuls of a matmul's
            backward pass end in `.grad_weight` and `.grad_input`.
        flops: multiply and add counted apart; attention dense, as PyTorch's counter has it (forward 4, backward 10
            times batch x heads x sequence^2 x head dimension, since the backward pass computes the scores again).
        moved_bytes: read and written at least, by a fused implementation.
        shape: of a matmul (m, n, k); of attention (batch, heads, key-value heads, sequence, head dimension).
        backward: whether it runs in the backward pass.
        recomputed: whether it repeats work of the forward pass, for activation checkpointing.
        dtype_bytes: of an element of its operands.
    """

    name: str
    kind: OperationKind
    flops: int
    moved_bytes: int
    shape: tuple[int, ...] = ()
    backward: bool = False
    recomputed: bool = False
    dtype_bytes: int = 2


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    """One collective or message of one rank.

    Attributes:
        op: which; its message size is counted as in nccl-tests (the whole buffer).
        message_bytes: of that buffer.
        axis: of the mesh; None where every rank of several axes takes part.
        ranks: in its group.
        dtype_bytes: of an element.
        name: what it is for, such as `gather block`.
        direction: of `send_recv`, which half of the message this rank has; None for a collective.
        peer: of `send_recv`, the other rank's place in the group.
    """

    op: CollectiveOp
    message_bytes: int
    axis: Axis | None
    ranks: int
    dtype_bytes: int
    name: str
    direction: Direction | None = None
    peer: int | None = None


Step = Operation | Communication
