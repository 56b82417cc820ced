"""Which kernel of attention really ran, from the names of operators that a profiler saw.

A backend's name says who was asked; PyTorch and xformers choose among several kernels when they are called.
"""

from __future__ import annotations

from collections.abc import Iterable

#: What runs below an operator, the outermost operators first: where one is seen, those that it calls count no more.
_PYTORCH = {
    "aten::_scaled_dot_product_flash_attention": "FlashAttention-2",
    "aten::_scaled_dot_product_efficient_attention": "CUTLASS",
    "aten::_scaled_dot_product_cudnn_attention": "cuDNN",
    "aten::_scaled_dot_product_attention_math": "unfused",
}
_XFORMERS = {
    "xformers_flash3::flash_fwd": "FlashAttention-3",
    "xformers_flash::flash_fwd": "FlashAttention-2",
    "flash_attn_3::fwd": "FlashAttention-3",
    "flash_attn::_flash_attn_forward": "FlashAttention-2",
    "xformers::efficient_attention_forward_cutlass": "CUTLASS",
    "aten::_flash_attention_forward": "FlashAttention-2",
    "aten::_efficient_attention_forward": "CUTLASS",
}


def attention_operators(names: Iterable[str]) -> list[str]:
    """Kernels and the operators that launched them, such as `FlashAttention-2 (aten::_flash_attention_forward)`.

    Args:
        names: of every operator that ran.
    """
    seen = set(names)
    for known in (_PYTORCH, _XFORMERS):
        found = sorted(f"{kernel} ({operator})" for operator, kernel in known.items() if operator in seen)
        if found:
            return found
    return []
