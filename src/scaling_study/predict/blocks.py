"""What a tensor-parallel rank computes and sends for one micro-batch in the parts of the model, forward and backward.

The order is that of the training code on one rank: the forward pass as written in `training.model`, the backward pass
as autograd runs it (the newest operation first; of a matmul the weight's gradient, then the input's). Element-wise
operations stand for what a fused implementation must move; PyTorch's eager operators move more.
"""

from __future__ import annotations

import functools

from scaling_study.predict.operations import Communication, Operation, OperationKind, Step
from scaling_study.predict.share import Share
from scaling_study.spec import ActivationCheckpointing, Axis, CollectiveOp

Steps = tuple[Step, ...]


def matmul(name: str, shape: tuple[int, int, int], share: Share, *, backward: bool = False) -> Operation:
    """A matrix product of (m, k) with (k, n): 2 m n k FLOPs; both operands are read and the result is written."""
    m, n, k = shape
    return Operation(
        name=name,
        kind=OperationKind.MATMUL,
        flops=2 * m * n * k,
        moved_bytes=(m * k + k * n + m * n) * share.dtype_bytes,
        shape=shape,
        backward=backward,
        dtype_bytes=share.dtype_bytes,
    )


def linear(name: str, share: Share, rows: int, columns: int) -> Operation:
    """Every token of the micro-batch through a weight of (rows, columns)."""
    return matmul(name, (share.tokens, rows, columns), share)


def linear_backward(name: str, share: Share, rows: int, columns: int) -> tuple[Operation, Operation]:
    """The gradients of a linear layer's weight and input."""
    weight = matmul(f"{name}.grad_weight", (rows, columns, share.tokens), share, backward=True)
    return weight, matmul(f"{name}.grad_input", (share.tokens, columns, rows), share, backward=True)


def attention(share: Share, *, backward: bool = False) -> Operation:
    """Causal attention in one kernel that never writes the scores (Dao, 2023).

    Dense FLOPs: two products forward, five backward. Forward reads q, k, v and writes the output and a logarithm a row;
    backward reads these and the output's gradient, and writes three gradients.
    """
    query, key = share.tokens * share.query, share.tokens * share.key
    moved = (2 * query + 2 * key) * share.dtype_bytes + share.tokens * share.heads * 4
    if backward:
        moved += (2 * query + 2 * key) * share.dtype_bytes
    return Operation(
        name="attention.scores.grad" if backward else "attention.scores",
        kind=OperationKind.ATTENTION,
        flops=(10 if backward else 4) * share.tokens * share.sequence * share.query,
        moved_bytes=moved,
        shape=(share.batch, share.heads, share.kv_heads, share.sequence, share.head_dim),
        backward=backward,
        dtype_bytes=share.dtype_bytes,
    )


def elementwise(name: str, moved_bytes: int, dtype_bytes: int, *, backward: bool = False) -> Operation:
    """Something bound by the bytes that it moves; its few FLOPs are not counted."""
    return Operation(
        name=name,
        kind=OperationKind.ELEMENTWISE,
        flops=0,
        moved_bytes=moved_bytes,
        backward=backward,
        dtype_bytes=dtype_bytes,
    )


def _local(name: str, share: Share, tensors: int, *, backward: bool = False) -> Operation:
    """An element-wise operation over the residual stream's local tokens, that touches so many tensors of it."""
    moved = tensors * share.local_tokens * share.hidden * share.dtype_bytes
    return elementwise(name, moved, share.dtype_bytes, backward=backward)


def _tensor_parallel(op: CollectiveOp, name: str, share: Share, columns: int) -> tuple[Communication, ...]:
    """A collective over all tokens, nothing where the group has one rank."""
    if share.tp == 1:
        return ()
    message = share.tokens * columns * share.dtype_bytes
    return (
        Communication(
            op=op, message_bytes=message, axis=Axis.TENSOR, ranks=share.tp, dtype_bytes=share.dtype_bytes, name=name
        ),
    )


def gather_tokens(name: str, share: Share) -> tuple[Communication, ...]:
    """Every rank's tokens of the residual stream, put together."""
    return _tensor_parallel(CollectiveOp.ALL_GATHER, f"gather tokens: {name}", share, share.hidden)


def scatter_tokens(name: str, share: Share) -> tuple[Communication, ...]:
    """Partial sums of the residual stream added up, each rank keeps its tokens."""
    return _tensor_parallel(CollectiveOp.REDUCE_SCATTER, f"scatter tokens: {name}", share, share.hidden)


def _rotary(share: Share, *, backward: bool = False) -> Operation:
    moved = 2 * share.tokens * (share.query + share.key) * share.dtype_bytes
    return elementwise("attention.rotary", moved, share.dtype_bytes, backward=backward)


def _swiglu(share: Share, tensors: int, *, backward: bool = False) -> Operation:
    moved = tensors * share.tokens * share.ffn * share.dtype_bytes
    return elementwise("feed_forward.swiglu", moved, share.dtype_bytes, backward=backward)


@functools.lru_cache(maxsize=64)
def block_forward(share: Share) -> Steps:
    """One transformer block on one micro-batch."""
    hidden, query, key, ffn = share.hidden, share.query, share.key, share.ffn
    return (
        _local("attention_norm", share, 2),
        *gather_tokens("attention", share),
        linear("attention.wq", share, query, hidden),
        linear("attention.wk", share, key, hidden),
        linear("attention.wv", share, key, hidden),
        _rotary(share),
        attention(share),
        linear("attention.wo", share, hidden, query),
        *scatter_tokens("attention", share),
        _local("attention.residual", share, 3),
        _local("ffn_norm", share, 2),
        *gather_tokens("feed_forward", share),
        linear("feed_forward.w1", share, ffn, hidden),
        linear("feed_forward.w3", share, ffn, hidden),
        _swiglu(share, 3),
        linear("feed_forward.w2", share, hidden, ffn),
        *scatter_tokens("feed_forward", share),
        _local("feed_forward.residual", share, 3),
    )


@functools.lru_cache(maxsize=64)
def block_backward(share: Share, checkpointing: ActivationCheckpointing) -> Steps:
    """The gradients of one block; what was not kept is computed again when a gradient first needs it."""
    hidden, query, key, ffn = share.hidden, share.query, share.key, share.ffn
    return (
        *gather_tokens("feed_forward.grad", share),
        *recomputation(share, checkpointing),
        *linear_backward("feed_forward.w2", share, hidden, ffn),
        _swiglu(share, 5, backward=True),
        *linear_backward("feed_forward.w3", share, ffn, hidden),
        *linear_backward("feed_forward.w1", share, ffn, hidden),
        *scatter_tokens("feed_forward.grad", share),
        _local("ffn_norm.grad", share, 3, backward=True),
        _local("feed_forward.residual.grad", share, 3, backward=True),
        *gather_tokens("attention.grad", share),
        *linear_backward("attention.wo", share, hidden, query),
        attention(share, backward=True),
        _rotary(share, backward=True),
        *linear_backward("attention.wv", share, key, hidden),
        *linear_backward("attention.wk", share, key, hidden),
        *linear_backward("attention.wq", share, query, hidden),
        *scatter_tokens("attention.grad", share),
        _local("attention_norm.grad", share, 3, backward=True),
        _local("attention.residual.grad", share, 3, backward=True),
    )


def recomputation(share: Share, checkpointing: ActivationCheckpointing) -> Steps:
    """What the backward pass of a block computes again.

    PyTorch stops once the last tensor that it needs is there, so the block's last matmul, and what follows it, is not
    repeated (`torch.utils.checkpoint`, early stop). Selective checkpointing keeps matmuls, attention and collectives.
    """
    if checkpointing is ActivationCheckpointing.NONE:
        return ()
    forward = block_forward(share)
    last = max(index for index, step in enumerate(forward) if step.name == "feed_forward.w2")
    again: list[Step] = []
    for step in forward[:last]:
        if isinstance(step, Communication):
            again.append(step)
        else:
            again.append(_again(step))
    if checkpointing is ActivationCheckpointing.SELECTIVE:
        return tuple(s for s in again if isinstance(s, Operation) and s.kind is OperationKind.ELEMENTWISE)
    return tuple(again)


def _again(step: Operation) -> Operation:
    return Operation(
        name=step.name,
        kind=step.kind,
        flops=step.flops,
        moved_bytes=step.moved_bytes,
        shape=step.shape,
        backward=True,
        recomputed=True,
        dtype_bytes=step.dtype_bytes,
    )


def embedding_forward(share: Share) -> Steps:
    """Rows of the table for every token; a rank adds zeros for words that another one holds."""
    rows = elementwise("tok_embeddings", 2 * share.tokens * share.hidden * share.dtype_bytes, share.dtype_bytes)
    return (rows, *scatter_tokens("tok_embeddings", share))


def embedding_backward(share: Share) -> Steps:
    """The gradient of the whole table, dense: zeros are written, and rows added to it."""
    touched = share.local_vocabulary * share.hidden + 3 * share.tokens * share.hidden
    rows = elementwise("tok_embeddings.grad", touched * share.dtype_bytes, share.dtype_bytes, backward=True)
    return (*gather_tokens("tok_embeddings.grad", share), rows)


def head_forward(share: Share) -> Steps:
    """Final norm, logits and loss; the logits are gathered whole, and the loss reads them in one pass."""
    logits = share.tokens * share.vocabulary * share.dtype_bytes
    return (
        _local("norm", share, 2),
        *gather_tokens("output", share),
        linear("output", share, share.local_vocabulary, share.hidden),
        *_tensor_parallel(CollectiveOp.ALL_GATHER, "gather logits", share, share.vocabulary),
        elementwise("loss", logits, share.dtype_bytes),
    )


def head_backward(share: Share) -> Steps:
    """From the loss to the residual stream; each rank takes its columns of the logits' gradient."""
    logits = 2 * share.tokens * share.vocabulary * share.dtype_bytes
    return (
        elementwise("loss.grad", logits, share.dtype_bytes, backward=True),
        *linear_backward("output", share, share.local_vocabulary, share.hidden),
        *scatter_tokens("output.grad", share),
        _local("norm.grad", share, 3, backward=True),
    )
