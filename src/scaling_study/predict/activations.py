"""How activations come and go in PyTorch's eager operators, block by block, forward and backward.

Each function lists allocations and releases in the order in which autograd makes them, for the operators of
`training.model`: norms and rotary embedding in fp32, with their casts where the dtype is narrower; attention that keeps
its output and a logarithm a row; a SwiGLU that keeps both projections, the gate and the product. Small vectors are left
out where they are released at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scaling_study.predict.share import FP32_BYTES, Share
from scaling_study.predict.swings import Change, MemoryKind
from scaling_study.spec import ActivationCheckpointing

_ROTARY_HALVES = 4  # halves of a head alive at once while it is turned


class Sizes(msgspec.Struct, frozen=True):
    """Bytes of the tensors of one micro-batch on one rank.

    Attributes:
        local, whole: the residual stream's local tokens, and all tokens, in the run's dtype.
        wide: the residual stream's local tokens in fp32.
        query, key: this rank's queries, and its keys (values are as large).
        logarithms: one fp32 number a token and head.
        inner: this rank's part of the SwiGLU's width.
        scale: one fp32 number a local token.
        angles: cosines and sines, cast for a block.
        logits, wide_logits: of all tokens, in the run's dtype and in fp32; `local_logits`: this rank's columns.
        narrow: whether the dtype is narrower than fp32, so that fp32 operators work on copies.
        split: whether there is tensor parallelism.
    """

    local: int
    whole: int
    wide: int
    query: int
    key: int
    logarithms: int
    inner: int
    scale: int
    angles: int
    logits: int
    local_logits: int
    wide_logits: int
    narrow: bool
    split: bool

    @property
    def copy(self) -> int:
        """An fp32 copy of the residual stream; where it is fp32 itself, none is made."""
        return self.wide if self.narrow else 0

    @property
    def cast(self) -> int:
        """The residual stream back in the run's dtype; where that is fp32, no cast is made."""
        return self.local if self.narrow else 0


def sizes_of(share: Share) -> Sizes:
    """The sizes of a share's tensors."""
    element, tokens = share.dtype_bytes, share.tokens
    narrow = element < FP32_BYTES
    return Sizes(
        local=share.local_tokens * share.hidden * element,
        whole=tokens * share.hidden * element,
        wide=share.local_tokens * share.hidden * FP32_BYTES,
        query=tokens * share.query * element,
        key=tokens * share.key * element,
        logarithms=tokens * share.heads * FP32_BYTES,
        inner=tokens * share.ffn * element,
        scale=share.local_tokens * FP32_BYTES,
        angles=share.sequence * share.head_dim * element if narrow else 0,
        logits=tokens * share.vocabulary * element,
        local_logits=tokens * share.local_vocabulary * element,
        wide_logits=tokens * share.vocabulary * FP32_BYTES,
        narrow=narrow,
        split=share.tp > 1,
    )


def _of(kind: MemoryKind, *sizes: int) -> Iterator[Change]:
    return ((kind, size) for size in sizes)


def _activations(*sizes: int) -> Iterator[Change]:
    return _of(MemoryKind.ACTIVATIONS, *sizes)


def _gathered(z: Sizes) -> Iterator[Change]:
    """Tokens of all ranks put together: the collective's buffer, then a copy in the right order."""
    return _activations(z.whole, z.whole, -z.whole) if z.split else _activations()


def _scattered(z: Sizes) -> Iterator[Change]:
    """Partial sums in the order of ranks, reduced to the local tokens."""
    return _activations(z.whole, z.local, -2 * z.whole) if z.split else _activations()


def norm_forward(z: Sizes) -> Iterator[Change]:
    """Leaves the fp32 input, a scale a token, the normalised tokens, and the output (local)."""
    product = (z.wide, z.cast, -z.wide) if z.narrow else (z.wide,)
    return _activations(z.copy, z.wide, -z.wide, z.scale, *product, z.local)


def norm_backward(z: Sizes) -> Iterator[Change]:
    """The output's gradient becomes the input's; what the forward pass left is released, except its output."""
    normalised = z.cast if z.narrow else z.wide
    yield from _activations(z.local, z.local, -z.local, -z.local - normalised)
    yield from _activations(z.copy, -z.cast, z.wide, z.wide, -z.wide, -z.wide)
    yield from _activations(z.wide, z.wide, z.wide, z.wide, -2 * z.wide, -2 * z.wide)
    yield from _activations(z.wide, -2 * z.wide, z.cast, -z.copy, -z.scale)


def _turn(size: int, z: Sizes) -> Iterator[Change]:
    """The rotary embedding of queries or keys, forward or backward; leaves as much as was there."""
    wide = 2 * size if z.narrow else size
    copy = wide if z.narrow else 0
    half = wide // 2
    return _activations(copy, _ROTARY_HALVES * half, -_ROTARY_HALVES * half - copy)


def _turned(z: Sizes) -> Iterator[Change]:
    """Queries and keys beside what they are made from; values stay as they are."""
    yield from _turn(z.query, z)
    yield from _activations(z.query)
    yield from _turn(z.key, z)
    yield from _activations(z.key)


def block_forward(z: Sizes, checkpointing: ActivationCheckpointing) -> Iterator[Change]:
    """One block, what its backward pass needs is left behind; the output takes the place of the input."""
    kept = checkpointing is ActivationCheckpointing.NONE
    yield from _activations(z.angles)
    yield from _attention_forward(z, kept=kept)
    yield from _feed_forward(z, kept=kept)
    if kept:
        yield from _activations(-2 * z.local if z.narrow else 0)
    elif checkpointing is ActivationCheckpointing.SELECTIVE:
        yield from _activations(_cached(z))


def _cached(z: Sizes) -> int:
    """What selective checkpointing keeps: results of matmuls and attention, and of collectives."""
    matmuls = z.query + 2 * z.key + 2 * z.inner + 2 * z.whole
    collectives = 2 * z.whole + 2 * z.local if z.split else 0
    return matmuls + z.query + z.logarithms + collectives


def _attention_forward(z: Sizes, *, kept: bool) -> Iterator[Change]:
    """From the block's input to the sum of it and attention; the input stays."""
    yield from norm_forward(z)
    yield from _gathered(z)
    yield from _activations(0 if kept else -_norm_leftovers(z), z.query, z.key, z.key)
    yield from _turned(z)
    yield from _activations(-z.query - z.key, -z.local if z.split else 0)
    yield from _activations(z.query + z.logarithms, z.whole)
    yield from _scattered(z)
    yield from _activations(z.local, -z.local)
    if not kept:
        yield from _activations(-2 * z.query - 2 * z.key - z.logarithms, -z.whole)


def _feed_forward(z: Sizes, *, kept: bool) -> Iterator[Change]:
    """From the sum after attention to the block's output, which is one more tensor."""
    yield from norm_forward(z)
    yield from _gathered(z)
    yield from _activations(-z.local if z.split else 0, 0 if kept else -_norm_leftovers(z))
    yield from _activations(z.inner, z.inner, 0 if kept else -z.inner, z.inner, z.inner)
    yield from _activations(0 if kept else -2 * z.inner, z.whole)
    yield from _scattered(z)
    yield from _activations(z.local, -z.local)
    if not kept:
        yield from _activations(-z.whole - z.inner, -z.local)


def _norm_leftovers(z: Sizes) -> int:
    """What a norm leaves beside its output."""
    return z.copy + z.scale + (z.cast if z.narrow else z.wide)


def recomputation(z: Sizes, checkpointing: ActivationCheckpointing) -> Iterator[Change]:
    """What the backward pass of a block brings back before it can begin."""
    if checkpointing is ActivationCheckpointing.NONE:
        return
    if checkpointing is ActivationCheckpointing.FULL:
        yield from _attention_forward(z, kept=True)
        yield from norm_forward(z)
        yield from _gathered(z)
        yield from _activations(-z.local if z.split else 0, 4 * z.inner)
        return
    yield from norm_forward(z)
    yield from _reordered(z)
    yield from _turned(z)
    yield from _activations(-z.query - z.key, z.local, -z.whole, -z.local if z.split else 0)
    yield from norm_forward(z)
    yield from _reordered(z)
    yield from _activations(2 * z.inner)


def _reordered(z: Sizes) -> Iterator[Change]:
    """A gather's buffer, which was kept, once more in the right order; it and this rank's part go."""
    return _activations(z.whole, -z.whole - z.local) if z.split else _activations()


class BlockWeights(msgspec.Struct, frozen=True):
    """Bytes of the gradients of a block's weights; `kept` whether they stay until they are reduced or added up."""

    query: int
    key: int
    output: int
    inner: int
    kept: bool

    def come(self, size: int) -> Iterator[Change]:
        """A gradient is made; where it is only added to one that is there, it goes at once."""
        return _of(MemoryKind.GRADIENTS, size, 0 if self.kept else -size)


def block_backward(z: Sizes, checkpointing: ActivationCheckpointing, weights: BlockWeights) -> Iterator[Change]:
    """One block: the output's gradient becomes the input's, and what was kept goes."""
    yield from _gathered(z)
    yield from recomputation(z, checkpointing)
    yield from _feed_forward_backward(z, weights)
    yield from _attention_backward(z, weights)
    yield from _activations(-_left_at_the_end(z, checkpointing))


def _left_at_the_end(z: Sizes, checkpointing: ActivationCheckpointing) -> int:
    """What only the end of a block's backward pass releases, besides the gradient that the residual replaced."""
    if checkpointing is ActivationCheckpointing.NONE:
        return z.angles
    sums = 2 * z.local if z.narrow else 0  # the block's input and the sum after attention, where no norm keeps them
    if checkpointing is ActivationCheckpointing.FULL:
        return z.angles + sums
    return z.angles + sums + z.whole + (z.local if z.split else 0)  # the block's last results were kept in vain


def _feed_forward_backward(z: Sizes, weights: BlockWeights) -> Iterator[Change]:
    yield from weights.come(weights.inner)
    yield from _activations(z.inner, -z.whole if z.split else 0, -z.inner, 2 * z.inner, -3 * z.inner)
    yield from weights.come(weights.inner)
    yield from _activations(z.whole, -z.inner, z.inner, -2 * z.inner)
    yield from weights.come(weights.inner)
    yield from _activations(z.whole, -z.inner - z.whole, z.whole, -2 * z.whole)
    yield from _scattered(z)
    yield from norm_backward(z)
    yield from _activations(z.local, -2 * z.local)


def _attention_backward(z: Sizes, weights: BlockWeights) -> Iterator[Change]:
    yield from _gathered(z)
    yield from weights.come(weights.output)
    yield from _activations(z.query, -z.whole if z.split else 0, z.query + 2 * z.key)
    yield from _activations(-3 * z.query - 2 * z.key - z.logarithms)
    yield from _turn(z.key, z)
    yield from _turn(z.query, z)
    yield from weights.come(weights.key)
    yield from _activations(z.whole, -z.key)
    yield from weights.come(weights.key)
    yield from _activations(z.whole, -z.key, z.whole, -2 * z.whole)
    yield from weights.come(weights.query)
    yield from _activations(z.whole, -z.query - z.whole, z.whole, -2 * z.whole)
    yield from _scattered(z)
    yield from norm_backward(z)
    yield from _activations(z.local, -2 * z.local)


def embedding_forward(z: Sizes) -> Iterator[Change]:
    """The block's input appears."""
    yield from _activations(z.whole)
    yield from _scattered(z)


def embedding_backward(z: Sizes, gradient: int, *, kept: bool) -> Iterator[Change]:
    """The gradient of the table; the block's gradient goes.

    Args:
        z: sizes.
        gradient: bytes of the gradient of the whole table: DTensor makes it on every tensor-parallel rank.
        kept: whether it stays until it is reduced or added up.
    """
    yield from _gathered(z)
    yield from _of(MemoryKind.GRADIENTS, gradient, 0 if kept else -gradient)
    yield from _activations(-z.whole if z.split else 0, -z.local)


def logits_forward(z: Sizes) -> Iterator[Change]:
    """Final norm and head; the logits are put together from all ranks' columns."""
    yield from norm_forward(z)
    yield from _gathered(z)
    yield from _activations(-z.local if z.narrow else 0, -z.local if z.split else 0)
    yield from _of(MemoryKind.LOGITS, z.local_logits)
    if z.split:
        yield from _of(MemoryKind.LOGITS, z.logits, z.logits, -z.logits - z.local_logits)


def loss_forward(z: Sizes) -> Iterator[Change]:
    """Cross-entropy in fp32; the logits stay, for whoever holds them, and their log-softmax."""
    copy = z.wide_logits if z.narrow else 0
    return _of(MemoryKind.LOGITS, copy, z.wide_logits, -copy)


def loss_backward(z: Sizes) -> Iterator[Change]:
    """The gradient of the logits, in the run's dtype; the log-softmax goes."""
    yield from _of(MemoryKind.LOGITS, z.wide_logits, z.wide_logits, -2 * z.wide_logits)
    if z.narrow:
        yield from _of(MemoryKind.LOGITS, z.logits, -z.wide_logits)


def logits_backward(z: Sizes, gradient: int, *, kept: bool) -> Iterator[Change]:
    """From the gradient of the logits to that of the last block's output.

    Args:
        z: sizes.
        gradient: bytes of the gradient of the head's weight.
        kept: whether it stays until it is reduced or added up.
    """
    if z.split:
        yield from _of(MemoryKind.LOGITS, z.local_logits, -z.logits)
    yield from _of(MemoryKind.GRADIENTS, gradient, 0 if kept else -gradient)
    yield from _activations(z.whole)
    yield from _of(MemoryKind.LOGITS, -z.local_logits)
    yield from _activations(-z.whole)
    yield from _scattered(z)
    yield from norm_backward(z)
