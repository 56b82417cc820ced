"""Causal attention by the backend that a run asks for; one that is missing fails, none falls back to another.

Shapes as in `model`: q (B, T, H, K), k and v (B, T, G, K) with G dividing H; the result is (B, T, H, K).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from scaling_study.spec import AttentionBackend

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

_KERNELS = {
    AttentionBackend.SDPA_FLASH: SDPBackend.FLASH_ATTENTION,
    AttentionBackend.SDPA_EFFICIENT: SDPBackend.EFFICIENT_ATTENTION,
    AttentionBackend.SDPA_CUDNN: SDPBackend.CUDNN_ATTENTION,
    AttentionBackend.SDPA_MATH: SDPBackend.MATH,
}


def attend_with(backend: AttentionBackend) -> Attend:
    """The attention function of a backend.

    Raises:
        ImportError: the backend is a library that is not installed.
        RuntimeError, NotImplementedError: on its first call, where the device or the dtype has no such kernel.
    """
    if backend is AttentionBackend.XFORMERS:
        return _xformers()
    if backend is AttentionBackend.SDPA:
        return _sdpa
    kernel = _KERNELS[backend]

    def attend(q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor) -> Tensor:
        with sdpa_kernel(kernel):
            return _sdpa(q_BTHK, k_BTGK, v_BTGK)

    return attend


def _sdpa(q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor) -> Tensor:
    """PyTorch's attention; it chooses among the kernels that are enabled."""
    out_BHTK = functional.scaled_dot_product_attention(
        q_BTHK.transpose(1, 2),
        k_BTGK.transpose(1, 2),
        v_BTGK.transpose(1, 2),
        is_causal=True,
        enable_gqa=q_BTHK.shape[2] != k_BTGK.shape[2],
    )
    return out_BHTK.transpose(1, 2)


def _xformers() -> Attend:
    """Xformers' `memory_efficient_attention` with a causal bias; grouped heads as its fifth dimension."""
    try:
        from xformers.ops import LowerTriangularMask, memory_efficient_attention
    except ImportError as error:
        message = "attention: xformers is not installed here; install the extra `gpu`, or choose another backend"
        raise ImportError(message) from error

    def attend(q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor) -> Tensor:
        heads, groups = q_BTHK.shape[2], k_BTGK.shape[2]
        if heads == groups:
            return memory_efficient_attention(q_BTHK, k_BTGK, v_BTGK, attn_bias=LowerTriangularMask())
        q_BTGRK = q_BTHK.unflatten(2, (groups, heads // groups))
        k_BTGRK = k_BTGK[:, :, :, None].expand(q_BTGRK.shape)
        v_BTGRK = v_BTGK[:, :, :, None].expand(q_BTGRK.shape)
        return memory_efficient_attention(q_BTGRK, k_BTGRK, v_BTGRK, attn_bias=LowerTriangularMask()).flatten(2, 3)

    return attend
