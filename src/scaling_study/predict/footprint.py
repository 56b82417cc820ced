"""Memory of a GPU in closed form: what is resident, what activations need, and what the stack keeps beside them.

A pipeline's first stage holds the most micro-batches, its last one the logits; the larger of the two decides. Bytes
of activations are counted as autograd keeps them (Korthikanti et al. 2022, section 4, for Megatron's layer).
"""

from __future__ import annotations

import numpy as np

from scaling_study.predict.batch import Array, Batch, Flags
from scaling_study.predict.fast import layer_parameters
from scaling_study.predict.setup import Attention, Elementwise

_BYTES = 2
_STATE_BYTES = 12.0  # fp32 master and AdamW's two moments
#: Outside of PyTorch's allocator, GiB: CUDA context and workspaces (1), buffers of NCCL for three axes (1 each).
OVERHEAD_GIB = 4.0
#: What the caching allocator reserves over what is allocated.
FRAGMENTATION = 1.08
#: What a driver leaves of a part's memory (79.2 of 80 GiB on A100 and H100).
USABLE = 0.99
#: Bytes an element of a norm that stay until the backward pass: eager in fp32 keeps a cast copy too.
_NORM_KEPT = {Elementwise.EAGER: 8.0, Elementwise.FUSED: 4.0}
_SCORE_KEPT = {"fused": 2.0, "separate": 8.0, "dropout": 3.0}
#: Bytes a logit: 16-bit logits and a fp32 copy that becomes the gradient; eager operators have four copies at once.
_LOGIT_KEPT = {Elementwise.EAGER: 14.0, Elementwise.FUSED: 6.0, Elementwise.COMPILED: 10.0}
_LOGIT_GATHERED = 4.0  # gathered over the tensor axis, and the gradient likewise


def activation_bytes(batch: Batch) -> Array:
    """Bytes that one block keeps of a micro-batch, nothing computed again."""
    tokens, width = batch.tokens, batch.hidden
    between = width / np.where(batch.sequence_parallel, batch.tp, 1.0)
    eager = batch.computes(Elementwise.EAGER)
    norms = 2 * np.where(eager, _NORM_KEPT[Elementwise.EAGER], _NORM_KEPT[Elementwise.FUSED]) * between
    gathered = 2 * _BYTES * (width - between) * ~batch.tp_backward_overlap  # a gathered input is kept whole
    masks = np.where(batch.dropout, 2.0, 0.0) * between
    heads = _BYTES * (2 + 2 * batch.kv_share) * width / batch.tp
    gate = np.where(batch.gated, np.where(batch.fused_pointwise, 6.0, 8.0), 4.0) * batch.ffn / batch.tp
    return tokens * (norms + gathered + masks + heads + gate) + _score_bytes(batch)


def _score_bytes(batch: Batch) -> Array:
    """Bytes of the scores that un-fused attention keeps."""
    fused, separate = batch.attends_with(Attention.FUSED_SOFTMAX), batch.attends_with(Attention.UNFUSED)
    kept = np.where(fused, _SCORE_KEPT["fused"], _SCORE_KEPT["separate"]) + _SCORE_KEPT["dropout"] * batch.dropout
    return np.where(fused | separate, kept * batch.tokens * batch.sequence * batch.heads / batch.tp, 0.0)


def _kept_bytes(batch: Batch) -> Array:
    """Bytes that a block keeps of a micro-batch when some is computed again."""
    whole, scores = activation_bytes(batch), _score_bytes(batch)
    between = np.where(batch.sequence_parallel, batch.tp, 1.0)
    boundary = _BYTES * batch.tokens * batch.hidden / between
    kept = np.where(batch.recompute_core, whole - scores, whole)
    kept = np.where(batch.recompute_ops, boundary + _product_bytes(batch, 0.5), kept)
    kept = np.where(batch.recompute_pointwise, boundary + _product_bytes(batch, 1.0), kept)
    return batch.recompute_all * boundary + (1 - batch.recompute_all) * kept


def _product_bytes(batch: Batch, share: float) -> Array:
    """Bytes of the results of a share of a block's matmuls, and of its attention."""
    width, up = batch.hidden, batch.ffn * np.where(batch.gated, 2.0, 1.0)
    between = width / np.where(batch.sequence_parallel, batch.tp, 1.0)
    inside = (width * (1 + 2 * batch.kv_share) + up) / batch.tp + 2 * between
    return _BYTES * batch.tokens * (share * inside + width / batch.tp)


def _resident_bytes(batch: Batch, parameters: Array) -> Array:
    """Bytes of parameters, gradients and optimizer state between and during the passes."""
    shards = np.where(batch.shards_optimizer, batch.shard_group, 1.0)
    gradient = np.where(batch.reduce_by_all_reduce, _BYTES, batch.reduce_bytes)
    copies = np.where(batch.reduce_by_all_reduce, 4.0, 0.0) / shards
    plain = _BYTES + gradient / np.where(batch.shards_gradients, shards, 1.0) + copies + _STATE_BYTES / shards
    return parameters * np.where(batch.gathers, (_STATE_BYTES + batch.reduce_bytes) / (shards * batch.cp), plain)


def _gathered_bytes(batch: Batch, parameters: Array) -> Array:
    """Bytes of gathered parameters and whole gradients that are alive together under full sharding."""
    layer = layer_parameters(batch)
    units = np.where(batch.reshard, np.minimum(3 * layer, parameters), parameters)
    accumulated = np.where(batch.sync_every_microbatch | (batch.microbatches == 1), 2 * layer, parameters)
    seconds = _BYTES * units + batch.reduce_bytes * np.minimum(accumulated, parameters)
    return np.where(batch.gathers & (batch.shard_group > 1), seconds, np.where(batch.gathers, _BYTES * parameters, 0.0))


def _logit_bytes(batch: Batch) -> Array:
    """Bytes a logit of the loss at its peak."""
    kept = np.where(batch.fused_pointwise, _LOGIT_KEPT[Elementwise.FUSED], _LOGIT_KEPT[Elementwise.EAGER])
    kept = np.where(batch.computes(Elementwise.COMPILED), _LOGIT_KEPT[Elementwise.COMPILED], kept)
    return kept + np.where(batch.parallel_loss | (batch.tp == 1), 0.0, _LOGIT_GATHERED)


def memory_gib(batch: Batch) -> Array:
    """Peak memory that PyTorch's allocator reserves on the fullest GPU, 2**30 bytes."""
    layers, pp = batch.stage_layers, batch.pp
    ends = batch.vocabulary * batch.hidden / batch.tp
    held = np.minimum(pp, batch.microbatches)
    held = np.where(batch.virtual > 1, held * (1 + (pp - 1) / (pp * batch.virtual)), held)
    kept, working = layers * _kept_bytes(batch), activation_bytes(batch)
    working = np.where(batch.recompute_all + batch.recompute_core + batch.recompute_ops > 0, working, 0.0)
    logits = _logit_bytes(batch) * batch.tokens * batch.vocabulary / np.where(batch.parallel_loss, batch.tp, 1.0)

    def stage(in_flight: Array, own_ends: Array, extra: Array) -> Array:
        parameters = layers * layer_parameters(batch) + own_ends
        fixed = _resident_bytes(batch, parameters) + _gathered_bytes(batch, parameters)
        return fixed + in_flight * kept + working + extra

    both = np.where(batch.tied, 1.0, 2.0) * ends
    first = stage(held, np.where(pp > 1, ends, both), np.where(pp > 1, 0.0, logits))
    last = stage(np.minimum(1.0, held), np.where(pp > 1, ends, both), logits)
    peak: Array = np.maximum(first, last) * FRAGMENTATION / 2**30
    return peak


def fits(batch: Batch, reserved_gib: Array) -> Flags:
    """Whether the allocator's peak and what lies outside of it fit the part."""
    fit: Flags = reserved_gib + OVERHEAD_GIB <= USABLE * batch.memory_bytes / 2**30
    return fit
