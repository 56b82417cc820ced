"""The least memory that a layout needs: what must be resident at once, activations and buffers left out."""

from __future__ import annotations

from scaling_study.spec import Hardware, Model, TrainingRun

_OPTIMIZER_BYTES = 4 + 4 + 4  # fp32 master weight and AdamW's two moments


def stage_parameters(run: TrainingRun, model: Model) -> int:
    """Parameters of the largest pipeline stage on one tensor-parallel rank."""
    blocks = model.layers // run.pp * model.layer_parameters
    ends = model.embedding_parameters * (2 if run.pp == 1 else 1)
    return (blocks + ends) // run.tp


def least_memory_gib(run: TrainingRun, model: Model) -> float:
    """Sharded state, plus the gathered parameters that are alive together; GiB a GPU.

    Without resharding after the forward pass, every parameter of the stage is gathered when the backward pass begins;
    with it, one block is. Gradients are not counted: they come and go with the backward pass.
    """
    parameters = stage_parameters(run, model)
    sharded = parameters * _OPTIMIZER_BYTES / run.dp
    whole = model.layer_parameters / run.tp if run.reshard_after_forward else parameters
    gathered = whole * run.precision.element_bytes if run.uses_fsdp else 0
    return (sharded + gathered) / 2**30


def infeasible_because(run: TrainingRun, model: Model, hardware: Hardware) -> str | None:
    """Why the run cannot fit its hardware, or None where the bound does not exclude it."""
    if hardware.memory_gib is None:
        return None
    least, capacity = least_memory_gib(run, model), hardware.memory_gib.value
    if least <= capacity:
        return None
    return f"parameters and optimizer alone need {least:.0f} GiB a GPU, {hardware.title} has {capacity:.0f}"
