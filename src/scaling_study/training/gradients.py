"""What happens to gradients between backward and update: loss scaling for fp16, clipping by the global norm."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from scaling_study.spec import Axis


class LossScaler:
    """Dynamic loss scaling (Micikevicius et al., 2018), with one decision for all ranks, pipeline stages included.

    PyTorch's scaler for sharded gradients does not work with a fused optimizer on DTensors, hence this one; its
    constants are PyTorch's.

    Args:
        enabled: without it the scale is 1 and every update is made.

    Attributes:
        scale: of the loss, at this moment.
        skipped: updates that were left out, for an infinite gradient.
    """

    GROWTH, BACKOFF, GROWTH_INTERVAL = 2.0, 0.5, 2000

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.scale = 2.0**16 if enabled else 1.0
        self.skipped = 0
        self._good_steps = 0

    def unscale(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Divide gradients by the scale; whether they are finite on every rank.

        Where they are not, the scale shrinks, and nobody may update.
        """
        if not self.enabled:
            return True
        gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
        for gradient in gradients:
            gradient.mul_(1.0 / self.scale)
        finite = torch.stack([gradient.isfinite().all() for gradient in gradients]).all().float()
        dist.all_reduce(finite, op=dist.ReduceOp.MIN)
        return self._adapt(finite=bool(finite.item()))

    def _adapt(self, *, finite: bool) -> bool:
        self._good_steps = self._good_steps + 1 if finite else 0
        if not finite:
            self.skipped += 1
            self.scale *= self.BACKOFF
        elif self._good_steps == self.GROWTH_INTERVAL:
            self.scale, self._good_steps = self.scale * self.GROWTH, 0
        return finite


def clip_by_global_norm(parameters: Iterable[nn.Parameter], maximum: float, mesh: DeviceMesh) -> Tensor:
    """Scale gradients so that their norm over every parameter of the model is at most `maximum`.

    Args:
        parameters: this rank's, of all its stages.
        maximum: the largest norm allowed.
        mesh: the run's mesh; shards are summed over dp and tp, stages over pp.

    Returns:
        The norm before clipping, the same on every rank.
    """
    mine = [parameter for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in mine])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    if mesh.size(0) > 1:
        squared = norm.square()
        dist.all_reduce(squared, group=mesh[Axis.PIPELINE.value].get_group())
        norm = squared.sqrt()
    torch.nn.utils.clip_grads_with_norm_(mine, maximum, norm)
    return norm


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
