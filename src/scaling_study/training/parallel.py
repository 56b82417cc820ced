"""Layouts: one mesh (pp, dp, tp), and a model stage put onto it.

The order matters: keep this rank's blocks, split them over tp, shard what is left over dp. Tensor parallelism is
Megatron's with sequence parallelism (Korthikanti et al., 2022): between blocks a rank holds T/tp tokens. Logits are
gathered whole, since the study does not parallelise the loss (HST appendix A).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from scaling_study.spec import Axis, Precision, ReductionDtype, TrainingRun
from scaling_study.training.model import Llama

DTYPES = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
    ReductionDtype.FP32: torch.float32,
    ReductionDtype.BF16: torch.bfloat16,
}


def build_mesh(run: TrainingRun, device_type: str, backend: str | None = None) -> DeviceMesh:
    """The mesh of a run; tensor-parallel ranks are neighbours, pipeline stages furthest apart.

    Args:
        backend: of its process groups, if not that of the default group.
    """
    axes = (Axis.PIPELINE.value, Axis.DATA.value, Axis.TENSOR.value)
    shape = (run.pp, run.dp, run.tp)
    if backend is None:
        return init_device_mesh(device_type, shape, mesh_dim_names=axes)
    override = dict.fromkeys(axes, backend)
    return init_device_mesh(device_type, shape, mesh_dim_names=axes, backend_override=override)


def parallelise(stage: Llama, run: TrainingRun, mesh: DeviceMesh) -> None:
    """Apply tensor parallelism and FSDP2 in place; parameters may be on the meta device."""
    if run.tp > 1:
        _split_over_tensor_axis(stage, mesh[Axis.TENSOR.value])
    if run.uses_fsdp:
        _shard_over_data_axis(stage, run, mesh[Axis.DATA.value])


def _split_over_tensor_axis(stage: Llama, mesh: DeviceMesh) -> None:
    if stage.tok_embeddings is not None:
        embedding = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        parallelize_module(stage, mesh, {"tok_embeddings": embedding})
    if stage.norm is not None and stage.output is not None:
        head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
        parallelize_module(stage, mesh, {"norm": SequenceParallel(), "output": head})
    for block in stage.layers.values():
        parallelize_module(block, mesh, _block_plan())


def _block_plan() -> dict[str, object]:
    gather_tokens = PrepareModuleInput(
        input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
    )
    return {
        "attention_norm": SequenceParallel(),
        "attention": gather_tokens,
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "ffn_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w3": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
    }


def _shard_over_data_axis(stage: Llama, run: TrainingRun, mesh: DeviceMesh) -> None:
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[run.precision], reduce_dtype=DTYPES[run.reduction_dtype])
    modules: list[nn.Module] = [*stage.layers.values(), stage]
    for module in modules:
        fully_shard(module, mesh=mesh, reshard_after_forward=run.reshard_after_forward, mp_policy=policy)
