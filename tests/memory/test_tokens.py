"""Words to terms."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.lib.text.sentence_rank import LexicalSentenceRanker
from agentflow.lib.text.terms import Tokeniser, common_start, repeated
from agentflow.memory.ranking import looked_for
from agentflow.memory.rerank import spaced, spaced_names


def stem(word: str) -> str:
    (term,) = Tokeniser().terms(word)
    return term


@pytest.mark.parametrize(
    "family",
    [
        "parse parses parsed parsing",
        "parser parsers",
        "validate validates validated validating validation validator",
        "configure configured configuration configurations configures",
        "handle handles handled handling",
        "handler handlers",
        "retry retries retried",
        "stop stops stopped stopping",
        "cache caches cached caching",
        "query queries querying queried",
        "connect connects connected connecting connection connections",
        "environment environments",
    ],
)
def test_forms_of_a_word_share_a_stem(family: str) -> None:
    """Inflections and common derivations of one word are one term."""
    assert len({stem(word) for word in family.split()}) == 1


@pytest.mark.parametrize(
    "family", ["retry retries retried", "query queries", "history histories", "cache caches cached"]
)
def test_all_forms_of_a_word_begin_alike(family: str) -> None:
    """What is looked for in lines of a text is the beginning of every form, though a stem may be none (``queri``)."""
    for word in family.split():
        assert all(other.startswith(common_start(stem(word))) for other in family.split())


@pytest.mark.parametrize(
    "pair", ["status state", "form format", "user use", "string strip", "class clash", "port sport"]
)
def test_different_words_stay_apart(pair: str) -> None:
    """Stemming does not throw together words that programmers tell apart."""
    one, other = pair.split()
    assert stem(one) != stem(other)


def test_identifiers_are_split_at_case_underscore_and_digits() -> None:
    """camelCase, PascalCase, ACRONYMCase and snake_case give the same parts."""
    terms = Tokeniser().terms("readFile read_file ReadFile READ_FILE")
    assert terms == ["read", "file", "readfile"] * 4


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("getFooBar(x) == FooBar", "get Foo Bar(x) == Foo Bar"),
        ("HTTPServer SQLite XMLHttpRequest", "HTTP Server SQ Lite XML Http Request"),
        ("snake_case CONSTANT UTF8 sha256Sum HTTP2Server", "snake_case CONSTANT UTF8 sha256 Sum HTTP2 Server"),
        ("", ""),
        ("aB", "a B"),
        ("größeÄnderungB 索引文件 x日", "größeÄnderung B  索引 引文 文件  x 日 "),
    ],
)
def test_parts_of_names_are_words_of_a_spaced_text(text: str, parts: str) -> None:
    """A capital after a small letter, or before one after capitals, begins a word; nothing is lost."""
    assert spaced([text.encode()]) == [parts.encode()]


def test_names_are_words_and_compounds_each_once_more_for_each_doubling() -> None:
    """What a question asks for of them is there: parts of words, and compounds as one word."""
    words = spaced_names([["getFooBar", "get_baz", "walrus", *(f"test_{n}" for n in range(16))]])[0].split()
    counts = Counter(words)
    assert (counts["get"], counts["foo"], counts["getfoobar"], counts["getbaz"], counts["walrus"]) == (2, 1, 1, 1, 1)
    assert counts["test"] == 5
    for text in ("getFooBar", "get_baz", "walrus", "foo bar"):
        asked = looked_for("symbols", Tokeniser().query_phrases(text))
        assert asked and set(asked) <= set(words), (text, asked)


@given(st.text("aB_ Z9é\n", max_size=60))
def test_what_a_question_looks_for_stands_in_a_spaced_text(text: str) -> None:
    """Every phrase that a question looks for is, word by word, in the spaced text of the question itself."""
    words = " ".join("".join(c if c.isalnum() else " " for c in spaced([text.encode()])[0].decode()).lower().split())
    for term, phrase in Tokeniser().query_phrases(text).items():
        assert phrase in words, (term, phrase, words)


def test_a_question_looks_for_compounds_in_order() -> None:
    """The term of a compound is looked for as its parts, that of a form of a word as the word."""
    phrases = Tokeniser().query_phrases("the getFooBar and snake_case2 of utf8 running 索引文件")
    assert phrases == {
        "get": "get", "foo": "foo", "bar": "bar", "getfoobar": "get foo bar", "snake": "snake", "case": "case",
        "snakecase2": "snake case2", "utf": "utf", "utf8": "utf8", "run": "running",
        "索引": "索引", "引文": "引文", "文件": "文件",
    }  # fmt: skip


def test_scripts_without_spaces_become_pairs() -> None:
    """Chinese, Japanese and Korean words match by overlapping pairs of characters."""
    assert Tokeniser().terms("索引文件") == ["索引", "引文", "文件"]


def test_questions_lose_their_stop_words_unless_nothing_else_is_there() -> None:
    """A question is searched by what it is about."""
    tokeniser = Tokeniser()
    assert tokeniser.query_terms("How does the index work?") == ["index", "work"]
    assert tokeniser.query_terms("what is it") == ["what", "is", "it"]
    assert tokeniser.query_terms("") == []


@given(st.text(max_size=300))
def test_a_bag_counts_the_terms(text: str) -> None:
    """``bag`` is the count of ``terms``, computed another way; terms hold no space, quote or NUL."""
    tokeniser = Tokeniser(cache_size=5)
    assert tokeniser.bag(text) == Counter(tokeniser.terms(text))
    assert all(term and not set(term) & set(" \t\n\"'\0") for term in tokeniser.terms(text))


def test_each_doubling_of_a_word_counts_once_more() -> None:
    """A word that stands a hundred times says little more than one that stands sixteen times."""
    for times, counted in ((1, 1), (2, 2), (3, 2), (4, 3), (8, 4), (16, 5), (100, 5)):
        assert repeated([("word ", times)]).split() == ["word"] * counted


def test_a_huge_word_is_not_a_term() -> None:
    """Base64 and the like neither fill the index nor take time."""
    assert Tokeniser().terms("a" * 1_000_000) == []


def test_sentences_are_scored_from_zero_to_one() -> None:
    """The sentence that shares the rarest words with the question scores 1, one that shares none 0."""
    rank = LexicalSentenceRanker()
    scores = rank("how are streams cut", ["Streams are cut at the idle clock.", "Streams flow.", "Nothing here."])
    assert scores[0] == 1.0 and 0 < scores[1] < 1 and scores[2] == 0.0
    assert rank("", ["a"]) == [0.0] and rank("a", []) == []
