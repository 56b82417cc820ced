"""Rows of public text as documents: an article of Wikipedia, a thread of StackExchange.

A format is the columns that it reads and the function that makes a document of them. The columns are those of
`wikimedia/wikipedia` and of `HuggingFaceH4/stack-exchange-preferences` on the Hugging Face Hub.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from typing import Any, NamedTuple

from scaling_study.spec import DocumentFormat

Row = Mapping[str, Any]

#: Raised when rows become other documents than before.
FORMAT_VERSION = 1


class RowError(Exception):
    """A row that is not of its format."""


_HEADINGS = {f"h{level}" for level in range(1, 7)}
_LISTS = {"ul", "ol", "li", "dl", "dt", "dd"}
_BLOCKS = {"p", "div", "pre", "blockquote", "article", "section", "figure", "table", "tr", "hr"} | _HEADINGS | _LISTS


class Format(NamedTuple):
    """How rows become documents.

    Attributes:
        columns: those that are read.
        document: a row's text; empty where there is none. A row of another form is a `RowError`.
    """

    columns: tuple[str, ...]
    document: Callable[[Row], str]


def article(row: Row) -> str:
    """An article of Wikipedia: its title, a blank line, its text."""
    title, text = _string(row, "title").strip(), _string(row, "text").strip()
    return f"{title}\n\n{text}" if title and text else text


def thread(row: Row) -> str:
    """A thread of StackExchange: the question, then its answers, the best scored first, without their mark-up."""
    question = text_of_html(_string(row, "question"))
    answers = [text_of_html(_string(answer, "text")) for answer in sorted(_answers(row), key=_rank)]
    if not question:
        return ""
    return "\n\n".join([f"Question:\n{question}", *(f"Answer:\n{answer}" for answer in answers if answer)])


FORMATS: Mapping[DocumentFormat, Format] = {
    DocumentFormat.WIKIPEDIA: Format(("title", "text"), article),
    DocumentFormat.STACKEXCHANGE: Format(("question", "answers"), thread),
}


def _string(row: Row, column: str) -> str:
    if column not in row:
        raise RowError(f"there is no {column!r}, but {', '.join(map(repr, row)) or 'nothing'}")
    value = row[column]
    if value is not None and not isinstance(value, str):
        raise RowError(f"{column!r} holds a value of type {type(value).__name__}, text is needed")
    return value or ""


def _answers(row: Row) -> list[Row]:
    answers = row.get("answers") or []
    if not isinstance(answers, list) or not all(isinstance(answer, Mapping) for answer in answers):
        raise RowError("'answers' is no list of answers, each with 'text', 'pm_score' and 'selected'")
    return answers


def _rank(answer: Row) -> tuple[float, bool]:
    """The place of an answer: by falling score, and of equals the accepted one first."""
    score = answer.get("pm_score")
    return -float(score) if isinstance(score, int | float) else float("inf"), not answer.get("selected")


def text_of_html(html: str) -> str:
    """The text of an HTML fragment: blocks apart by a blank line, entities decoded, code as it is written."""
    reader = _TextOfHtml()
    reader.feed(html.replace("<![", "&lt;!["))  # an unknown marked section makes the parser raise an AssertionError
    reader.close()
    return reader.text()


class _TextOfHtml(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._finished: list[str] = []
        self._current: list[str] = []
        self._verbatim = 0  # how many `pre` are open
        self._bullet = ""
        self._after_item = False

    def text(self) -> str:
        self._end_block()
        return "".join(self._finished)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  the parser's
        if tag in _BLOCKS:
            self._end_block()
        if tag == "pre":
            self._verbatim += 1
        elif tag == "li":
            self._bullet = "- "
        elif tag == "br":
            self._current.append("\n")
        elif tag in ("td", "th"):
            self._current.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._end_block()
        if tag == "pre":
            self._verbatim = max(0, self._verbatim - 1)

    def handle_data(self, data: str) -> None:
        self._current.append(data if self._verbatim else data.replace("\n", " "))

    def _end_block(self) -> None:
        text = "".join(self._current)
        self._current.clear()
        if self._verbatim:
            text = text.strip("\r\n").rstrip()
        else:
            text = "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()
        if not text:
            return
        if self._finished:
            self._finished.append("\n" if self._bullet and self._after_item else "\n\n")
        self._finished.append(self._bullet + text)
        self._after_item, self._bullet = bool(self._bullet), ""
