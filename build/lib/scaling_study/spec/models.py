"""Llama-2 architectures: dimensions and parameter counts."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(gt=0)]


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dimensions of a Llama-2 decoder with an untied head.

    Attributes:
        layers: transformer blocks.
        hidden: width of the residual stream.
        heads: query heads; `hidden / heads` is the head dimension.
        kv_heads: key and value heads (grouped-query attention where fewer than `heads`).
        ffn: inner width of SwiGLU (three matrices).
        vocabulary: tokens.
        source: where the dimensions come from.
    """

    name: str
    layers: Positive
    hidden: Positive
    heads: Positive
    kv_heads: Positive
    ffn: Positive
    vocabulary: Positive
    source: str
    norm_epsilon: float = 1e-5
    rope_base: float = 10000.0

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be divisible by heads ({self.heads})")
        if self.head_dim % 2:
            raise ValueError(f"the head dimension ({self.head_dim}) must be even for the rotary embedding")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be divisible by kv_heads ({self.kv_heads})")

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads

    @property
    def layer_parameters(self) -> int:
        """Parameters of one block: attention, SwiGLU and two norms."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_heads * self.head_dim
        return attention + 3 * self.hidden * self.ffn + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding; the untied head has as many."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters: blocks, embedding, head and final norm."""
        return self.layers * self.layer_parameters + 2 * self.embedding_parameters + self.hidden
