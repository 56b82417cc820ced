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
        source: `generated` (documents written by the seeded generator of `training/corpus.py`) or `planned`
            (public text whose preparation does not exist yet: runs that name it cannot be measured).
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
