"""A generated corpus is the same bytes everywhere, has the vocabulary asked for, and reads back as its documents."""

import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections import Counter

import msgspec
import numpy as np
import pytest

from scaling_study.errors import UserError
from scaling_study.spec import Dataset, DataSource, TokenManifest
from scaling_study.training.corpus import generate_documents
from scaling_study.training.prepare import prepare
from scaling_study.training.vocabulary import END_OF_DOCUMENT

SMALL = Dataset(name="small", title="t", source=DataSource.SYNTHETIC, documents=80, words=2000, vocabulary=600, seed=7)
#: A change here changes every token file, and with it the data of every run.
GOLDEN_DIGEST = "7d33e4ef2d42bb140cde850649397023bedf09603dc88485e9e58807f63f62b0"
DOCUMENTS = list(generate_documents(SMALL))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    said = []
    return folder, prepare(SMALL, folder, said.append), said


def _tokens(folder):
    return np.fromfile(folder / "small.bin", dtype=np.uint16)


def _tokenizer(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "small.tokenizer.json"))


def _digest(documents):
    return hashlib.sha256("\x00".join(documents).encode()).hexdigest()


def test_the_documents_of_a_seed_are_always_the_same():
    assert _digest(DOCUMENTS) == _digest(generate_documents(SMALL)) == GOLDEN_DIGEST


def test_another_seed_makes_other_documents():
    other = list(generate_documents(msgspec.structs.replace(SMALL, seed=8)))
    assert len(other) == len(DOCUMENTS)
    assert not set(other) & set(DOCUMENTS)


def test_more_documents_go_on_where_fewer_end():
    more = itertools.islice(generate_documents(msgspec.structs.replace(SMALL, documents=200)), 80)
    assert list(more) == DOCUMENTS


def test_every_third_document_is_a_question_with_an_answer():
    assert len(DOCUMENTS) == 80
    threads = [number for number, text in enumerate(DOCUMENTS) if text.startswith("Question: ")]
    assert threads == list(range(2, 80, 3))
    assert all("\n\nAnswer (" in DOCUMENTS[number] for number in threads)


def test_words_follow_zipfs_law():
    text = " ".join(DOCUMENTS).lower()
    counts = Counter(word.strip(".?:()") for word in text.split())
    frequent = [count for _, count in counts.most_common(8)]
    total = sum(counts.values())
    harmonic = sum(1 / rank for rank in range(1, 2001))
    assert frequent[0] / total == pytest.approx(1 / harmonic, rel=0.25)
    assert frequent[7] / frequent[0] == pytest.approx(1 / 8, rel=0.5)
    assert len(counts) <= 2000 + 5  # the words, and "question", "answer", "votes", numbers apart


def test_the_vocabulary_is_exactly_as_large_as_asked(prepared):
    folder, manifest, _ = prepared
    assert _tokenizer(folder).get_vocab_size() == manifest.dataset.vocabulary == 600
    tokens = _tokens(folder)
    assert tokens.max() < 600
    learned = np.unique(tokens[tokens > 256])  # one special token and the 256 bytes come first
    assert len(learned) > 0.8 * (600 - 257)


def test_tokens_decode_back_to_the_documents(prepared):
    folder, _, _ = prepared
    tokenizer, tokens = _tokenizer(folder), _tokens(folder)
    end = tokenizer.token_to_id(END_OF_DOCUMENT)
    ends = np.flatnonzero(tokens == end)
    assert len(ends) == len(DOCUMENTS)
    assert ends[-1] == len(tokens) - 1
    pieces = np.split(tokens, ends + 1)[:-1]
    assert [tokenizer.decode(piece[:-1].tolist()) for piece in pieces] == DOCUMENTS


def test_the_manifest_describes_the_token_file(prepared):
    folder, manifest, _ = prepared
    content = (folder / "small.bin").read_bytes()
    assert manifest == msgspec.json.decode((folder / "small.json").read_bytes(), type=TokenManifest)
    assert manifest == TokenManifest(
        dataset=SMALL,
        tokens=len(content) // 2,
        sha256=hashlib.sha256(content).hexdigest(),
    )
    assert {path.name for path in folder.iterdir()} == {"small.bin", "small.json", "small.tokenizer.json"}


def test_it_is_said_what_goes_on(prepared):
    assert prepared[2] == ["writing 80 documents", "training a vocabulary of 600 tokens", "encoding"]


def test_the_same_data_set_is_the_same_bytes_in_another_process(prepared, tmp_path):
    script = (
        "import sys, msgspec; from pathlib import Path; from scaling_study.spec import Dataset\n"
        "from scaling_study.training.prepare import prepare\n"
        "prepare(msgspec.json.decode(sys.argv[1], type=Dataset), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", script, msgspec.json.encode(SMALL).decode(), str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "3", "RAYON_NUM_THREADS": "1"})
    for name in ("small.bin", "small.json"):
        assert (tmp_path / name).read_bytes() == (prepared[0] / name).read_bytes()
    one, other = (json.loads((folder / "small.tokenizer.json").read_text()) for folder in (tmp_path, prepared[0]))
    assert one == other


def test_a_corpus_too_small_for_its_vocabulary_is_refused(tmp_path):
    tiny = msgspec.structs.replace(SMALL, documents=2, words=20, vocabulary=5000)
    with pytest.raises(UserError, match=r"data set small: the corpus yields [\d,]+ tokens, 5,000 are wanted\. Raise"):
        prepare(tiny, tmp_path)
    assert list(tmp_path.iterdir()) == []
