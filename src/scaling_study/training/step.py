"""One training step of a run on this rank: micro-batches through the pipeline or one after another, then AdamW."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional

from scaling_study.spec import Axis, Model, Precision, TrainingRun
from scaling_study.training.gradients import LossScaler, clip_by_global_norm
from scaling_study.training.initialise import initialise
from scaling_study.training.model import Llama
from scaling_study.training.parallel import build_mesh, parallelise


def token_loss(logits_BTV: Tensor, target_BT: Tensor) -> Tensor:
    """Mean cross-entropy over tokens, in fp32."""
    return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), target_BT.flatten())


class Trainer:
    """A rank's share of a run: its pipeline stages, sharded, with optimizer and schedule.

    Args:
        run: the layout, batches and precision.
        model: dimensions of the run's model.
        device: where the parameters live.
        backend: of the mesh's process groups, if not that of the default group.
    """

    def __init__(self, run: TrainingRun, model: Model, device: torch.device, backend: str | None = None) -> None:
        self.run, self.device = run, device
        self.mesh: DeviceMesh = build_mesh(run, device.type, backend)
        rank = self.mesh.get_local_rank(Axis.PIPELINE.value)
        self.replica = self.mesh.get_local_rank(Axis.DATA.value)
        self.is_first_stage, self.is_last_stage = rank == 0, rank == run.pp - 1
        self.stages = nn.ModuleDict(
            {str(index): self._stage(model, index) for index in range(rank, run.pp * run.virtual_stages, run.pp)}
        )
        self.optimizer = torch.optim.AdamW(self.stages.parameters(), lr=run.protocol.learning_rate, fused=True)
        self.scaler = LossScaler(enabled=run.precision is Precision.FP16)
        self._schedule = self._pipeline() if run.pp > 1 else None

    def _stage(self, model: Model, index: int) -> Llama:
        with torch.device("meta"):
            stage = Llama(
                model,
                self.run.sequence_length,
                stage=index,
                stages=self.run.pp * self.run.virtual_stages,
                attention=self.run.attention,
                checkpointing=self.run.activation_checkpointing,
            )
        parallelise(stage, self.run, self.mesh)
        initialise(stage, self.device)
        return stage

    def _pipeline(self) -> Any:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

        group = self.mesh[Axis.PIPELINE.value].get_group()
        count = self.run.pp * self.run.virtual_stages
        stages = [
            PipelineStage(stage, int(index), count, self.device, group=group) for index, stage in self.stages.items()
        ]
        options: dict[str, Any] = {"n_microbatches": self.run.microbatches, "loss_fn": self._scaled_loss}
        if len(stages) > 1:
            return ScheduleInterleaved1F1B(stages, **options)
        return Schedule1F1B(stages[0], **options)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters that this rank holds, by their name in the whole model."""
        return {name: value for stage in self.stages.values() for name, value in stage.named_parameters()}

    def step(self, tokens_BT: Tensor, target_BT: Tensor) -> Tensor | None:
        """Forward, backward and update on this replica's batch.

        Args:
            tokens_BT: (local batch, sequence) token ids on the device.
            target_BT: the tokens that follow them.

        Returns:
            The mean loss over the replica's tokens on the last stage, None on the others.
        """
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward_backward(tokens_BT, target_BT)
        self.update()
        return loss

    def update(self) -> None:
        """Unscale, clip, update; with fp16 nothing is updated where any rank has an infinite gradient."""
        if not self.scaler.unscale(self.stages.parameters()):
            return
        if self.run.protocol.max_gradient_norm is not None:
            clip_by_global_norm(self.stages.parameters(), self.run.protocol.max_gradient_norm, self.mesh)
        self.optimizer.step()

    def forward_backward(self, tokens_BT: Tensor, target_BT: Tensor) -> Tensor | None:
        """Gradients of the mean loss over the global batch, times the loss scale, left in `.grad`."""
        if self._schedule is None:
            return self._accumulate(tokens_BT, target_BT) / self.scaler.scale
        losses: list[Tensor] = []
        inputs = (tokens_BT,) if self.is_first_stage else ()
        target = target_BT if self.is_last_stage else None
        self._schedule.step(*inputs, target=target, losses=losses if self.is_last_stage else None)
        return torch.stack(losses).mean().detach() / self.scaler.scale if self.is_last_stage else None

    def _scaled_loss(self, logits_BTV: Tensor, target_BT: Tensor) -> Tensor:
        return token_loss(logits_BTV, target_BT) * self.scaler.scale

    def _accumulate(self, tokens_BT: Tensor, target_BT: Tensor) -> Tensor:
        (stage,) = self.stages.values()
        count = self.run.microbatches
        total = torch.zeros((), device=self.device)
        pairs = zip(tokens_BT.split(self.run.micro_batch), target_BT.split(self.run.micro_batch), strict=True)
        for index, (micro_tokens, micro_target) in enumerate(pairs):
            if isinstance(stage, FSDPModule):
                stage.set_requires_gradient_sync(index == count - 1)
                stage.set_reshard_after_backward(index == count - 1 or self.run.reshard_after_forward)
            loss = self._scaled_loss(stage(micro_tokens), micro_target) / count
            loss.backward()
            total += loss.detach()
        return total
