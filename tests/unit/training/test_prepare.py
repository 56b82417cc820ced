"""A preparation of public text can be killed at any moment: the next one goes on, and ends with the same bytes."""

import hashlib
import itertools
import os

import msgspec
import numpy as np
import pytest

from scaling_study.errors import UserError, write_atomically
from scaling_study.spec import Dataset, DataSource, SourceCount, TokenManifest
from scaling_study.submit import prepared
from scaling_study.training import parts, prepare
from scaling_study.training.mixture import Mixture
from scaling_study.training.sources import TextStream
from scaling_study.training.vocabulary import END_OF_DOCUMENT
from tests.unit.samples import CONFIG
from tests.unit.training.texts import articles, text_set, threads, words, write_articles, write_threads

PART_TOKENS = 800
NAMES = {"texts.bin", "texts.json", "texts.tokenizer.json"}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    write_articles(folder)
    write_threads(folder)
    return folder


@pytest.fixture(scope="module")
def whole(texts, tmp_path_factory):
    """A preparation that was not stopped: its folder, its manifest and what was said."""
    folder, said = tmp_path_factory.mktemp("data"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "PART_TOKENS", PART_TOKENS)
        manifest = prepare.prepare(text_set(texts), folder, said.append)
    return folder, manifest, said


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(prepare, "PART_TOKENS", PART_TOKENS)


@pytest.fixture
def encoded(monkeypatch):
    """Every document that is encoded, in order."""
    documents, encode = [], prepare.encode

    def record(tokenizer, batch):
        documents.extend(batch)
        return encode(tokenizer, batch)

    monkeypatch.setattr(prepare, "encode", record)
    return documents


def _content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _mixed(dataset, cache):
    """The documents of a data set as its mixture gives them."""
    streams = {source.name: TextStream(source, dataset.seed, cache) for source in dataset.sources}
    mixture = Mixture(streams, {source.name: source.weight for source in dataset.sources}, {}, "it")
    while True:
        yield mixture.next_document()


def _tokenizer(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "texts.tokenizer.json"))


# -- what is prepared ------------------------------------------------------------------------------------------------


def test_tokens_decode_back_to_the_documents_of_the_mixture(texts, whole, tmp_path):
    folder, manifest, _ = whole
    tokenizer, tokens = _tokenizer(folder), np.fromfile(folder / "texts.bin", dtype=np.uint16)
    assert len(tokens) == manifest.tokens == 2300
    pieces = np.split(tokens, np.flatnonzero(tokens == tokenizer.token_to_id(END_OF_DOCUMENT)) + 1)
    expected = list(itertools.islice(_mixed(text_set(texts), tmp_path), len(pieces)))
    *complete, (_, cut) = expected
    assert [tokenizer.decode(piece[:-1].tolist()) for piece in pieces[:-1]] == [text for _, text in complete]
    assert len(pieces[-1]) > 0
    assert cut.startswith(tokenizer.decode(pieces[-1].tolist()))
    for name in ("articles", "threads"):
        mine = [len(piece) for piece, (source, _) in zip(pieces, expected, strict=True) if source == name]
        assert manifest.sources[name] == SourceCount(documents=len(mine), tokens=sum(mine))


def test_random_tokens_are_the_same_everywhere_and_fill_the_vocabulary(tmp_path):
    dataset = Dataset(name="r", title="t", source=DataSource.RANDOM, tokens=20_001, vocabulary=512, seed=3)
    manifest = prepare.prepare(dataset, tmp_path)
    tokens = np.fromfile(tmp_path / "r.bin", dtype=np.uint16)
    assert (len(tokens), manifest.tokens, tokens.min(), tokens.max()) == (20_001, 20_001, 0, 511)
    assert manifest.sha256 == "c813b39460cc39d86782b46cbd62977bf6c575cb3f8777624d0c8c3547b22753"
    assert prepared(dataset, tmp_path, [], CONFIG.catalogue) == manifest
    assert {path.name for path in tmp_path.iterdir()} == {"r.bin", "r.json", "r.tokenizer.json"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [({}, "needs `tokens`"), ({"tokens": 9, "documents": 2}, "has no `documents`"),
     ({"tokens": 9, "vocabulary_documents": 2}, "has no `vocabulary_documents`")],
)  # fmt: skip
def test_random_tokens_have_a_number_and_no_documents(fields, message):
    with pytest.raises(ValueError, match=f"of source 'random' {message}"):
        Dataset(name="r", title="t", source=DataSource.RANDOM, **fields)


def test_the_vocabulary_is_exactly_as_large_as_asked(whole):
    folder, _, _ = whole
    tokens = np.fromfile(folder / "texts.bin", dtype=np.uint16)
    assert _tokenizer(folder).get_vocab_size() == 400
    assert tokens.max() < 400
    assert len(np.unique(tokens[tokens > 256])) > 100  # one special token and the 256 bytes come first


def test_shares_are_as_the_weights_say(whole):
    _, manifest, _ = whole
    assert manifest.sources["articles"].tokens / manifest.tokens == pytest.approx(3 / 4, abs=0.05)
    assert sum(count.tokens for count in manifest.sources.values()) == manifest.tokens


def test_the_manifest_describes_the_token_file(texts, whole):
    folder, manifest, _ = whole
    assert set(_content(folder)) == NAMES
    assert manifest == msgspec.json.decode((folder / "texts.json").read_bytes(), type=TokenManifest)
    assert manifest.dataset == text_set(texts)
    assert manifest.sha256 == hashlib.sha256((folder / "texts.bin").read_bytes()).hexdigest()
    assert prepared(text_set(texts), folder, [], CONFIG.catalogue) == manifest


@pytest.mark.parametrize("change", [{"tokens": 2301}, {"seed": 1}, {"vocabulary_documents": 21}, {"sources": ()}])
def test_a_driver_refuses_what_was_prepared_from_another_definition(change, texts, whole):
    if "sources" in change:
        change = {"sources": (articles(texts, weight=4), threads(texts))}
    with pytest.raises(UserError, match="the data set 'texts' was prepared from another definition"):
        prepared(text_set(texts, **change), whole[0], [], CONFIG.catalogue)


def test_it_is_said_what_goes_on(whole):
    assert whole[2] == ["training a vocabulary of 400 tokens on 20 documents", "encoding 2,300 tokens"]


def test_the_size_of_parts_and_batches_changes_nothing(texts, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "PART_TOKENS", 1 << 24)
    monkeypatch.setattr(prepare, "BATCH_TOKENS", 100)
    prepare.prepare(text_set(texts), tmp_path)
    assert _content(tmp_path) == _content(whole[0])


def test_what_is_prepared_is_not_prepared_again(texts, whole, tmp_path, monkeypatch):
    for name, content in _content(whole[0]).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "texts.parts").mkdir()  # left where a preparation was killed at its very end
    monkeypatch.setattr(prepare, "TextStream", None)
    said = []
    assert prepare.prepare(text_set(texts), tmp_path, said.append) == whole[1]
    assert said == ["prepared already"]
    assert _content(tmp_path) == _content(whole[0])


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_file_that_is_gone_is_made_again(name, texts, whole, tmp_path):
    for other in NAMES - {name}:
        (tmp_path / other).write_bytes((whole[0] / other).read_bytes())
    prepare.prepare(text_set(texts), tmp_path)
    assert _content(tmp_path) == _content(whole[0])


def test_text_that_has_changed_since_is_prepared_again(tmp_path):
    source, data = tmp_path / "source", tmp_path / "data"
    source.mkdir()
    write_articles(source)
    write_threads(source)
    first = prepare.prepare(text_set(source), data)
    for path in source.iterdir():
        os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))
    said = []
    second = prepare.prepare(text_set(source), data, said.append)
    assert "prepared already" not in said
    assert (second.sha256, second.files != first.files) == (first.sha256, True)


def test_a_damaged_vocabulary_is_trained_again(texts, whole, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_encode", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare.prepare(text_set(texts), tmp_path)
    (tmp_path / "texts.parts/tokenizer.json").write_text('{"version": ')
    assert prepare.prepare(text_set(texts), tmp_path).sha256 == whole[1].sha256


def test_the_spelling_of_the_end_is_text_like_any_other(tmp_path):
    write_articles(tmp_path, text=lambda seed, count: f"{words(seed, count)} {END_OF_DOCUMENT} {words(seed, 3)}")
    manifest = prepare.prepare(text_set(tmp_path, sources=(articles(tmp_path),), tokens=900), tmp_path)
    tokenizer, tokens = _tokenizer(tmp_path), np.fromfile(tmp_path / "texts.bin", dtype=np.uint16)
    ends = np.count_nonzero(tokens == tokenizer.token_to_id(END_OF_DOCUMENT))
    assert ends in (manifest.sources["articles"].documents, manifest.sources["articles"].documents - 1)
    assert tokenizer.decode(tokens.tolist()).count(f" {END_OF_DOCUMENT} ") >= ends


# -- stopped, and started again --------------------------------------------------------------------------------------


class Killed(BaseException):
    """The end of a process, as far as a test can have it."""


class Writes:
    """Counts files as they appear, and ends the process before or after one of them."""

    def __init__(self, monkeypatch, number=None, after=False):
        self.count, self._number, self._after = 0, number, after
        for module in (prepare, parts):
            monkeypatch.setattr(module, "write_atomically", self)

    def __call__(self, path, content):
        last = self.count == self._number
        self.count += 1
        if last and not self._after:
            path.parent.mkdir(exist_ok=True)
            path.with_name(f".{path.name}.tmp").write_bytes(content[: len(content) // 2])
            raise Killed
        write_atomically(path, content)
        if last:
            raise Killed


def _definition(folder):
    return msgspec.json.decode((folder / "texts.parts" / "definition.json").read_bytes(), type=parts.Definition)


def _killed(dataset, folder, monkeypatch, number, after=True):
    """A preparation that is killed at its file of that number."""
    with monkeypatch.context() as patch:
        Writes(patch, number, after)
        with pytest.raises(Killed):
            prepare.prepare(dataset, folder)


def _kept_documents(folder, dataset):
    """How many documents the whole parts of a folder hold."""
    states = sorted((folder / f"{dataset.name}.parts").glob("part-*.json"))
    if not states:
        return 0
    last = msgspec.json.decode(states[-1].read_bytes(), type=parts.PartState)
    return sum(given.documents for given in last.given.values())


#: A definition, a vocabulary, three parts of two files, a vocabulary, a manifest.
WRITES = 10


def test_a_preparation_writes_as_many_files_as_it_is_killed_at(texts, tmp_path, monkeypatch):
    writes = Writes(monkeypatch)
    prepare.prepare(text_set(texts), tmp_path)
    assert writes.count == WRITES


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(WRITES))
def test_killed_at_any_file_it_goes_on_and_encodes_no_document_twice(
    number, after, texts, whole, tmp_path, monkeypatch, encoded
):
    dataset = text_set(texts)
    _killed(dataset, tmp_path, monkeypatch, number, after)
    complete = number == WRITES - 1 and after
    assert ("texts.json" in _content_names(tmp_path)) == complete
    kept = _kept_documents(tmp_path, dataset)
    assert (kept > 0) == (number > 3 or (number == 3 and after))  # the second file of the first part
    encoded.clear()
    assert prepare.prepare(dataset, tmp_path) == whole[1]
    made = {name: content for name, content in _content(tmp_path).items() if not name.endswith(".tmp")}
    assert made == _content(whole[0])
    total = sum(count.documents for count in whole[1].sources.values())
    expected = [text for _, text in itertools.islice(_mixed(dataset, tmp_path / "cache"), total)]
    assert encoded == expected[kept:]


def _content_names(folder):
    return {path.name for path in folder.iterdir()}


def test_killed_after_every_part_it_ends_with_the_same_bytes(texts, whole, tmp_path, monkeypatch, encoded):
    dataset = text_set(texts)
    for number in (3, 1, 1, 1):  # after each of the three parts, and at the manifest
        assert not (tmp_path / "texts.json").exists()
        _killed(dataset, tmp_path, monkeypatch, number)
    prepare.prepare(dataset, tmp_path)
    assert _content(tmp_path) == _content(whole[0])
    assert len(encoded) == len(set(encoded)) == sum(count.documents for count in whole[1].sources.values())


def test_it_is_said_where_it_goes_on(texts, tmp_path, monkeypatch):
    _killed(text_set(texts), tmp_path, monkeypatch, 5)
    said = []
    prepare.prepare(text_set(texts), tmp_path, said.append)
    assert len(said) == 1
    there = int(said[0].removeprefix("encoding 2,300 tokens; ").removesuffix(" are there already").replace(",", ""))
    assert 2 * PART_TOKENS <= there < 2 * PART_TOKENS + 200


def test_a_part_of_another_length_than_its_state_says_is_made_again(texts, whole, tmp_path, monkeypatch):
    _killed(text_set(texts), tmp_path, monkeypatch, 7)
    damaged = tmp_path / "texts.parts" / "part-00001.bin"
    damaged.write_bytes(damaged.read_bytes()[:-2])
    again = parts.Parts(tmp_path / "texts.parts", _definition(tmp_path))
    assert again.tokens < 2 * PART_TOKENS  # the first part alone
    assert [path.name for path in (tmp_path / "texts.parts").glob("part-*.json")] == ["part-00000.json"]
    prepare.prepare(text_set(texts), tmp_path)
    assert _content(tmp_path) == _content(whole[0])


@pytest.mark.parametrize("change", [{"seed": 1}, {"title": "u"}, {"tokens": 2200}, {"vocabulary": 390}, "weight"])
def test_parts_of_another_definition_are_thrown_away(change, texts, tmp_path, monkeypatch):
    changed = {"sources": (articles(texts, weight=2), threads(texts))} if change == "weight" else change
    _killed(text_set(texts), tmp_path, monkeypatch, 5)
    said = []
    prepare.prepare(text_set(texts, **changed), tmp_path, said.append)
    assert said[0].startswith("training a vocabulary of ")
    prepare.prepare(text_set(texts, **changed), tmp_path / "anew")
    assert _content_of(tmp_path) == _content_of(tmp_path / "anew")


def _content_of(folder):
    return {name: (folder / name).read_bytes() for name in NAMES}


def test_parts_of_files_that_have_changed_are_thrown_away(tmp_path, monkeypatch):
    write_articles(tmp_path)
    write_threads(tmp_path)
    dataset = text_set(tmp_path)
    _killed(dataset, tmp_path, monkeypatch, 5)
    write_articles(tmp_path, text=lambda seed, count: words(seed + 7000, count))
    prepare.prepare(dataset, tmp_path)
    prepare.prepare(dataset, tmp_path / "anew")
    assert _content_of(tmp_path) == _content_of(tmp_path / "anew")


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_vocabulary_that_the_documents_do_not_yield_is_refused(texts, tmp_path):
    with pytest.raises(
        UserError, match=r"data set texts: the corpus yields [\d,]+ tokens, 9,000 are wanted\."
    ) as caught:
        prepare.prepare(text_set(texts, vocabulary=9000), tmp_path)
    assert caught.value.remedy == "Raise vocabulary_documents."


@pytest.mark.parametrize(("change", "kept"), [({"vocabulary_documents": 60}, 0), ({"tokens": 9000}, 3)])
def test_a_source_that_is_used_up_is_named_and_what_is_done_is_kept(change, kept, texts, tmp_path):
    with pytest.raises(UserError, match=r"data set texts: the source 'articles' is used up: it gave 40 documents \("):
        prepare.prepare(text_set(texts, **change), tmp_path)
    assert _content_names(tmp_path) == {"texts.parts"}
    assert len(list((tmp_path / "texts.parts").glob("part-*.json"))) == kept


def test_a_source_that_fails_is_tried_again_from_the_last_part(texts, whole, tmp_path, monkeypatch, encoded):
    reading, count = TextStream.next_document, itertools.count()

    def lose_the_connection(self):
        if next(count) == 45:
            raise UserError("it cannot be read: ConnectionError", where="source 'threads'", remedy="Start again.")
        return reading(self)

    with monkeypatch.context() as patch:
        patch.setattr(TextStream, "next_document", lose_the_connection)
        with pytest.raises(UserError, match="ConnectionError"):
            prepare.prepare(text_set(texts), tmp_path)
    kept = _kept_documents(tmp_path, text_set(texts))
    assert kept > 0
    encoded.clear()
    prepare.prepare(text_set(texts), tmp_path)
    assert len(encoded) == sum(count.documents for count in whole[1].sources.values()) - kept
    assert _content(tmp_path) == _content(whole[0])


def test_a_failure_while_the_vocabulary_is_trained_is_the_same_one_message(texts, tmp_path, monkeypatch):
    def fail(_):
        raise UserError("it cannot be read: ConnectionError", where="source 'articles'", remedy="Start again.")

    monkeypatch.setattr(TextStream, "next_document", fail)
    with pytest.raises(UserError, match=r"source 'articles': it cannot be read: ConnectionError\. Start again\."):
        prepare.prepare(text_set(texts), tmp_path)


# -- progress --------------------------------------------------------------------------------------------------------


def test_progress_is_said_after_some_seconds_and_not_sooner():
    now, said = [0.0], []
    progress = prepare.Progress(said.append, clock=lambda: now[0])
    for now[0] in range(1, 18):
        progress(lambda: f"at {now[0]} s")
    assert said == ["at 5 s", "at 10 s", "at 15 s"]


def test_progress_has_numbers(texts, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(prepare, "SAY_EVERY_S", 0.0)
    prepare.prepare(text_set(texts), tmp_path, said.append)
    assert said[:3] == [
        "training a vocabulary of 400 tokens on 20 documents",
        "1 of 20 documents read",
        "2 of 20 documents read",
    ]
    begun = said.index("encoding 2,300 tokens")
    assert all("of 2,300 tokens (" in line and line.endswith(" a second") for line in said[begun + 1 :])
    assert said[-1].startswith("2,300 of 2,300 tokens (100.0%), ")
