"""The vocabulary of a workload: what one rank computes, and what it sends, without any time."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from scaling_study.spec import Axis, CollectiveOp


class OperationKind(StrEnum):
    """What bounds an operation."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One computation of one rank.

    Attributes:
        name: what it is in the model, such as `attention.wq` or `attention_norm`.
        flops: multiply and add counted apart.
        moved_bytes: read and written at least, by a fused implementation.
        shape: of a matmul (m, n, k); of attention (batch, heads, key-value heads, sequence, head dimension).
        backward: whether it belongs to the backward pass.
    """

    name: str
    kind: OperationKind
    flops: int
    moved_bytes: int
    shape: tuple[int, ...] = ()
    backward: bool = False


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    """One collective or message of one rank.

    Attributes:
        op: which; its message size is counted as in nccl-tests (the whole buffer).
        message_bytes: of that buffer.
        axis: of the mesh.
        ranks: in its group.
        dtype_bytes: of an element.
        name: what it is for, such as `gather layer 3`.
    """

    op: CollectiveOp
    message_bytes: int
    axis: Axis
    ranks: int
    dtype_bytes: int
    name: str
