"""A synthetic corpus, made on the spot.

The generator writes encyclopaedia-like articles and question-and-answer threads from made-up words that follow
Zipf's law, so that a 32,000-token byte-pair encoding can be trained on it for real. It is no natural language, and
every record of a run on it says `synthetic`. Same data set, same seed: same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from scaling_study.spec import Dataset

_ONSETS = ["b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "pl", "gr", "ch", ""]
_NUCLEI = ["a", "e", "i", "o", "u", "ae", "io", "ea", "ou"]
_CODAS = ["", "n", "r", "s", "l", "t", "m", "nd", "st"]


def generate_documents(dataset: Dataset) -> Iterator[str]:
    """The documents of a synthetic data set, two articles for every thread, from its seed alone."""
    source = random.Random(dataset.seed)  # noqa: S311  not for secrets: the same words on every machine
    words = _vocabulary(source, dataset.words)
    weights = [1.0 / rank for rank in range(1, len(words) + 1)]
    cumulative = np.cumsum(weights).tolist()

    def sentence() -> str:
        chosen = source.choices(words, cum_weights=cumulative, k=source.randint(6, 18))
        return " ".join(chosen).capitalize() + "."

    def paragraph() -> str:
        return " ".join(sentence() for _ in range(source.randint(3, 6)))

    for number in range(dataset.documents):
        title = " ".join(source.choices(words, cum_weights=cumulative, k=2)).title()
        body = "\n\n".join(paragraph() for _ in range(source.randint(2, 4)))
        if number % 3 == 2:
            yield f"Question: {title}?\n\n{body}\n\nAnswer ({source.randint(0, 40)} votes): {paragraph()}\n"
        else:
            yield f"{title}\n\n{body}\n"


def _vocabulary(source: random.Random, count: int) -> list[str]:
    words: dict[str, None] = {}
    while len(words) < count:
        syllables = source.choices((1, 2, 3, 4), weights=(1, 6, 5, 2))[0]
        parts = (source.choice(_ONSETS) + source.choice(_NUCLEI) + source.choice(_CODAS) for _ in range(syllables))
        words.setdefault("".join(parts))
    return list(words)
