"""Every attention backend against unfused attention in fp32, forward and backward."""

from __future__ import annotations

import math

import msgspec
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from scaling_study.measure.device import open_device
from scaling_study.measure.operators import attention_operators
from scaling_study.spec import AttentionBackend, AttentionCheck, AttentionReport, AttentionShape, Precision
from scaling_study.training.attention import Attend, attend_with
from scaling_study.training.parallel import DTYPES

_SEED = 0
#: Of fp32: fused kernels sum in another order, and multiply by several products of less precision.
_LEAST_ROUNDING = 1e-5
#: What a precision is compared with, if not fp32.
_EXACT = {Precision.FP32: torch.float64}


def check(asked: AttentionCheck) -> list[AttentionReport]:
    """Compare all backends; one that is missing, or has no kernel for this device or precision, says so.

    The bound is that of FlashAttention's own tests of gradients: three times the error that unfused attention makes in
    the same precision. Both are measured against unfused attention in fp32, of fp32 in fp64, on the same inputs and
    without TF32.
    """
    device = open_device(asked.gpu, 0).torch_device
    torch.backends.cuda.matmul.allow_tf32 = False
    found = []
    for shape in asked.shapes:
        for precision in asked.precisions:
            inputs = _inputs(shape, DTYPES[precision], device)
            exact = _all(unfused, [part.to(_EXACT.get(precision, torch.float32)) for part in inputs])
            rounding = max(torch.finfo(DTYPES[precision]).eps, _LEAST_ROUNDING)
            allowed = 3 * _error(_all(unfused, inputs), exact) + rounding
            found += [_compare(backend, precision, shape, inputs, exact, allowed) for backend in AttentionBackend]
    return found


def unfused(q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor) -> Tensor:
    """Causal attention by its formula, every step in the precision of its inputs."""
    groups = q_BTHK.shape[2] // k_BTGK.shape[2]
    q_BHTK = q_BTHK.transpose(1, 2)
    k_BHTK, v_BHTK = (part.transpose(1, 2).repeat_interleave(groups, dim=1) for part in (k_BTGK, v_BTGK))
    scores_BHTT = q_BHTK @ k_BHTK.transpose(2, 3) / math.sqrt(q_BHTK.shape[3])
    future_TT = torch.ones(scores_BHTT.shape[2:], dtype=torch.bool, device=scores_BHTT.device).triu(1)
    weights_BHTT = scores_BHTT.masked_fill(future_TT, -math.inf).softmax(-1)
    return (weights_BHTT @ v_BHTK).transpose(1, 2)


def _compare(
    backend: AttentionBackend,
    precision: Precision,
    shape: AttentionShape,
    inputs: list[Tensor],
    exact: list[Tensor],
    allowed: float,
) -> AttentionReport:
    said = AttentionReport(backend=backend, precision=precision, shape=shape, allowed=allowed)
    try:
        attend = attend_with(backend)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            results = _all(attend, inputs)
    except (ImportError, NotImplementedError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [""]
        return msgspec.structs.replace(said, reason=f"{type(error).__name__}: {lines[0]}")
    names = (event.name for event in profiler.events() or ())
    return msgspec.structs.replace(said, error=_error(results, exact), operators=attention_operators(names))


def _inputs(shape: AttentionShape, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Queries, keys, values and the gradient of the output."""
    generator = torch.Generator(device).manual_seed(_SEED)
    heads = (shape.heads, shape.kv_heads, shape.kv_heads, shape.heads)
    sizes = [(shape.batch, shape.tokens, count, shape.head_dim) for count in heads]
    return [torch.randn(size, generator=generator, device=device).to(dtype) for size in sizes]


def _all(attend: Attend, inputs: list[Tensor]) -> list[Tensor]:
    """The output and the gradients of queries, keys and values."""
    leaves = [part.detach().requires_grad_() for part in inputs[:3]]
    output = attend(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, inputs[3])]


def _error(found: list[Tensor], exact: list[Tensor]) -> float:
    """The largest difference, over the largest magnitude; NaN counts as infinite."""
    errors = [
        ((mine.to(true.dtype) - true).abs().max() / true.abs().max()).item()
        for mine, true in zip(found, exact, strict=True)
    ]
    return max(math.inf if math.isnan(error) else error for error in errors)
