"""Data sets: documents, vocabulary and the token file that training reads."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from scaling_study.spec.words import DataSource

Positive = Annotated[int, Meta(gt=0)]


class Dataset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A corpus that becomes one memory-mapped file of 16-bit tokens.

    Attributes:
        source: `synthetic` (documents written by the seeded generator of `training/corpus.py`) or `text` (public text).
        documents: how many are generated.
        words: distinct words that the generator draws from, by Zipf's law.
        vocabulary: tokens of the byte-pair encoding trained on the corpus.
        seed: of the generator.
    """

    name: str
    title: str
    source: DataSource
    documents: Positive = 1
    words: Positive = 1
    vocabulary: Annotated[int, Meta(gt=256, le=65536)] = 32000
    seed: int = 0


class TokenManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a token file holds; kept beside it as JSON.

    Attributes:
        dataset: the definition that it was prepared from.
        tokens: how many.
        sha256: of the token file.
    """

    dataset: Dataset
    tokens: int
    sha256: str

    def sequences(self, length: int) -> int:
        """How many sequences of that many tokens, and the one that follows, the file holds."""
        return (self.tokens - 1) // length
