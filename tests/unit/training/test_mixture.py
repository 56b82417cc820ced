"""Every stretch of a mixture has the shares asked for, to within a document, and goes on as if never stopped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.errors import UserError
from scaling_study.training.mixture import Mixture
from tests.unit.samples import bounded


class Listed:
    """A stream of a list; its position counts."""

    def __init__(self, documents, position=None):
        self._documents, self._at = documents, (position or {}).get("at", 0)

    @property
    def position(self):
        return {"at": self._at}

    def next_document(self):
        self._at += 1
        return self._documents[self._at - 1] if self._at <= len(self._documents) else None


def _mixture(documents, weights, given_=None):
    given_ = given_ or {}
    streams = {
        name: Listed(listed, given_[name].position if name in given_ else None) for name, listed in documents.items()
    }
    return Mixture(streams, weights, given_, "data set it")


documents = st.lists(st.text(alphabet="aé∑", min_size=1, max_size=60), min_size=1, max_size=12)
sources = st.dictionaries(st.sampled_from("abc"), st.tuples(documents, st.floats(0.01, 100)), min_size=1)


def _parts(drawn):
    """As many documents as one asks for: the listed ones again and again."""
    return {name: listed * 300 for name, (listed, _) in drawn.items()}, {name: w for name, (_, w) in drawn.items()}


@bounded
@given(sources, st.integers(1, 60))
def test_no_source_is_ahead_of_another_by_more_than_a_document(drawn, count):
    texts, weights = _parts(drawn)
    mixture = _mixture(texts, weights)
    taken = dict.fromkeys(texts, 0)
    longest = {name: max(len(text.encode()) for text in listed) for name, listed in texts.items()}
    for _ in range(count):
        name, text = mixture.next_document()
        taken[name] += len(text.encode())
        for one in texts:
            for other in texts:
                ahead = taken[one] / weights[one] - taken[other] / weights[other]
                assert ahead <= longest[one] / weights[one] * (1 + 1e-9)


@bounded
@given(sources, st.integers(0, 40), st.integers(1, 20))
def test_it_goes_on_as_if_it_had_not_been_stopped(drawn, before, after):
    texts, weights = _parts(drawn)
    whole = _mixture(texts, weights)
    expected = [whole.next_document() for _ in range(before + after)]
    first = _mixture(texts, weights)
    begun = [first.next_document() for _ in range(before)]
    rest = _mixture(texts, weights, first.given({}))
    assert begun + [rest.next_document() for _ in range(after)] == expected
    assert rest.given({}) == whole.given({})


def test_shares_are_of_bytes_and_weights_need_not_sum_to_one():
    mixture = _mixture({"long": ["é" * 100] * 80, "short": ["a" * 10] * 500}, {"long": 6, "short": 2})
    for _ in range(400):
        mixture.next_document()
    given_ = mixture.given({"long": 7})
    assert given_["long"].text_bytes / given_["short"].text_bytes == pytest.approx(3, rel=0.06)
    assert given_["long"].text_bytes == 200 * given_["long"].documents
    assert given_["long"].documents + given_["short"].documents == 400
    assert (given_["long"].tokens, given_["short"].tokens) == (7, 0)
    assert given_["short"].position == {"at": given_["short"].documents}


def test_of_equals_the_first_comes_first():
    mixture = _mixture({"a": ["x"] * 3, "b": ["x"] * 3}, {"a": 1, "b": 1})
    assert [mixture.next_document()[0] for _ in range(6)] == ["a", "b", "a", "b", "a", "b"]


@bounded
@given(sources, st.integers(1, 300))
def test_no_document_more_is_taken_than_may_be_needed(drawn, tokens):
    texts, weights = _parts(drawn)
    mixture = _mixture(texts, weights)
    taken = mixture.take(tokens)
    most = [len(text.encode()) + 1 for _, text in taken]
    assert sum(most[:-1]) < tokens <= sum(most)
    assert sum(g.documents for g in mixture.given({}).values()) == len(taken)


def test_a_source_that_is_used_up_says_what_it_gave_and_what_to_change():
    mixture = _mixture({"a": ["é" * 600] * 2, "b": ["x"] * 5000}, {"a": 1, "b": 1})
    with pytest.raises(UserError) as caught:
        mixture.take(100_000)
    assert str(caught.value) == (
        "data set it: the source 'a' is used up: it gave 2 documents (2,400 bytes), and more are needed."
        " Name more text there, lower its weight, or lower `tokens` or `vocabulary_documents`."
    )
