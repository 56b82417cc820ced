"""Time of one transformer block on one rank: what it computes, what it waits for, what it computes again."""

from __future__ import annotations

import msgspec
import numpy as np

from scaling_study.predict import kernels
from scaling_study.predict.batch import Array, Batch
from scaling_study.predict.collectives import Fabric, Group, all_gather, all_reduce, group_of
from scaling_study.predict.kernels import Device, matmul
from scaling_study.predict.parameters import Constants

_BYTES = 2
_COLLECTIVES = 2  # of a block and pass over the tensor axis: one for attention, one for the MLP


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a block and micro-batch, as columns.

    Attributes:
        forward, backward: from its start to its end, with recomputation and exposed tensor-parallel communication.
        forward_compute, backward_compute: of that, computation on the device.
        forward_exposed, backward_exposed: of that, communication that the device waits for.
        tensor_wire: of all tensor-parallel and context-parallel collectives of both passes, hidden or not.
    """

    forward: Array
    backward: Array
    forward_compute: Array
    backward_compute: Array
    forward_exposed: Array
    backward_exposed: Array
    tensor_wire: Array


def _matmuls(batch: Batch, device: Device) -> tuple[Array, Array, Array]:
    """Seconds of a block's matmuls, forward and backward, and of its last forward one."""
    tokens, kv = batch.tokens, batch.hidden * batch.kv_share
    up = batch.ffn * np.where(batch.gated, 2.0, 1.0)
    shapes = (
        ((batch.hidden + 2 * kv) / batch.tp, batch.hidden),
        (batch.hidden, batch.hidden / batch.tp),
        (up / batch.tp, batch.hidden),
        (batch.hidden, batch.ffn / batch.tp),
    )
    forward = [matmul(device, tokens, n, k) for n, k in shapes]
    backward = [matmul(device, tokens, k, n) + matmul(device, n, k, tokens) for n, k in shapes]
    return sum(forward[1:], forward[0]), sum(backward[1:], backward[0]), forward[-1]


def _tensor_collectives(batch: Batch, fabric: Fabric) -> tuple[Array, Array]:
    """Seconds on the wire of a block's tensor-parallel collectives, forward and backward.

    Sequence parallelism splits each all-reduce into a reduce-scatter and an all-gather; Megatron gathers the input
    again in the backward pass instead of keeping it (Korthikanti et al. 2022, section 4.2.2).
    """
    group = group_of(batch, np.ones(len(batch)), batch.tp)
    message = _BYTES * batch.tokens * batch.hidden
    pair = 2 * all_gather(fabric, group, message)
    once = np.where(batch.sequence_parallel, pair, all_reduce(fabric, group, message))
    again = np.where(batch.sequence_parallel & batch.tp_backward_overlap, 1.5, 1.0)
    return _COLLECTIVES * once, _COLLECTIVES * once * again


def _exposed(batch: Batch, constants: Constants) -> tuple[Array, Array]:
    """What share of the time on the wire a block waits for its tensor-parallel collectives, forward and backward."""
    share = np.where(batch.dtensor, constants.dtensor_exposed, 1.0)
    share = np.where(batch.tp_overlap, constants.async_exposed, share)
    hidden = np.where(batch.tp_backward_overlap, constants.tp_backward_exposed, 1.0)
    return share, share * hidden


def _context_exchange(batch: Batch, fabric: Fabric) -> Array:
    """Seconds on the wire to bring the keys and values of all context-parallel ranks to one."""
    group: Group = group_of(batch, batch.tp, batch.cp)
    message = _BYTES * 2 * batch.tokens * batch.cp * batch.hidden * batch.kv_share / batch.tp
    return all_gather(fabric, group, message)


def _beyond(exchange: Array, attention: Array, batch: Batch) -> Array:
    """Seconds of the exchange that attention on the pieces already there does not hide."""
    return np.maximum(0.0, exchange - attention * (batch.cp - 1) / batch.cp)


def block(batch: Batch, device: Device, fabric: Fabric, constants: Constants) -> Block:
    """Seconds of one block and micro-batch."""
    forward_matmul, backward_matmul, last = _matmuls(batch, device)
    forward_core, backward_core = kernels.attention(batch, device, constants)
    forward_pass, backward_pass = kernels.elementwise(batch, device, constants)
    forward_wire, backward_wire = _tensor_collectives(batch, fabric)
    forward_share, backward_share = _exposed(batch, constants)
    exchange = _context_exchange(batch, fabric)

    compute = forward_matmul + forward_core + forward_pass
    exposed = forward_wire * forward_share + _beyond(exchange, forward_core, batch)
    again, again_exposed = _again(batch, compute, exposed, last, (forward_matmul, forward_core, forward_pass))
    backward_compute = backward_matmul + backward_core + backward_pass + again
    backward_exposed = backward_wire * backward_share + _beyond(2 * exchange, backward_core, batch) + again_exposed
    forward_host, backward_host = kernels.host(batch, constants)
    return Block(
        forward=_joined(compute + exposed, forward_host, constants),
        backward=_joined(
            backward_compute + backward_exposed, backward_host + forward_host * _launched_again(batch), constants
        ),
        forward_compute=compute,
        backward_compute=backward_compute,
        forward_exposed=exposed,
        backward_exposed=backward_exposed,
        tensor_wire=(1 + batch.recompute_all) * (forward_wire + exchange) + backward_wire + 2 * exchange,
    )


def _again(
    batch: Batch, compute: Array, exposed: Array, last: Array, parts: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """Seconds of recomputation in the backward pass: device time, and communication waited for.

    PyTorch stops recomputing once the last tensor that it needs is there: the block's last matmul and the collective
    after it are not run again.
    """
    matmuls, core, passes = parts
    skipped = np.where(batch.early_stop, last, 0.0)
    collective = np.where(batch.early_stop, 1 / _COLLECTIVES / np.where(batch.sequence_parallel, 2.0, 1.0), 0.0)
    device = batch.recompute_all * (compute - skipped)
    device = device + np.where(batch.recompute_core, core, 0.0) + np.where(batch.recompute_pointwise, passes, 0.0)
    device = device + np.where(batch.recompute_ops, matmuls / 2 + passes, 0.0)
    waited = batch.recompute_all * (1 - collective)
    waited = waited + np.where(batch.recompute_ops & batch.sequence_parallel, 0.5, 0.0)
    return device, waited * exposed


def _launched_again(batch: Batch) -> Array:
    """Share of a forward pass's operators that the backward pass launches again."""
    partly = np.where(batch.recompute_ops | batch.recompute_pointwise, 0.7, 0.0)
    return batch.recompute_all + partly + np.where(batch.recompute_core, 0.3, 0.0)


def _joined(device: Array, host: Array, constants: Constants) -> Array:
    """Seconds of work that the host launches while the device runs: the larger, and more where they are close."""
    power = constants.overlap_sharpness
    joined: Array = (device**power + host**power) ** (1 / power)
    return joined
