"""Several sources as one sequence of documents, each with its share of the text.

The source that is furthest behind its share gives the next document. Nothing is drawn by chance, so every stretch has
the mixture, to within a document, and what was given so far says how it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from scaling_study.errors import UserError


class Stream(Protocol):
    """Documents one after another: what a mixture needs of a `sources.TextStream`."""

    @property
    def position(self) -> dict[str, Any]:
        """Behind the last document that was handed out."""
        ...

    def next_document(self) -> str | None:
        """The next document; None where there is none any more."""
        ...


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a source has given.

    Attributes:
        documents: how many.
        text_bytes: their length in UTF-8.
        tokens: their tokens, as far as they are encoded.
        position: of its stream.
    """

    documents: int = 0
    text_bytes: int = 0
    tokens: int = 0
    position: dict[str, Any] = {}


def furthest_behind(weights: Sequence[float], text_bytes: Sequence[int]) -> int:
    """Which source is furthest behind its share, the first of equals."""
    return min(range(len(weights)), key=lambda i: text_bytes[i] / weights[i])


class Mixture:
    """The documents of several streams.

    Args:
        streams: by name of the source, each behind what it has given.
        weights: shares of the text in bytes, by name.
        given: by name; a source that is not in it has given nothing.
        where: what an error names.
    """

    def __init__(
        self, streams: Mapping[str, Stream], weights: Mapping[str, float], given: Mapping[str, Given], where: str
    ) -> None:
        self._streams, self._where = streams, where
        self._names = list(streams)
        self._weights = [weights[name] for name in self._names]
        self._documents = [given[name].documents if name in given else 0 for name in self._names]
        self._text_bytes = [given[name].text_bytes if name in given else 0 for name in self._names]

    def given(self, tokens: Mapping[str, int]) -> dict[str, Given]:
        """What every source has given, and how many tokens that is."""
        return {
            name: Given(
                documents=self._documents[i],
                text_bytes=self._text_bytes[i],
                tokens=tokens.get(name, 0),
                position=self._streams[name].position,
            )
            for i, name in enumerate(self._names)
        }

    def next_document(self) -> tuple[str, str]:
        """The next document and the name of its source.

        Raises:
            UserError: that source has no more documents, or cannot be read.
        """
        i = furthest_behind(self._weights, self._text_bytes)
        text = self._streams[self._names[i]].next_document()
        if text is None:
            raise UserError(
                f"the source {self._names[i]!r} is used up: it gave {self._documents[i]:,} documents"
                f" ({self._text_bytes[i]:,} bytes), and more are needed",
                where=self._where,
                remedy="Name more text there, lower its weight, or lower `tokens` or `vocabulary_documents`.",
            )
        self._documents[i] += 1
        self._text_bytes[i] += len(text.encode())
        return self._names[i], text

    def take(self, tokens: int) -> list[tuple[str, str]]:
        """Documents that may hold that many tokens, and not one more than may be needed.

        A token is a byte or more, and one more ends a document.
        """
        taken: list[tuple[str, str]] = []
        most = 0
        while most < tokens:
            name, text = self.next_document()
            taken.append((name, text))
            most += len(text.encode()) + 1
        return taken
