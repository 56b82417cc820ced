"""Time of an iteration in closed form, for many setups at once.

A pipeline stage runs its blocks; sharded parameters are gathered and gradients reduced beside them; micro-batches
pass through the stages; then what is left over of gradients is reduced and the optimizer steps. Everything is arrays
with one element a setup.
"""

from __future__ import annotations

import msgspec
import numpy as np

from scaling_study.predict import kernels
from scaling_study.predict.batch import Array, Batch
from scaling_study.predict.collectives import Fabric, Group, all_gather, all_reduce, fabric_of, group_of, send
from scaling_study.predict.kernels import device_of
from scaling_study.predict.layers import Block, block
from scaling_study.predict.parameters import Constants

_BYTES = 2
#: HBM bytes a parameter around a reduction that casts to 32 bits and back: flatten, divide, cast, copy, copy.
_FLATTENED_BYTES = 24.0


class Iteration(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of an iteration and what it is made of, as columns.

    Attributes:
        total: of the iteration.
        pipeline: micro-batches through the stages, with bubbles.
        reduction: of gradients (and, with a sharded optimizer, of gathering parameters), not hidden.
        optimizer: step and what does not depend on size.
        block: of one block.
        stage_forward, stage_backward: of the last stage and a micro-batch, sharding apart.
        gather, reduce: of a block's sharded parameters and gradients, on the wire; `gather_ends`, `reduce_ends`: of
            embedding and head.
        message: of one message between stages.
    """

    total: Array
    pipeline: Array
    reduction: Array
    optimizer: Array
    block: Block
    stage_forward: Array
    stage_backward: Array
    gather: Array
    reduce: Array
    gather_ends: Array
    reduce_ends: Array
    message: Array


class Sharded(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds on the wire of sharded parameters: of a block and of the unit that holds embedding and head."""

    gather: Array
    reduce: Array
    gather_ends: Array
    reduce_ends: Array


def layer_parameters(batch: Batch) -> Array:
    """Matrices of a block on one tensor-parallel rank."""
    mlp = batch.ffn * np.where(batch.gated, 3.0, 2.0)
    return batch.hidden * (2 * batch.hidden * (1 + batch.kv_share) + mlp) / batch.tp


def end_parameters(batch: Batch) -> Array:
    """Embedding and head on one tensor-parallel rank; one of them where stages hold them apart."""
    both = np.where(batch.tied, 1.0, 2.0)
    return batch.vocabulary * batch.hidden / batch.tp * np.where(batch.pp > 1, 1.0, both)


def _sharded(batch: Batch, fabric: Fabric) -> Sharded:
    group = group_of(batch, batch.tp, batch.shard_group * batch.cp)
    replicas = group_of(batch, batch.tp * batch.cp * batch.shard_group, batch.dp / batch.shard_group)

    def reduce(parameters: Array) -> Array:
        whole = batch.reduce_bytes * parameters
        shard = whole / (batch.shard_group * batch.cp)
        return all_gather(fabric, group, whole) + all_reduce(fabric, replicas, shard)

    layer, ends = layer_parameters(batch), end_parameters(batch)
    return Sharded(
        gather=all_gather(fabric, group, _BYTES * layer),
        reduce=reduce(layer),
        gather_ends=all_gather(fabric, group, _BYTES * ends),
        reduce_ends=reduce(ends),
    )


def _beside(compute: Array, wire: Array, constants: Constants) -> Array:
    """Seconds of a block with a collective beside it: slowed computation, or the collective if it takes longer."""
    return np.maximum(compute + constants.overlap_slowdown * np.minimum(compute, wire), wire)


def _sharding(batch: Batch, times: Block, shard: Sharded, constants: Constants) -> tuple[Array, Array]:
    """Seconds of all micro-batches' forward and backward passes beyond those without sharding.

    Gather i may start when block i - 2 has been computed, so a block has the next one's gather beside it; in the
    backward pass gathers and reductions are one queue. The first gather and the last reduction stand alone.
    """
    layers = batch.stage_layers
    gathered = layers * _beside(times.forward, shard.gather, constants) + shard.gather + shard.gather_ends
    forward = gathered - layers * times.forward
    again = np.where(batch.reshard, shard.gather, 0.0)
    between = layers * _beside(times.backward, again, constants) - layers * times.backward
    last = layers * _beside(times.backward, again + shard.reduce, constants) - layers * times.backward
    last = last + shard.reduce + shard.reduce_ends
    gathers = np.where(batch.reshard, batch.microbatches, 1.0)
    reduces = np.where(batch.sync_every_microbatch, batch.microbatches, 1.0)
    in_turn = np.where(batch.pp > 1, batch.pp, 1.0)  # the first and the last micro-batch pass all stages one by one
    gathers, reduces = np.maximum(gathers, in_turn), np.maximum(reduces, in_turn)
    backward = reduces * last + np.maximum(0.0, batch.microbatches - reduces) * between
    none = np.zeros(len(batch))
    return np.where(batch.gathers, gathers * forward, none), np.where(batch.gathers, backward, none)


def _reduction(batch: Batch, fabric: Fabric, parameters: Array, memory: Array) -> Array:
    """Seconds to reduce all gradients of a stage after the last micro-batch, where nothing is gathered beside it."""
    group: Group = group_of(batch, batch.tp * batch.cp, batch.dp)
    whole = batch.reduce_bytes * parameters
    reduced = all_reduce(fabric, group, whole)
    scattered = all_gather(fabric, group, whole)
    parameters_back = all_gather(fabric, group, _BYTES * parameters)
    sharded = np.where(batch.reduce_by_all_reduce, reduced + _FLATTENED_BYTES * parameters / memory, scattered)
    seconds = np.where(batch.shards_optimizer, sharded + parameters_back, reduced)
    return np.where(batch.gathers, 0.0, seconds)


def _tied(batch: Batch, fabric: Fabric) -> Array:
    """Seconds to add the gradients of a tied embedding on the first and the last stage."""
    pair = Group(
        ranks=np.full(len(batch), 2.0),
        per_node=np.ones(len(batch)),
        network_bytes_per_s=batch.network_bytes_per_s / batch.gpus_per_node,
    )
    seconds = all_reduce(fabric, pair, batch.reduce_bytes * batch.vocabulary * batch.hidden / batch.tp)
    return np.where(batch.tied & (batch.pp > 1), seconds, 0.0)


def iteration(batch: Batch, constants: Constants, family: str) -> Iteration:
    """Seconds of an iteration of every setup of a batch.

    With interleaving the bubble shrinks by the number of chunks (Narayanan et al. 2021, section 2.2).
    """
    device, fabric = device_of(batch, constants), fabric_of(batch, constants, family)
    times = block(batch, device, fabric, constants)
    head, ends = kernels.loss(batch, device, constants), kernels.embedding(batch, device)
    alone, layers, last = batch.pp == 1, batch.stage_layers, batch.last_layers
    forward = last * times.forward + head[0] + np.where(alone, ends[0], 0.0) + _logits(batch, fabric, constants)
    backward = last * times.backward + head[1] + np.where(alone, ends[1], 0.0)

    shard = _sharded(batch, fabric)
    gathering, reducing = _sharding(batch, times, shard, constants)
    message = _message(batch, fabric) * constants.message_cost
    pipeline = _pipeline(batch, forward + backward, layers * (times.forward + times.backward), message, constants)
    pipeline = pipeline + gathering + reducing

    parameters = layers * layer_parameters(batch) + end_parameters(batch)
    late = _reduction(batch, fabric, parameters, device.memory)
    late = np.where(batch.dp_overlap, np.maximum(late / 4, late - backward * (1 - 1 / layers)), late)
    late = late + _tied(batch, fabric)
    shards = np.where(batch.shards_optimizer, batch.shard_group, 1.0)
    optimizer = parameters / shards * constants.optimizer_bytes / device.memory + constants.step_ms * 1e-3
    jitter = 1 + constants.scale_jitter * np.log2(np.maximum(1.0, batch.gpus / batch.gpus_per_node))
    return Iteration(
        total=(pipeline + late) * jitter + optimizer,
        pipeline=pipeline,
        reduction=late,
        optimizer=optimizer,
        block=times,
        stage_forward=forward,
        stage_backward=backward,
        gather=shard.gather,
        reduce=shard.reduce,
        gather_ends=shard.gather_ends,
        reduce_ends=shard.reduce_ends,
        message=message,
    )


def _pipeline(batch: Batch, last: Array, middle: Array, message: Array, constants: Constants) -> Array:
    """Seconds of all micro-batches through all stages.

    Args:
        last: of a micro-batch on the last stage, which holds the head; `middle`: on any other.
        message: of one message; in a micro-batch a stage exchanges two with each neighbour, at once or in turn.
    """
    chunks = batch.virtual
    sync = np.where(batch.pp > 1, chunks * constants.stage_sync_us * 1e-6, 0.0)
    exchanged = chunks * message * np.where(batch.messages_in_turn, 2.0, 1.0)
    inner = middle + np.where(batch.pp > 2, 2 * exchanged, exchanged)
    cycle = np.maximum(last + exchanged, inner) + sync
    filling = (batch.pp - 1) * ((middle + sync) / chunks + 2 * message)
    jitter = np.where(batch.pp > 1, constants.stage_jitter, 0.0)
    seconds: Array = (batch.microbatches * cycle + filling) * (1 + jitter)
    return seconds


def _logits(batch: Batch, fabric: Fabric, constants: Constants) -> Array:
    """Seconds to gather the logits where the loss is not parallel over the tensor axis."""
    group = group_of(batch, np.ones(len(batch)), batch.tp)
    share = np.where(batch.dtensor, constants.dtensor_exposed, 1.0)
    seconds = all_gather(fabric, group, _BYTES * batch.tokens * batch.vocabulary) * share
    return np.where(batch.parallel_loss, 0.0, seconds)


def _message(batch: Batch, fabric: Fabric) -> Array:
    """Seconds of the activations of a micro-batch between two stages."""
    sharded = batch.sequence_parallel | batch.pipeline_scatter
    whole = _BYTES * batch.tokens * batch.hidden
    stride = batch.tp * batch.cp * batch.dp
    return np.where(batch.pp > 1, send(fabric, batch, stride, whole / np.where(sharded, batch.tp, 1.0)), 0.0)
