"""A row becomes the text that a reader sees: best answers first, code as it was written, no mark-up, no entities."""

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.spec import DocumentFormat
from scaling_study.training.documents import FORMATS, RowError, article, text_of_html, thread
from tests.unit.samples import bounded
from tests.unit.training.texts import answer

QUESTION = """
<h1>Strange &quot;swap&quot;</h1>
<p>Why does <code>a &lt; b &amp;&amp; c</code> fail&#33;<br>I tried
   this &mdash; twice &nbsp;(&lt;p&gt; is no tag):</p>
<pre class="lang-c"><code>if (a &lt; b) {
    swap(&amp;a, &amp;b);   // twice

}
</code></pre>
<ul><li>on <a href="https://example.org/?a=1&amp;b=2">Linux</a></li>
<li><p>and <b>Win</b>dows</p></li></ul>
<p><img src="x.png" alt="y"></p>
<blockquote><p>It is <em>fine</em>.</p></blockquote>
"""

GOLDEN = """Question:
Strange "swap"

Why does a < b && c fail!
I tried this — twice (<p> is no tag):

if (a < b) {
    swap(&a, &b);   // twice

}

- on Linux
- and Windows

It is fine.

Answer:
Accepted & best.

Answer:
As good.

Answer:
Worse.

Answer:
Of no score."""


def test_a_thread_is_its_question_and_its_answers_the_best_first():
    answers = [
        answer("<p>Worse.</p>", score=-1),
        answer("<p>Of no score.</p>", score=None),
        answer("<p>As good.</p>", score=4),
        answer("<p> </p>", score=9),
        answer("<p>Accepted &amp; best.</p>", score=4, selected=True),
    ]
    assert thread({"question": QUESTION, "answers": answers}) == GOLDEN


def test_an_article_is_its_title_and_its_text():
    assert article({"id": "1", "title": "Ålesund ", "text": " A town.\n\nA port.\n"}) == "Ålesund\n\nA town.\n\nA port."
    assert article({"title": "", "text": "A town."}) == "A town."


@pytest.mark.parametrize("row", [{"title": "Only a title", "text": ""}, {"title": None, "text": None}])
def test_an_article_without_text_is_none(row):
    assert article(row) == ""


@pytest.mark.parametrize("question", ["", None, "<p></p>\n", '<img src="x">'])
def test_a_thread_without_a_question_is_none(question):
    assert thread({"question": question, "answers": [answer("<p>an answer</p>")]}) == ""


@pytest.mark.parametrize("answers", [[], None])
def test_a_thread_without_answers_is_its_question(answers):
    assert thread({"question": "why?", "answers": answers}) == "Question:\nwhy?"


@pytest.mark.parametrize(
    ("format_", "row", "what"),
    [
        ("wikipedia", {"title": "t", "body": "x"}, "there is no 'text', but 'title', 'body'"),
        ("wikipedia", {"title": "t", "text": 3}, "'text' holds a value of type int, text is needed"),
        ("stackexchange", {"answers": []}, "there is no 'question', but 'answers'"),
        ("stackexchange", {"question": "q", "answers": "a"}, "'answers' is no list of answers, each with 'text'"),
        ("stackexchange", {"question": "q", "answers": ["a"]}, "'answers' is no list of answers, each with 'text'"),
        ("stackexchange", {"question": "q", "answers": [{"pm_score": 1}]}, "there is no 'text', but 'pm_score'"),
    ],
)
def test_a_row_of_another_form_is_refused(format_, row, what):
    with pytest.raises(RowError, match=what):
        FORMATS[DocumentFormat(format_)].document(row)


def test_every_format_has_a_reader():
    assert set(FORMATS) == set(DocumentFormat)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("one<p>two<p>three", "one\n\ntwo\n\nthree"),
        ("<ol><li>a</li><li>b</li></ol>c", "- a\n- b\n\nc"),
        ("<ul><li><pre>x = 1\n  y</pre></li></ul>", "- x = 1\n  y"),
        ("<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", "a b\n\n1 2"),
        ("<pre>\n  first\n\n  last  \n</pre>", "  first\n\n  last"),
        ("a</pre> b", "a\n\nb"),
        ("1 < 2 & 3 > 2", "1 < 2 & 3 > 2"),
        ("a<![if x]>b", "a<![if x]>b"),
        ("a <!-- said\nnothing --> b", "a b"),
        ("", ""),
    ],
)
def test_markup_becomes_text(markup, text):
    assert text_of_html(markup) == text


characters = st.text(alphabet="ab;&<>/!#x1\"' \n\r\t\xa0\u2003é∑😀")


@bounded
@given(characters)
def test_words_of_a_paragraph_are_kept(text):
    assert text_of_html(f"<p>{html.escape(text)}</p>") == " ".join(text.split())


@bounded
@given(characters)
def test_code_is_kept_as_it_is_written(text):
    assert text_of_html(f"<pre><code>{html.escape(text)}</code></pre>") == text.strip("\r\n").rstrip()


@bounded
@given(st.text(alphabet="<>/!&;#x[]-= \"'plibre\n") | characters)
def test_no_markup_stops_a_preparation(markup):
    assert isinstance(text_of_html(markup), str)
