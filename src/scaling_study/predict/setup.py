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
    """What the backward pass computes again.

    `attention_core` is Megatron's selective recomputation, `selective_ops` torchtitan's (every second matmul, and
    what is element-wise), `pointwise` this study's (what is element-wise).
    """

    NONE = "none"
    FULL = "full"
    ATTENTION_CORE = "attention_core"
    SELECTIVE_OPS = "selective_ops"
    POINTWISE = "pointwise"
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

    @property
    def layer_parameters(self) -> int:
        """Matrices of one block; norms and biases are left out (less than one in a thousand)."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.hidden * self.kv_heads // self.heads
        return attention + (3 if self.gated_mlp else 2) * self.hidden * self.ffn

    @property
    def parameters(self) -> int:
        """Blocks, embedding and head; a tied head counts once."""
        ends = self.vocabulary * self.hidden * (1 if self.tied_embeddings else 2)
        return self.layers * self.layer_parameters + ends


class Specification(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accelerator as its data sheet has it.

    Attributes:
        family: whose parameter set predicts it, such as `h100`.
        memory_gib: 2**30 bytes; `memory_gb_per_s`: 1e9 bytes/s.
        peak_tflops: dense, of the 16-bit tensor cores.
        multiprocessors: that run at once.
        link_gb_per_s: to other accelerators of the node, both directions summed.
        switched: all links end in a switch (NVSwitch) rather than at other accelerators (hybrid cube mesh).
        network_gb_per_s: of a node as sold; used where a run names no network.
        power_limit_w: default limit.
    """

    family: str
    memory_gib: float
    memory_gb_per_s: float
    peak_tflops: float
    multiprocessors: int
    link_gb_per_s: float
    network_gb_per_s: float
    power_limit_w: float
    switched: bool = True


class Part(Specification, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accelerator by its name."""

    name: str


class Traits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the name of a stack says of it: facts, not constants to be fitted.

    Attributes:
        dtensor: tensor parallelism through DTensor operators (PyTorch) rather than hand-written (Megatron).
        fused_pointwise: rotary embedding and activation are fused.
        tp_backward_overlap: the backward all-reduce runs beside the weight gradient's matmul (Megatron-LM).
        early_stop: recomputation ends with the last tensor that is needed, so it skips the block's last matmul
            (torch.utils.checkpoint).
        pipeline_scatter: activations cross between stages sharded over the tensor axis.
        messages_in_turn: a stage sends to and receives from a neighbour one after another, not at once.
        reduce_by_all_reduce: gradients of a sharded optimizer are all-reduced (whole, at `reduce_bytes`) instead of
            reduce-scattered.
        parallel_loss: the cross-entropy works on logits that stay sharded over the tensor axis; else they are
            gathered.
        sync_every_microbatch: sharded gradients are reduced after every micro-batch, not after the last one.
    """

    dtensor: bool = False
    fused_pointwise: bool = True
    tp_backward_overlap: bool = False
    early_stop: bool = True
    pipeline_scatter: bool = False
    messages_in_turn: bool = False
    reduce_by_all_reduce: bool = False
    parallel_loss: bool = True
    sync_every_microbatch: bool = False


class Stack(Traits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The software that trains: its traits, and what a run chooses of it.

    Attributes:
        attention: kernel in use.
        elementwise: how norms are computed.
        sequence_parallel: activations between tensor-parallel regions are sharded over the tensor axis.
        tp_overlap: tensor-parallel communication is decomposed and hidden behind matmuls (asynchronous TP).
        dp_overlap: data-parallel communication runs beside the backward pass.
    """

    attention: Attention
    elementwise: Elementwise
    sequence_parallel: bool
    tp_overlap: bool
    dp_overlap: bool


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration. Batches in sequences, `sequence_length` in tokens; `dp * tp * pp * cp` GPUs.

    Attributes:
        power_limit_w: of a GPU.
        node_network_gb_per_s: injection bandwidth of a node, all NICs, one direction, 1e9 bytes/s.
        network_hop_us: that a hop between nodes takes longer than over InfiniBand.
        virtual_stages: interleaved chunks a pipeline stage; 1 is plain 1F1B.
        shard_group: ranks that share parameters out (hsdp); dp elsewhere.
        recomputed_block_fraction: of blocks that are computed again, for `fraction_of_blocks`.
        reduce_bytes: bytes an element of the gradient reduction.
    """

    decoder: Decoder
    stack: Stack
    part: Part
    power_limit_w: float
    gpus_per_node: int
    node_network_gb_per_s: float
    network_hop_us: float = 0.0
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

    @property
    def tokens(self) -> int:
        """Tokens of one iteration over all replicas."""
        return self.global_batch * self.sequence_length
