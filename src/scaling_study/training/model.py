"""Llama-2: RMSNorm, rotary embedding, grouped-query attention, SwiGLU, untied head.

Shapes in names of tensors: B sequences, T tokens of a sequence, D hidden, H query heads, G key-value heads,
K head dimension, F inner width of SwiGLU, V vocabulary. Under tensor parallelism a rank holds H/tp and G/tp heads,
F/tp columns, and between blocks T/tp tokens (sequence parallelism).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from scaling_study.spec import ActivationCheckpointing, AttentionBackend, Model
from scaling_study.training.attention import Attend, attend_with
from scaling_study.training.recompute import recomputing


class RMSNorm(nn.Module):
    """Root-mean-square normalisation in fp32 (Zhang and Sennrich, 2019)."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Normalise over the last dimension; the result has the dtype of the input."""
        x_fp32 = x_BTD.float()
        scale = torch.rsqrt(x_fp32.square().mean(-1, keepdim=True) + self.epsilon)
        return (x_fp32 * scale).type_as(x_BTD) * self.weight


def rotary_angles(length: int, head_dim: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding, each of shape (T, K/2), fp32 (Su et al., 2021)."""
    frequency = base ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
    angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), frequency)
    return angle.cos(), angle.sin()


def rotate(x_BTHK: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    """Rotate the halves of each head by the angle of its position, in fp32."""
    first, second = x_BTHK.float().chunk(2, dim=-1)
    cos, sin = cos_TK[None, :, None, :], sin_TK[None, :, None, :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).type_as(x_BTHK)


class Attention(nn.Module):
    """Causal self-attention with grouped key-value heads."""

    def __init__(self, model: Model, attend: Attend) -> None:
        super().__init__()
        self.head_dim, self.attend = model.head_dim, attend
        self.wq = nn.Linear(model.hidden, model.heads * model.head_dim, bias=False)
        self.wk = nn.Linear(model.hidden, model.kv_heads * model.head_dim, bias=False)
        self.wv = nn.Linear(model.hidden, model.kv_heads * model.head_dim, bias=False)
        self.wo = nn.Linear(model.heads * model.head_dim, model.hidden, bias=False)

    def forward(self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        """Attend; the local number of heads follows from the local width of the projections."""
        batch, length, _ = x_BTD.shape
        q_BTHK = self.wq(x_BTD).view(batch, length, -1, self.head_dim)
        k_BTGK = self.wk(x_BTD).view(batch, length, -1, self.head_dim)
        v_BTGK = self.wv(x_BTD).view(batch, length, -1, self.head_dim)
        q_BTHK, k_BTGK = rotate(q_BTHK, cos_TK, sin_TK), rotate(k_BTGK, cos_TK, sin_TK)
        return self.wo(self.attend(q_BTHK, k_BTGK, v_BTGK).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """SwiGLU (Shazeer, 2020)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.w1 = nn.Linear(model.hidden, model.ffn, bias=False)
        self.w2 = nn.Linear(model.ffn, model.hidden, bias=False)
        self.w3 = nn.Linear(model.hidden, model.ffn, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The gated projection up and back."""
        return self.w2(functional.silu(self.w1(x_BTD)) * self.w3(x_BTD))


class Block(nn.Module):
    """One pre-norm transformer block; its activations are kept or computed again."""

    def __init__(self, model: Model, attend: Attend, checkpointing: ActivationCheckpointing) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(model.hidden, model.norm_epsilon)
        self.attention = Attention(model, attend)
        self.ffn_norm = RMSNorm(model.hidden, model.norm_epsilon)
        self.feed_forward = FeedForward(model)
        self._forward = recomputing(self._residual, checkpointing)

    def forward(self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        """Attention and feed-forward, each added to the residual stream."""
        return self._forward(x_BTD, cos_TK, sin_TK)

    def _residual(self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), cos_TK, sin_TK)
        return x_BTD + self.feed_forward(self.ffn_norm(x_BTD))


class Llama(nn.Module):
    """The decoder, or one pipeline stage of it: some blocks, embedding on the first, norm and head on the last.

    Args:
        model: dimensions.
        sequence_length: tokens of a sequence.
        stage: which of `stages` this is.
        stages: pipeline stages; with an interleaved schedule a rank holds several.
        attention: the attention backend.
        checkpointing: which activations of a block are computed again.
    """

    tok_embeddings: nn.Embedding | None
    norm: RMSNorm | None
    output: nn.Linear | None

    def __init__(
        self,
        model: Model,
        sequence_length: int,
        *,
        stage: int = 0,
        stages: int = 1,
        attention: AttentionBackend = AttentionBackend.SDPA,
        checkpointing: ActivationCheckpointing = ActivationCheckpointing.NONE,
    ) -> None:
        super().__init__()
        per_stage = model.layers // stages
        mine = range(stage * per_stage, (stage + 1) * per_stage)
        first, last = stage == 0, stage == stages - 1
        self.model, self.sequence_length = model, sequence_length
        self.tok_embeddings = nn.Embedding(model.vocabulary, model.hidden) if first else None
        attend = attend_with(attention)
        self.layers = nn.ModuleDict({str(layer): Block(model, attend, checkpointing) for layer in mine})
        self.norm = RMSNorm(model.hidden, model.norm_epsilon) if last else None
        self.output = nn.Linear(model.hidden, model.vocabulary, bias=False) if last else None
        self.register_buffer("cos_TK", torch.empty(sequence_length, model.head_dim // 2), persistent=False)
        self.register_buffer("sin_TK", torch.empty(sequence_length, model.head_dim // 2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, T) or activations (B, T, D) in; activations or logits (B, T, V) out."""
        if self.tok_embeddings is not None:
            x = self.tok_embeddings(x)
        for block in self.layers.values():
            x = block(x, self.cos_TK, self.sin_TK)
        if self.norm is not None:
            x = self.norm(x)
        return self.output(x) if self.output is not None else x
