"""One training step of a run on this rank: micro-batches through the pipeline or one after another, then AdamW."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional

from scaling_study.spec import (
    ActivationCheckpointing,
    AttentionBackend,
    Axis,
    Model,
    Pacing,
    PipelineSchedule,
    Precision,
    TrainingRun,
)
from scaling_study.training.initialise import initialise
from scaling_study.training.model import Llama
from scaling_study.training.parallel import build_mesh, parallelise


class NotSupportedError(Exception):
    """The run asks for something that the training code does not have."""


def token_loss(logits_BTV: Tensor, target_BT: Tensor) -> Tensor:
    """Mean cross-entropy over tokens, in fp32."""
    return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), target_BT.flatten())


def check_supported(run: TrainingRun) -> None:
    """Refuse what does not exist here, instead of running something else in its place.

    Raises:
        NotSupportedError: names the fields.
    """
    missing = [
        name
        for name, supported in {
            "attention": run.attention is AttentionBackend.SDPA,
            "precision": run.precision is not Precision.FP16,
            "activation_checkpointing": run.activation_checkpointing is ActivationCheckpointing.NONE,
            "schedule": run.schedule is PipelineSchedule.ONE_F_ONE_B,
            "pacing": run.pacing is Pacing.OFF,
        }.items()
        if not supported
    ]
    if missing:
        named = ", ".join(f"{name}={getattr(run, name)}" for name in missing)
        raise NotSupportedError(f"the training code does not have {named}")


class Trainer:
    """A rank's share of a run: its pipeline stage, sharded, with optimizer and schedule.

    Args:
        run: the layout, batches and precision.
        model: dimensions of the run's model.
        device: where the parameters live.
    """

    def __init__(self, run: TrainingRun, model: Model, device: torch.device) -> None:
        check_supported(run)
        self.run, self.device = run, device
        self.mesh: DeviceMesh = build_mesh(run, device.type)
        self.stage_index = self.mesh.get_local_rank(Axis.PIPELINE.value)
        self.replica = self.mesh.get_local_rank(Axis.DATA.value)
        self.is_last_stage = self.stage_index == run.pp - 1
        with torch.device("meta"):
            self.stage = Llama(model, run.sequence_length, stage=self.stage_index, stages=run.pp)
        parallelise(self.stage, run, self.mesh)
        initialise(self.stage, device)
        self.optimizer = torch.optim.AdamW(self.stage.parameters(), lr=run.protocol.learning_rate, fused=True)
        self._schedule = self._pipeline() if run.pp > 1 else None

    def _pipeline(self) -> Any:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        group = self.mesh[Axis.PIPELINE.value].get_group()
        stage = PipelineStage(self.stage, self.stage_index, self.run.pp, self.device, group=group)
        return Schedule1F1B(stage, n_microbatches=self.run.microbatches, loss_fn=token_loss)

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
        self.optimizer.step()
        return loss

    def forward_backward(self, tokens_BT: Tensor, target_BT: Tensor) -> Tensor | None:
        """Gradients of the mean loss over the global batch, left in `.grad`."""
        if self._schedule is None:
            return self._accumulate(tokens_BT, target_BT)
        losses: list[Tensor] = []
        inputs = (tokens_BT,) if self.stage_index == 0 else ()
        target = target_BT if self.is_last_stage else None
        self._schedule.step(*inputs, target=target, losses=losses if self.is_last_stage else None)
        return torch.stack(losses).mean().detach() if self.is_last_stage else None

    def _accumulate(self, tokens_BT: Tensor, target_BT: Tensor) -> Tensor:
        count = self.run.microbatches
        total = torch.zeros((), device=self.device)
        pairs = zip(tokens_BT.split(self.run.micro_batch), target_BT.split(self.run.micro_batch), strict=True)
        for index, (micro_tokens, micro_target) in enumerate(pairs):
            if isinstance(self.stage, FSDPModule):
                self.stage.set_requires_gradient_sync(index == count - 1)
                self.stage.set_reshard_after_backward(index == count - 1 or self.run.reshard_after_forward)
            loss = token_loss(self.stage(micro_tokens), micro_target) / count
            loss.backward()
            total += loss.detach()
        return total
