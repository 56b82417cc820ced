"""Byte-pair encoding: a vocabulary trained on documents, and documents as 16-bit tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from scaling_study.errors import UserError

END_OF_DOCUMENT = "<|end|>"


def train_vocabulary(documents: Iterable[str], size: int, *, where: str, remedy: str) -> Any:
    """A byte-level byte-pair tokenizer of exactly `size` tokens, the end of a document and the 256 bytes included.

    Args:
        documents: read once, one after another; none is kept.
        size: of the vocabulary.
        where: what an error names.
        remedy: what to do where the documents do not yield as many tokens.

    Raises:
        UserError: they do not.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        documents,
        trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=1,
            special_tokens=[END_OF_DOCUMENT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    found = tokenizer.get_vocab_size()
    if found != size:
        raise UserError(f"the corpus yields {found:,} tokens, {size:,} are wanted", where=where, remedy=remedy)
    return tokenizer


def encode(tokenizer: Any, documents: Sequence[str]) -> list[Any]:
    """The tokens of each document and the one that ends it, as arrays of 16-bit numbers.

    A document that holds the end's own spelling is text like any other.
    """
    tokenizer.encode_special_tokens = True
    end = tokenizer.token_to_id(END_OF_DOCUMENT)
    return [np.asarray([*one.ids, end], dtype=np.uint16) for one in tokenizer.encode_batch_fast(documents)]
