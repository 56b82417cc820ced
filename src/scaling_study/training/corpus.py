"""A small corpus and its vocabulary, made on the spot: documents, byte-pair encoding, token file.

The generator writes encyclopaedia-like articles and question-and-answer threads from made-up words that follow
Zipf's law, so that a 32,000-token byte-pair encoding can be trained on it for real. It is no natural language, and
every record of a run on it says `synthetic`. Same data set, same seed: same bytes.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from scaling_study.errors import UserError, write_atomically
from scaling_study.spec import Dataset, DataSource, TokenManifest

END_OF_DOCUMENT = "<|end|>"
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


def prepare(dataset: Dataset, folder: Path, say: Callable[[str], None] = lambda _: None) -> TokenManifest:
    """Write `<name>.bin` (16-bit tokens) and `<name>.json` (the manifest) into a folder; both complete or not at all.

    Raises:
        UserError: the data set cannot be prepared here, or the folder cannot be written.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if dataset.source is not DataSource.SYNTHETIC:
        raise UserError(
            f"the data set {dataset.name!r} has no preparation yet (source: {dataset.source})",
            remedy="Runs that use it can be listed, not measured here.",
        )
    say(f"writing {dataset.documents:,} documents")
    documents = list(generate_documents(dataset))
    say(f"training a vocabulary of {dataset.vocabulary:,} tokens")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        documents,
        trainers.BpeTrainer(
            vocab_size=dataset.vocabulary,
            min_frequency=1,
            special_tokens=[END_OF_DOCUMENT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if tokenizer.get_vocab_size() != dataset.vocabulary:
        raise UserError(
            f"the corpus yields {tokenizer.get_vocab_size():,} tokens, {dataset.vocabulary:,} are wanted",
            where=f"data set {dataset.name}",
            remedy="Raise documents or words.",
        )
    say("encoding")
    end = tokenizer.token_to_id(END_OF_DOCUMENT)
    encoded = tokenizer.encode_batch(documents)
    tokens = np.concatenate([np.asarray([*one.ids, end], dtype=np.uint16) for one in encoded])
    manifest = TokenManifest(
        dataset=dataset,
        tokens=len(tokens),
        sha256=hashlib.sha256(tokens.tobytes()).hexdigest(),
    )
    write_atomically(folder / f"{dataset.name}.tokenizer.json", tokenizer.to_str().encode())
    write_atomically(folder / f"{dataset.name}.bin", tokens.tobytes())
    write_atomically(folder / f"{dataset.name}.json", msgspec.json.format(msgspec.json.encode(manifest)))
    return manifest
