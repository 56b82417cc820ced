"""Time of what one GPU computes: matmuls, attention, element-wise passes, and the host that launches them."""

from __future__ import annotations

import msgspec
import numpy as np

from scaling_study.predict.batch import Array, Batch
from scaling_study.predict.parameters import Constants
from scaling_study.predict.setup import Attention, Elementwise

#: Tiles of a matmul and their rate over the best ones' (fitted on gemm.csv, vidur_mlp A100: 5% median error).
_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.96), (64, 128, 0.82), (128, 64, 0.82))
_SPLITS = (1, 4)
_BYTES = 2  # of an element in 16-bit training

#: Passes over the scores of un-fused attention, bytes a score: Megatron's fused mask and softmax writes and reads
#: 16-bit scores; without it mask, scale, cast up, softmax and cast down are kernels of their own. Dropout adds 5.
_SCORE_BYTES = {"fused": (8.0, 14.0), "separate": (32.0, 36.0)}
_SCORE_DROPOUT_BYTES = 5.0
#: Bytes an element of norms: fused reads and writes once; eager RMSNorm in fp32 is eight kernels.
_NORM_BYTES = {Elementwise.EAGER: (36.0, 60.0), Elementwise.FUSED: (4.0, 8.0), Elementwise.COMPILED: (4.0, 8.0)}
#: Bytes an element of the residual addition, with dropout and its mask, and where a compiler joins it to its neighbour.
_ADD_BYTES, _ADD_DROPOUT_BYTES, _ADD_COMPILED_BYTES = (6.0, 6.0), (7.0, 5.0), (3.0, 4.0)
#: Bytes an element of the activation: (fused SwiGLU, separate SwiGLU, GELU).
_SWIGLU_FUSED, _SWIGLU_EAGER, _GELU = (6.0, 10.0), (10.0, 18.0), (4.0, 6.0)
_ROTARY_FUSED_BYTES = 4.0
_LAYOUT_BYTES = {"flash": 2.0, "separate": 8.0}  # transposed copies around attention
#: Operators of a block's forward pass that the host launches; the backward pass has half as many again.
_OPERATORS = {Elementwise.EAGER: 62.0, Elementwise.FUSED: 40.0, Elementwise.COMPILED: 14.0}
_BACKWARD_OPERATORS = 1.5
_FLASH_BACKWARD_FLOPS = 2.5  # two and a half times the forward's, as it computes the scores again
_FLASH_BLOCK = 128


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of the GPUs of a batch; built once a batch.

    Attributes:
        matmul_flops: sustained by large matmuls, FLOP/s.
        flash_flops: of FlashAttention-2's forward pass on long sequences, FLOP/s.
        memory: bytes/s that element-wise kernels move.
    """

    matmul_flops: Array
    flash_flops: Array
    memory: Array
    multiprocessors: Array
    quantisation: float
    prologue: float


def device_of(batch: Batch, constants: Constants) -> Device:
    """Sustained rates under the power limit."""
    clock = batch.peak_flops * batch.power_share**constants.power_exponent
    return Device(
        matmul_flops=clock * constants.matmul_rate,
        flash_flops=clock * constants.flash_rate,
        memory=batch.memory_bytes_per_s * constants.memory_rate,
        multiprocessors=batch.multiprocessors,
        quantisation=constants.matmul_quantisation,
        prologue=constants.matmul_prologue,
    )


def matmul(device: Device, m: Array, n: Array, k: Array) -> Array:
    """Seconds of an (m, k) by (k, n) matmul: waves of tiles over the multiprocessors, or its bytes, if that is longer.

    A library picks among tiles, and splits k where there are few of them.
    """
    best = np.full(np.shape(m), np.inf)
    rate = device.matmul_flops / device.multiprocessors
    for rows, columns, efficiency in _TILES:
        tiles = np.ceil(m / rows) * np.ceil(n / columns)
        for split in _SPLITS:
            waves = tiles * split / device.multiprocessors
            waves = device.quantisation * np.ceil(waves) + (1 - device.quantisation) * np.maximum(waves, 1.0)
            seconds = waves * (2 * rows * columns / efficiency) * (k / split + device.prologue) / rate
            if split > 1:
                seconds = seconds + 2 * split * m * n * 4 / device.memory
            best = np.minimum(best, seconds)
    seconds_of_bytes = _BYTES * (m * k + n * k + m * n) / device.memory
    longer: Array = np.maximum(best, seconds_of_bytes)
    return longer


def attention(batch: Batch, device: Device, constants: Constants) -> tuple[Array, Array]:
    """Seconds of one block's attention core on one rank, forward and backward; causal."""
    flash = batch.attends_with(Attention.FLASH1, Attention.FLASH2, Attention.CUDNN)
    fused, separate = _flash(batch, device, constants), _scores(batch, device, constants)
    return np.where(flash, fused[0], separate[0]), np.where(flash, fused[1], separate[1])


def _flash(batch: Batch, device: Device, constants: Constants) -> tuple[Array, Array]:
    """Half of the scores are computed; rates by kernel, head dimension, sequence length and blocks at work."""
    flops = 4 * batch.tokens * batch.sequence * batch.hidden / batch.tp / 2
    head = batch.hidden / batch.heads
    overhead = (1 + constants.flash_head_overhead / head) / (1 + constants.flash_head_overhead / 128)
    ramp = batch.sequence / (batch.sequence + constants.flash_ramp_tokens)
    blocks = batch.micro_batch * batch.heads / batch.tp * np.ceil(batch.sequence / batch.cp / _FLASH_BLOCK)
    busy = np.minimum(1.0, blocks / device.multiprocessors)
    seconds = flops * overhead / (device.flash_flops * ramp * busy)
    first, cudnn = batch.attends_with(Attention.FLASH1), batch.attends_with(Attention.CUDNN)
    better = np.where(cudnn, constants.cudnn_speedup, 1.0)
    forward = np.where(first, constants.flash1_forward, better)
    backward = np.where(first, constants.flash1_backward, better) * constants.flash_backward
    return seconds / forward, _FLASH_BACKWARD_FLOPS * seconds / backward


def _scores(batch: Batch, device: Device, constants: Constants) -> tuple[Array, Array]:
    """Two batched matmuls over the whole square of scores, and the passes over it between them."""
    flops = 4 * batch.tokens * batch.sequence * batch.hidden / batch.tp
    matmuls = flops / (device.matmul_flops * constants.score_matmul_rate)
    scores = batch.tokens * batch.sequence * batch.heads / batch.tp
    fused = batch.attends_with(Attention.FUSED_SOFTMAX)
    dropout = _SCORE_DROPOUT_BYTES * batch.dropout
    forward, backward = (
        (np.where(fused, _SCORE_BYTES["fused"][i], _SCORE_BYTES["separate"][i]) + dropout) for i in (0, 1)
    )
    passes = scores * constants.softmax_bytes / device.memory
    return matmuls + passes * forward, 2 * matmuls + passes * backward


def elementwise(batch: Batch, device: Device, constants: Constants) -> tuple[Array, Array]:
    """Seconds of one block's norms, additions, activation and rotary embedding, forward and backward."""
    forward, backward = (_elementwise_bytes(batch, constants, i) / device.memory for i in (0, 1))
    return forward, backward


def _elementwise_bytes(batch: Batch, constants: Constants, i: int) -> Array:
    """Bytes of a block in one pass (0 forward, 1 backward).

    Between tensor-parallel regions activations are whole on every rank unless they are sharded by sequence.
    """
    eager, compiled = batch.computes(Elementwise.EAGER), batch.computes(Elementwise.COMPILED)
    between = batch.tokens / np.where(batch.sequence_parallel, batch.tp, 1.0) * batch.hidden
    norm = np.where(eager, _NORM_BYTES[Elementwise.EAGER][i] * constants.eager_bytes, _NORM_BYTES[Elementwise.FUSED][i])
    add = np.where(batch.dropout, _ADD_DROPOUT_BYTES[i], _ADD_BYTES[i])
    add = np.where(compiled, _ADD_COMPILED_BYTES[i], add)
    activation = np.where(batch.fused_pointwise, _SWIGLU_FUSED[i], _SWIGLU_EAGER[i])
    activation = np.where(batch.gated, activation, _GELU[i])
    rotary = np.where(batch.fused_pointwise, _ROTARY_FUSED_BYTES, constants.rotary_bytes / 2) * batch.rotary
    flash = batch.attends_with(Attention.FLASH1, Attention.FLASH2, Attention.CUDNN)
    layout = np.where(flash, _LAYOUT_BYTES["flash"], _LAYOUT_BYTES["separate"])
    heads = batch.hidden / batch.tp * (rotary * (1 + batch.kv_share) + layout)
    return 2 * (norm + add) * between + batch.tokens * (activation * batch.ffn / batch.tp + heads)


def host(batch: Batch, constants: Constants) -> tuple[Array, Array]:
    """Seconds that the host needs to launch one block, forward and backward."""
    operators = np.full(len(batch), _OPERATORS[Elementwise.FUSED])
    for kind in (Elementwise.EAGER, Elementwise.COMPILED):
        operators = np.where(batch.computes(kind), _OPERATORS[kind], operators)
    around = np.where(batch.tp > 1, 2 * constants.collective_launch_us, 0.0)
    dispatched = batch.dtensor & (batch.tp > 1) & ~batch.computes(Elementwise.COMPILED)
    around = around + np.where(dispatched, constants.dtensor_launch_us, 0.0)
    around = around + np.where(batch.gathers, constants.unit_launch_us, 0.0)
    launch = operators * constants.launch_us
    return (launch + around) * 1e-6, (_BACKWARD_OPERATORS * launch + around) * 1e-6


def loss(batch: Batch, device: Device, constants: Constants) -> tuple[Array, Array]:
    """Seconds of the head's matmuls and of the cross-entropy over the vocabulary, forward and backward."""
    tokens, width, share = batch.tokens, batch.hidden, batch.vocabulary / batch.tp
    logits = np.where(batch.parallel_loss, share, batch.vocabulary)
    passes = tokens * logits * constants.logit_bytes / device.memory
    forward = matmul(device, tokens, share, width) + 6 * passes
    backward = matmul(device, tokens, width, share) + matmul(device, share, width, tokens) + 10 * passes
    return forward, backward


def embedding(batch: Batch, device: Device) -> tuple[Array, Array]:
    """Seconds of looking tokens up and of adding up their gradients."""
    moved = batch.tokens * batch.hidden / device.memory
    return 6 * moved, 8 * moved
