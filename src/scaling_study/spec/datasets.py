"""Data sets: documents, vocabulary and the token file that training reads."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from scaling_study.spec.words import DataSource, DocumentFormat

Positive = Annotated[int, Meta(gt=0)]
#: What a data set of each source has beside vocabulary and seed, and what of it must be given.
_KEYS = {
    DataSource.SYNTHETIC: ("documents", "words"),
    DataSource.TEXT: ("sources", "tokens", "vocabulary_documents"),
    DataSource.RANDOM: ("tokens",),
}
_NEEDED = {**_KEYS, DataSource.SYNTHETIC: ()}
Name = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]*$")]


class TextSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Public text that a data set is mixed from: a data set of the Hugging Face Hub, or local files.

    Attributes:
        format: what a row holds, and so how it becomes a document.
        weight: its share of the mixed text, in UTF-8 bytes; weights need not sum to 1.
        path: of the data set on the hub, with its `config`, `split` and `revision`; without a revision its newest.
        files: instead, patterns of parquet or JSON-lines files (`.parquet`, `.jsonl`, `.jsonl.gz`), relative to the
            working directory.
    """

    name: Name
    format: DocumentFormat
    weight: Annotated[float, Meta(gt=0, le=1e6)]
    path: str | None = None
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.files):
            raise ValueError(f"the source {self.name!r} needs either `path` (on the hub) or `files` (here)")
        if self.files and (self.config, self.split, self.revision) != (None, "train", None):
            raise ValueError(f"the source {self.name!r} has `files`: `config`, `split` and `revision` belong to `path`")


class Dataset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A corpus that becomes one memory-mapped file of 16-bit tokens.

    Attributes:
        source: `synthetic` (documents written by the seeded generator of `training/corpus.py`), `text` (public text) or
            `random` (tokens drawn evenly: no documents, and nothing to learn, for runs whose speed alone counts).
        documents: synthetic: how many are generated.
        words: synthetic: distinct words that the generator draws from, by Zipf's law.
        sources: text: what is mixed.
        tokens: text and random: how many the file holds.
        vocabulary_documents: text: the encoding is trained on so many documents, the first of the mixture.
        vocabulary: tokens of the byte-pair encoding trained on the corpus.
        seed: of the generator; for text, of the order in which the files of a source are read.
    """

    name: str
    title: str
    source: DataSource
    documents: Positive = 1
    words: Positive = 1
    sources: tuple[TextSource, ...] = ()
    tokens: Positive | None = None
    vocabulary_documents: Positive | None = None
    vocabulary: Annotated[int, Meta(gt=256, le=65536)] = 32000
    seed: Annotated[int, Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        given = {key: bool(getattr(self, key)) for key in ("sources", "tokens", "vocabulary_documents")}
        given |= {key: getattr(self, key) != 1 for key in ("documents", "words")}
        foreign = [key for key, there in given.items() if there and key not in _KEYS[self.source]]
        missing = [key for key in _NEEDED[self.source] if not given[key]]
        if foreign:
            raise ValueError(f"a data set of source {self.source.value!r} has no `{foreign[0]}`")
        if missing:
            raise ValueError(f"a data set of source {self.source.value!r} needs `{missing[0]}`")
        names = [source.name for source in self.sources]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two sources are called {twice[0]!r}")


class SourceCount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a source gave to a token file; the last document may be there in part.

    Attributes:
        documents: how many.
        tokens: how many, with those that end documents.
    """

    documents: int
    tokens: int


class TokenManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a token file holds; kept beside it as JSON.

    Attributes:
        dataset: the definition that it was prepared from.
        tokens: how many.
        sha256: of the token file.
        sources: what each source of public text gave.
        files: size in bytes and time of change in nanoseconds of each local file that was read.
    """

    dataset: Dataset
    tokens: int
    sha256: str
    sources: dict[str, SourceCount] = {}
    files: dict[str, tuple[int, int]] = {}

    def sequences(self, length: int) -> int:
        """How many sequences of that many tokens, and the one that follows, the file holds."""
        return (self.tokens - 1) // length
