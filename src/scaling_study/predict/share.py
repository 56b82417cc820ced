"""A tensor-parallel rank's share of a micro-batch, and the parameters that FSDP2 gathers and reduces together."""

from __future__ import annotations

import functools

import msgspec

from scaling_study.spec import Model, TrainingRun

FP32_BYTES = 4


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes that one rank of a tensor-parallel group works with in one micro-batch.

    Attributes:
        batch, sequence: sequences of the micro-batch, tokens of each.
        hidden, head_dim, vocabulary: of the model.
        heads, kv_heads, ffn, local_vocabulary: this rank's part of them.
        tp: ranks of the group.
        dtype_bytes: of an element of parameters and activations.
    """

    batch: int
    sequence: int
    hidden: int
    head_dim: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    local_vocabulary: int
    tp: int
    dtype_bytes: int

    @property
    def tokens(self) -> int:
        """Tokens of the micro-batch."""
        return self.batch * self.sequence

    @property
    def local_tokens(self) -> int:
        """Tokens between tensor-parallel regions, where the sequence is split (Korthikanti et al., 2022)."""
        return self.tokens // self.tp

    @property
    def query(self) -> int:
        """Columns of this rank's queries."""
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        """Columns of this rank's keys, and of its values."""
        return self.kv_heads * self.head_dim


def share_of(run: TrainingRun, model: Model) -> Share:
    """The share of any rank of a run; layouts split evenly, so all are alike."""
    return Share(
        batch=run.micro_batch,
        sequence=run.sequence_length,
        hidden=model.hidden,
        head_dim=model.head_dim,
        heads=model.heads // run.tp,
        kv_heads=model.kv_heads // run.tp,
        ffn=model.ffn // run.tp,
        vocabulary=model.vocabulary,
        local_vocabulary=model.vocabulary // run.tp,
        tp=run.tp,
        dtype_bytes=run.precision.element_bytes,
    )


class Matrix(msgspec.Struct, frozen=True):
    """A parameter on one tensor-parallel rank; FSDP2 shards its rows."""

    rows: int
    columns: int = 1

    @property
    def elements(self) -> int:
        """Number of elements."""
        return self.rows * self.columns

    def padded(self, dp: int) -> int:
        """Elements when every data-parallel rank holds as many rows as the first one."""
        return -(-self.rows // dp) * dp * self.columns

    def held(self, dp: int, replica: int) -> int:
        """Elements that a data-parallel rank holds, without padding."""
        chunk = -(-self.rows // dp)
        return max(0, min(self.rows - replica * chunk, chunk)) * self.columns


@functools.lru_cache(maxsize=64)
def block_parameters(share: Share) -> tuple[Matrix, ...]:
    """Parameters of one block, in the order in which the model registers them."""
    hidden, query, key, ffn = share.hidden, share.query, share.key, share.ffn
    attention = (Matrix(query, hidden), Matrix(key, hidden), Matrix(key, hidden), Matrix(hidden, query))
    feed_forward = (Matrix(ffn, hidden), Matrix(hidden, ffn), Matrix(ffn, hidden))
    return (Matrix(hidden), *attention, Matrix(hidden), *feed_forward)


@functools.lru_cache(maxsize=64)
def root_parameters(share: Share, *, first: bool, last: bool) -> tuple[Matrix, ...]:
    """Parameters of a pipeline stage outside its blocks: embedding on the first, norm and head on the last."""
    table = Matrix(share.local_vocabulary, share.hidden)
    return ((table,) if first else ()) + ((Matrix(share.hidden), table) if last else ())


def elements(parameters: tuple[Matrix, ...]) -> int:
    """Elements of some parameters."""
    return sum(one.elements for one in parameters)


def padded_elements(parameters: tuple[Matrix, ...], dp: int) -> int:
    """Elements of some parameters as FSDP2 gathers them over `dp` ranks."""
    return sum(one.padded(dp) for one in parameters)


def accumulates(run: TrainingRun) -> bool:
    """Whether gradients add up over backward passes before they are reduced; a pipeline always reduces afterwards."""
    return run.pp > 1 or run.microbatches > 1
