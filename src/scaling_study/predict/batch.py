"""Many setups as columns of numbers: the model is closed formulas over arrays, one element a setup.

Predicting one setup costs as much as predicting a hundred, so whoever has many (a fit, a search over layouts, a
table to validate) gives them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from scaling_study.predict.setup import Attention, Elementwise, Recompute, Setup, Sharding

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of setups; see `Setup`, `Decoder`, `Stack` and `Part` for their meaning. Bytes and FLOPs in units."""

    peak_flops: Array
    memory_bytes_per_s: Array
    memory_bytes: Array
    multiprocessors: Array
    link_bytes_per_s: Array
    switched: Flags
    power_share: Array
    gpus_per_node: Array
    network_bytes_per_s: Array
    network_hop_s: Array
    layers: Array
    hidden: Array
    heads: Array
    kv_share: Array
    ffn: Array
    vocabulary: Array
    gated: Flags
    tied: Flags
    rotary: Flags
    dropout: Flags
    dp: Array
    tp: Array
    pp: Array
    cp: Array
    virtual: Array
    micro_batch: Array
    global_batch: Array
    sequence: Array
    microbatches: Array
    gathers: Flags
    shards_optimizer: Flags
    shards_gradients: Flags
    shard_group: Array
    reshard: Flags
    recompute_all: Array
    recompute_core: Flags
    recompute_ops: Flags
    recompute_pointwise: Flags
    reduce_bytes: Array
    attention: NDArray[np.int64]
    elementwise: NDArray[np.int64]
    sequence_parallel: Flags
    tp_overlap: Flags
    dp_overlap: Flags
    dtensor: Flags
    fused_pointwise: Flags
    tp_backward_overlap: Flags
    early_stop: Flags
    pipeline_scatter: Flags
    messages_in_turn: Flags
    reduce_by_all_reduce: Flags
    parallel_loss: Flags
    sync_every_microbatch: Flags

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def gpus(self) -> Array:
        """GPUs in all."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def tokens(self) -> Array:
        """Tokens of one micro-batch on one rank, before any sharding by sequence parallelism."""
        return self.micro_batch * self.sequence / self.cp

    @property
    def stage_layers(self) -> Array:
        """Blocks of the fullest pipeline stage."""
        return np.ceil(self.layers / self.pp)

    @property
    def last_layers(self) -> Array:
        """Blocks of the last stage, which holds the head: the fewer ones where stages are uneven."""
        return np.maximum(1.0, np.floor(self.layers / self.pp))

    def attends_with(self, *kinds: Attention) -> Flags:
        """Which setups use one of these attention kernels."""
        return np.isin(self.attention, [_ATTENTION[kind] for kind in kinds])

    def computes(self, kind: Elementwise) -> Flags:
        """Which setups compute norms this way."""
        same: Flags = self.elementwise == _ELEMENTWISE[kind]
        return same


_ATTENTION = {kind: index for index, kind in enumerate(Attention)}
_ELEMENTWISE = {kind: index for index, kind in enumerate(Elementwise)}
_INTEGERS = ("attention", "elementwise")


def _recomputed(setup: Setup) -> float:
    """Fraction of blocks whose whole forward pass runs again."""
    if setup.recompute is Recompute.FULL:
        return 1.0
    return setup.recomputed_block_fraction if setup.recompute is Recompute.FRACTION_OF_BLOCKS else 0.0


def _row(setup: Setup) -> tuple[float, ...]:
    """The columns of one setup, in the order of `Batch`."""
    decoder, stack, part, sharding = setup.decoder, setup.stack, setup.part, setup.sharding
    return (
        part.peak_tflops * 1e12,
        part.memory_gb_per_s * 1e9,
        part.memory_gib * 2**30,
        part.multiprocessors,
        part.link_gb_per_s * 1e9,
        part.switched,
        setup.power_limit_w / part.power_limit_w,
        setup.gpus_per_node,
        setup.node_network_gb_per_s * 1e9,
        setup.network_hop_us * 1e-6,
        decoder.layers,
        decoder.hidden,
        decoder.heads,
        decoder.kv_heads / decoder.heads,
        decoder.ffn,
        decoder.vocabulary,
        decoder.gated_mlp,
        decoder.tied_embeddings,
        decoder.rotary,
        decoder.dropout,
        setup.dp,
        setup.tp,
        setup.pp,
        setup.cp,
        setup.virtual_stages,
        setup.micro_batch,
        setup.global_batch,
        setup.sequence_length,
        setup.microbatches,
        sharding in (Sharding.ZERO3, Sharding.HSDP),
        sharding is not Sharding.NONE,
        sharding in (Sharding.ZERO2, Sharding.ZERO3, Sharding.HSDP),
        setup.shard_group,
        setup.reshard_after_forward,
        _recomputed(setup),
        setup.recompute is Recompute.ATTENTION_CORE,
        setup.recompute is Recompute.SELECTIVE_OPS,
        setup.recompute is Recompute.POINTWISE,
        setup.reduce_bytes,
        _ATTENTION[stack.attention],
        _ELEMENTWISE[stack.elementwise],
        stack.sequence_parallel,
        stack.tp_overlap,
        stack.dp_overlap,
        stack.dtensor,
        stack.fused_pointwise,
        stack.tp_backward_overlap,
        stack.early_stop,
        stack.pipeline_scatter,
        stack.messages_in_turn,
        stack.reduce_by_all_reduce,
        stack.parallel_loss,
        stack.sync_every_microbatch,
    )


def batch_of(setups: Sequence[Setup]) -> Batch:
    """Columns of setups, which must all be predicted by one parameter set.

    Raises:
        ValueError: there is none, or their parts are of different families.
    """
    families = {setup.part.family for setup in setups}
    if len(families) != 1:
        raise ValueError(f"a batch is of one family of parts, not {sorted(families)}")
    columns = np.array([_row(setup) for setup in setups], dtype=np.float64).T
    fields = Batch.__struct_fields__
    flags = {name for name, kind in Batch.__annotations__.items() if kind == "Flags"}
    return Batch(**{name: _typed(name, column, flags) for name, column in zip(fields, columns, strict=True)})


def _typed(name: str, column: Array, flags: set[str]) -> Any:
    if name in _INTEGERS:
        return column.astype(np.int64)
    return column.astype(np.bool_) if name in flags else np.ascontiguousarray(column)
