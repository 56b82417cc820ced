"""Activation checkpointing of a block: nothing, everything, or what is cheap to compute again.

Selective checkpointing keeps the results of matrix products, attention and tensor-parallel reductions, and computes
the element-wise rest (norms, rotary embedding, SiLU, casts) again in the backward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from scaling_study.spec import ActivationCheckpointing

Forward = Callable[..., Tensor]
_KEPT_NAMESPACES = ("_c10d_functional", "xformers", "xformers_flash", "xformers_flash3")
_KEPT = ("aten::mm", "aten::addmm", "aten::bmm")
_KEPT_PREFIX = "aten::_scaled_dot_product"


def recomputing(forward: Forward, kind: ActivationCheckpointing) -> Forward:
    """The forward function with its activations kept or not."""
    if kind is ActivationCheckpointing.NONE:
        return forward
    options: dict[str, Any] = {"use_reentrant": False}
    if kind is ActivationCheckpointing.SELECTIVE:
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, keep)
    return functools.partial(checkpoint, forward, **options)


def keep(_: Any, operator: torch._ops.OpOverload, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    """Whether an operator's result is kept."""
    name = operator._schema.name
    kept = name in _KEPT or name.startswith(_KEPT_PREFIX) or operator.namespace in _KEPT_NAMESPACES
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
