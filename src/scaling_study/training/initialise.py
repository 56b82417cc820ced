"""Initial weights that do not depend on the layout.

Each parameter has its own generator, seeded by the run's seed and the parameter's name; a rank draws the whole
parameter and keeps its shard, so every layout starts from the same model without a word over the network. One
parameter at a time is held whole.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from scaling_study.training.model import Llama, rotary_angles

STANDARD_DEVIATION = 0.02  # GPT-2's and Llama's usual choice


def initialise(stage: Llama, device: torch.device, seed: int = 0) -> None:
    """Give storage on `device` to a stage built on the meta device, and fill it."""
    stage.to_empty(device=device)
    with torch.no_grad():
        for name, parameter in stage.named_parameters():
            full = draw(name, tuple(parameter.shape), device, seed)
            local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            local.copy_(local_shard(full, parameter))
        cos_TK, sin_TK = rotary_angles(stage.sequence_length, stage.model.head_dim, stage.model.rope_base, device)
        stage.cos_TK.copy_(cos_TK)
        stage.sin_TK.copy_(sin_TK)


def draw(name: str, shape: tuple[int, ...], device: torch.device, seed: int) -> Tensor:
    """The whole parameter of that name, fp32: ones for a norm, normal elsewhere."""
    if name.endswith("norm.weight"):
        return torch.ones(shape, device=device)
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.empty(shape, device=device).normal_(std=STANDARD_DEVIATION, generator=generator)


def local_shard(full: Tensor, parameter: nn.Parameter) -> Tensor:
    """Return this rank's part of a whole tensor: tp splits first, then FSDP splits what is left."""
    if not isinstance(parameter, DTensor):
        return full
    mesh = parameter.device_mesh
    for axis in reversed(range(mesh.ndim)):
        dim = getattr(parameter.placements[axis], "dim", None)  # Shard and FSDP's strided shard have one
        if dim is not None:
            chunks = full.chunk(mesh.size(axis), dim=dim)
            rank = mesh.get_local_rank(axis)
            full = chunks[rank] if rank < len(chunks) else full.narrow(dim, 0, 0)
    return full
