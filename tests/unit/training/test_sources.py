"""A stream hands out every document once, goes on from any position, and explains whatever is wrong with its text."""

import gzip
import sys

import pyarrow
import pyarrow.parquet
import pytest

from scaling_study.errors import UserError
from scaling_study.spec import DocumentFormat, TextSource
from scaling_study.training.sources import TextStream, local_files
from tests.unit.training.texts import articles, threads, write_articles, write_threads

SOURCES = {"parquet": articles, "jsonl.gz": threads}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    write_articles(folder, files=2, rows=7)
    write_threads(folder, files=2, rows=7)
    return folder


@pytest.fixture
def open_stream(tmp_path):
    return lambda source, seed=0, position=None: TextStream(source, seed, tmp_path / "cache", position)


def _rest(stream):
    return list(iter(stream.next_document, None))


def _complaint(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_document_of_every_file_comes_once(kind, folder, open_stream):
    found = _rest(open_stream(SOURCES[kind](folder)))
    assert len(found) == len(set(found)) == 14
    first = {"parquet": "Article {}\n\n", "jsonl.gz": "Question:\nThread {} & "}[kind]
    numbers = range(14) if kind == "parquet" else range(1000, 1014)
    assert all(sum(text.startswith(first.format(number)) for text in found) == 1 for number in numbers)


def test_the_seed_orders_the_files_and_not_what_is_in_them(folder, open_stream):
    orders = [tuple(_rest(open_stream(articles(folder), seed))) for seed in range(6)]
    assert orders[3] == tuple(_rest(open_stream(articles(folder), 3)))
    assert len(set(orders)) > 1
    files = {tuple(f"Article {number}" for number in range(start, start + 7)) for start in (0, 7)}
    for order in orders:
        titles = [text.split("\n")[0] for text in order]
        assert {tuple(titles[start : start + 7]) for start in (0, 7)} == files


@pytest.mark.parametrize("kind", SOURCES)
def test_it_goes_on_behind_any_document_and_again_from_there(kind, folder, open_stream):
    source = SOURCES[kind](folder)
    whole = _rest(open_stream(source, 1))
    for stopped in range(len(whole) + 1):
        first = open_stream(source, 1)
        found = [first.next_document() for _ in range(stopped)]
        untouched = open_stream(source, 1, first.position)
        second = open_stream(source, 1, untouched.position)  # one that handed out nothing keeps its position
        found += [text for _ in range(3) if (text := second.next_document()) is not None]
        assert found + _rest(open_stream(source, 1, second.position)) == whole


def test_the_position_at_the_start_is_empty(folder, open_stream):
    assert open_stream(articles(folder)).position == {}


def test_rows_without_text_are_passed_over(tmp_path, open_stream):
    table = pyarrow.table({"title": ["a", "b", "c"], "text": ["", "text", None]})
    pyarrow.parquet.write_table(table, tmp_path / "articles-0.parquet")
    assert _rest(open_stream(articles(tmp_path))) == ["b\n\ntext"]


def test_plain_json_lines_are_read_too(tmp_path, open_stream):
    (tmp_path / "it.jsonl").write_text(
        '{"text": "<&>", "title": "a", "more": [1, null]}\n{"title": "b", "text": "c"}\n'
    )
    assert _rest(open_stream(articles(tmp_path, files=(f"{tmp_path}/*.jsonl",)))) == ["a\n\n<&>", "b\n\nc"]


def test_patterns_are_relative_to_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)
    source = articles(".", files=("threads-*.gz", "./threads-1.jsonl.gz", "threads-0*"))
    assert [path.name for path in local_files(source)] == [f"threads-{file}.jsonl.gz" for file in range(2)]


@pytest.mark.parametrize(
    ("files", "what"),
    [
        (("nothing-*.parquet",), "source 'articles': there is no file nothing-*.parquet. Check the pattern; it is"),
        (("articles-*.parquet", "threads-9.jsonl"), "there is no file threads-9.jsonl."),
        (("articles-*", "threads-*"), "(articles-*, threads-*): its files must all be parquet or all JSON lines."),
        (("other.txt",), "(other.txt): its files must all be parquet or all JSON lines. Name files that end in .parq"),
    ],
)
def test_files_that_are_not_there_or_of_no_kind_are_named(files, what, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "other.txt").touch()
    assert what in _complaint(local_files, articles(".", files=files))


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path, folder, open_stream):
    said = _complaint(open_stream, threads(folder, files=(f"{folder}/articles-*.parquet",)))
    assert "there is no column 'question', but 'id', 'url', 'title', 'text'." in said
    assert said.endswith("The format 'stackexchange' needs question and answers.")
    assert said.startswith(f"source 'threads' ({folder}/articles-*.parquet): ")


def _cut(source, target, share):
    content = source.read_bytes()
    target.write_bytes(content[: int(len(content) * share)])


@pytest.mark.parametrize(("name", "share"), [("articles-0.parquet", 0.9), ("threads-0.jsonl.gz", 0.6)])
def test_a_truncated_file_is_one_message(name, share, folder, tmp_path, open_stream):
    source = {"a": articles, "t": threads}[name[0]](tmp_path)
    _cut(folder / name, tmp_path / name, share)
    said = _complaint(lambda: _rest(open_stream(source)))
    assert said.startswith(f"source {source.name!r} ({source.files[0]}): it cannot be read: ")
    assert said.endswith("Mend or replace the file; of other files everything is prepared anew.")


def test_a_line_that_is_no_json_is_one_message(tmp_path, open_stream):
    (tmp_path / "it.jsonl").write_text('{"title": "a", "text": "b"}\n{"title": "a", "te')
    said = _complaint(lambda: _rest(open_stream(articles(tmp_path, files=(f"{tmp_path}/it.jsonl",)))))
    assert "it.jsonl): it cannot be read: " in said


def test_an_empty_file_is_one_message(tmp_path, open_stream):
    (tmp_path / "articles-0.parquet").touch()
    assert "articles-*.parquet): it cannot be read: " in _complaint(open_stream, articles(tmp_path))


def test_a_file_without_a_line_is_one_message(tmp_path, open_stream):
    (tmp_path / "threads-0.jsonl.gz").write_bytes(gzip.compress(b""))
    assert "it cannot be read: there are no rows. Mend or replace the file; " in _complaint(
        open_stream, threads(tmp_path)
    )


def test_rows_of_another_form_are_one_message(tmp_path, open_stream):
    pyarrow.parquet.write_table(pyarrow.table({"title": ["a"], "text": [3]}), tmp_path / "articles-0.parquet")
    said = _complaint(open_stream(articles(tmp_path)).next_document)
    assert "a row is not of the format 'wikipedia': 'text' holds a value of type int, text is needed. Choose" in said


def test_local_files_need_no_network(folder, open_stream, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    assert len(_rest(open_stream(articles(folder)))) == 14


def test_without_the_library_the_extra_is_named(folder, open_stream, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    said = _complaint(open_stream, articles(folder))
    assert said == "public text needs the package datasets. Install it: pip install 'scaling-study[data]'."


class Rows:
    """Rows as `datasets` streams them, until the connection is lost."""

    column_names = ("title", "text")

    def shuffle(self, **_):
        return self

    def state_dict(self):
        return {}

    def __iter__(self):
        yield {"title": "a", "text": "b"}
        raise ConnectionError("Server Disconnected\nand more")


HUB = TextSource(
    name="wiki", format=DocumentFormat.WIKIPEDIA, weight=1, path="some/where", config="2.en", split="s", revision="r1"
)


def test_a_source_on_the_hub_is_streamed_and_a_lost_connection_is_one_message(open_stream, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("datasets.load_dataset", lambda *args, **kwargs: asked.append((args, kwargs)) or Rows())
    stream = open_stream(HUB)
    assert stream.next_document() == "a\n\nb"
    assert _complaint(stream.next_document) == (
        "source 'wiki' (some/where): it cannot be read: ConnectionError: Server Disconnected. Check the network."
        " What is prepared is kept: start again, and it goes on from there."
    )
    options = {"split": "s", "revision": "r1", "streaming": True, "cache_dir": str(tmp_path / "cache")}
    assert asked == [(("some/where", "2.en"), options)]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (FileNotFoundError("Dataset 'some/where' doesn't exist on the Hub"), "Check path, config, split and revision."),
        (ValueError("BuilderConfig '2.en' not found."), "Check path, config, split and revision."),
        (ConnectionError("Couldn't reach 'some/where' on the Hub"), "Check the network."),
        (RuntimeError(""), "Check the network."),
    ],
)
def test_a_source_that_cannot_be_opened_is_one_message(error, remedy, open_stream, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("datasets.load_dataset", fail)
    said = _complaint(open_stream, HUB)
    assert f"it cannot be read: {type(error).__name__}{f': {error}' if str(error) else ''}. {remedy}" in said
