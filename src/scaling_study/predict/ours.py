"""A run of this study as a `Setup`: facts about our own training code (`training/`)."""

from __future__ import annotations

import msgspec

from scaling_study.errors import UserError
from scaling_study.predict.library import Library
from scaling_study.predict.setup import Attention, Decoder, Elementwise, Part, Recompute, Setup, Sharding, Stack
from scaling_study.spec import ActivationCheckpointing, AttentionBackend, Hardware, Model, TrainingRun

_ATTENTION = {
    AttentionBackend.SDPA: Attention.FLASH2,
    AttentionBackend.SDPA_FLASH: Attention.FLASH2,
    AttentionBackend.SDPA_EFFICIENT: Attention.FLASH1,
    AttentionBackend.SDPA_CUDNN: Attention.CUDNN,
    AttentionBackend.SDPA_MATH: Attention.UNFUSED,
    AttentionBackend.XFORMERS: Attention.FLASH2,
}
_RECOMPUTE = {
    ActivationCheckpointing.NONE: Recompute.NONE,
    ActivationCheckpointing.SELECTIVE: Recompute.POINTWISE,
    ActivationCheckpointing.FULL: Recompute.FULL,
}


def setup_of_run(run: TrainingRun, model: Model, hardware: Hardware, library: Library) -> Setup:
    """The setup of a run.

    Raises:
        UserError: the model knows no such part.
    """
    part = part_of_hardware(hardware, library)
    return Setup(
        decoder=Decoder(
            layers=model.layers,
            hidden=model.hidden,
            heads=model.heads,
            kv_heads=model.kv_heads,
            ffn=model.ffn,
            vocabulary=model.vocabulary,
        ),
        stack=_stack(run, part),
        part=part,
        power_limit_w=part.power_limit_w,
        gpus_per_node=hardware.gpus_per_node,
        node_network_gb_per_s=part.network_gb_per_s,
        network_hop_us=hardware.network_hop_us.value if hardware.network_hop_us else 0.0,
        dp=run.dp,
        tp=run.tp,
        pp=run.pp,
        virtual_stages=run.virtual_stages,
        micro_batch=run.micro_batch,
        global_batch=run.global_batch,
        sequence_length=run.sequence_length,
        sharding=Sharding.ZERO3,
        shard_group=run.dp,
        reshard_after_forward=run.reshard_after_forward,
        recompute=_RECOMPUTE[run.activation_checkpointing],
        precision=run.precision,
        reduce_bytes=run.reduction_dtype.element_bytes,
    )


def part_of_hardware(hardware: Hardware, library: Library) -> Part:
    """The part of a hardware file, with that file's links, network and memory.

    Raises:
        UserError: the model knows no such part.
    """
    part = library.part(hardware.part or "")
    if part is None:
        raise UserError(
            f"the performance model knows no part {hardware.part!r}",
            where=f"hardware {hardware.name}",
            remedy=f"Choose a GPU of {library.folder / 'parts.yaml'}, or add it there.",
        )
    given = {
        "memory_gib": hardware.memory_gib,
        "memory_gb_per_s": hardware.memory_gb_per_s,
        "link_gb_per_s": hardware.intra_node_gb_per_s,
        "network_gb_per_s": hardware.inter_node_gb_per_s,
        "power_limit_w": hardware.power_limit_w,
    }
    return msgspec.structs.replace(part, **{name: number.value for name, number in given.items() if number})


def _stack(run: TrainingRun, part: Part) -> Stack:
    """DTensor with sequence parallelism, FSDP2, eager norms in fp32, a loss on gathered logits.

    FlashAttention-2 needs Ampere: on Volta PyTorch and xformers run their CUTLASS kernel, of FlashAttention-1's kind.
    """
    attention = _ATTENTION[run.attention]
    if part.family == "v100" and attention is Attention.FLASH2:
        attention = Attention.FLASH1
    return Stack(
        attention=attention,
        elementwise=Elementwise.EAGER,
        sequence_parallel=run.tp > 1,
        tp_overlap=False,
        dp_overlap=True,
        dtensor=True,
        fused_pointwise=False,
        early_stop=True,
        parallel_loss=False,
    )
