"""The kernel that ran is told by the outermost operator that launched it."""

import pytest

from scaling_study.measure.operators import attention_operators


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention",
          "aten::_flash_attention_forward"}, ["FlashAttention-2 (aten::_scaled_dot_product_flash_attention)"]),
        ({"aten::_scaled_dot_product_efficient_attention", "aten::_efficient_attention_forward"},
         ["CUTLASS (aten::_scaled_dot_product_efficient_attention)"]),
        ({"aten::_scaled_dot_product_cudnn_attention"}, ["cuDNN (aten::_scaled_dot_product_cudnn_attention)"]),
        ({"aten::_scaled_dot_product_attention_math", "aten::bmm"},
         ["unfused (aten::_scaled_dot_product_attention_math)"]),
        ({"aten::_flash_attention_forward"}, ["FlashAttention-2 (aten::_flash_attention_forward)"]),
        ({"xformers_flash3::flash_fwd"}, ["FlashAttention-3 (xformers_flash3::flash_fwd)"]),
        ({"xformers::efficient_attention_forward_cutlass"},
         ["CUTLASS (xformers::efficient_attention_forward_cutlass)"]),
        ({"aten::mm"}, []),
    ],
)  # fmt: skip
def test_operators(names, found):
    assert attention_operators(names) == found
