"""What is predicted: one training configuration, complete, of this study's training code or of anybody's.

A `TrainingRun` says what this study trains and how; a row of foreign measurements says more (other architectures,
other stacks). Both become a `Setup`, and nothing downstream knows which it was.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from scaling_study.spec import Precision


class Attention(StrEnum):
    """The attention kernel."""

    UNFUSED = "unfused"
    FUSED_SOFTMAX = "fused_softmax"
    FLASH1 = "flash1"
    FLASH2 = "flash2"
    CUDNN = "cudnn"


class Elementwise(StrEnum):
    """How norms, rotary embeddings and activations are computed: one kernel an operator, or few."""

    EAGER = "eager"
    FUSED = "fused"
    COMPILED = "compiled"


class Sharding(StrEnum):
    """What data-parallel ranks share out: nothing, optimizer, gradients too, parameters too (all, or in groups)."""

    NONE = "none"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    HSDP = "hsdp"


class Recompute(StrEnum):
    """What the backward pass computes again."""

    NONE = "none"
    FULL = "full"
    ATTENTION_CORE = "attention_core"
    SELECTIVE_OPS = "selective_ops"
    FRACTION_OF_BLOCKS = "fraction_of_blocks"


class Decoder(msgspec.Struct, frozen=True, kw_only=True):
    """A dense decoder-only transformer. Sizes in elements; `ffn` is the width of the MLP."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    rotary: bool = True
    linear_bias: bool = False
    dropout: bool = False


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """Traits of the software that trains: facts about a stack, not constants to be fitted.

    Attributes:
        attention, elementwise: kernels in use.
        sequence_parallel: activations between tensor-parallel regions are sharded over the tensor axis.
        tp_overlap, dp_overlap: communication of that axis is hidden behind computation on purpose.
        dtensor: tensor parallelism through DTensor operators (PyTorch) rather than hand-written (Megatron).
    """

    attention: Attention
    elementwise: Elementwise
    sequence_parallel: bool
    tp_overlap: bool
    dp_overlap: bool
    dtensor: bool


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration. Batches in sequences, `sequence_length` in tokens; `dp * tp * pp * cp` GPUs.

    Attributes:
        gpu: name of a parameter set, such as `h100`; `power_limit_w` where it is not the part's default.
        node_network_gb_per_s: injection bandwidth of a node, all NICs, one direction, 1e9 bytes/s.
        virtual_stages: interleaved chunks a pipeline stage; 1 is plain 1F1B.
        shard_group: ranks that share parameters out (hsdp); dp elsewhere.
        recomputed_block_fraction: of blocks that are computed again, for `fraction_of_blocks`.
        reduce_bytes: bytes an element of the gradient reduction.
    """

    decoder: Decoder
    stack: Stack
    gpu: str
    power_limit_w: float | None = None
    gpus_per_node: int
    node_network_gb_per_s: float
    dp: int
    tp: int = 1
    pp: int = 1
    cp: int = 1
    virtual_stages: int = 1
    micro_batch: int
    global_batch: int
    sequence_length: int
    sharding: Sharding
    shard_group: int
    reshard_after_forward: bool = False
    recompute: Recompute = Recompute.NONE
    recomputed_block_fraction: float = 1.0
    precision: Precision = Precision.BF16
    reduce_bytes: int = 4

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def microbatches(self) -> int:
        """Micro-batches of a replica in an iteration."""
        return self.global_batch // (self.dp * self.micro_batch)
