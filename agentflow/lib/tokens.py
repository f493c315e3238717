"""Turns prose and code into search terms: identifiers are split at case and underscore, lower-cased, stemmed.

The index, the sentence ranker and the offline model all use this tokeniser, so that they agree on terms. ASCII words
are stemmed as English, by Snowball's stemmer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

from Stemmer import Stemmer  # pyright: ignore[reportUnknownVariableType] - a C extension, without types

STOP_WORDS: frozenset[str] = frozenset(
    [
        "a",
        "about",
        "after",
        "all",
        "also",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "been",
        "before",
        "being",
        "but",
        "by",
        "can",
        "cannot",
        "could",
        "did",
        "do",
        "does",
        "doing",
        "done",
        "each",
        "either",
        "for",
        "from",
        "get",
        "gets",
        "got",
        "had",
        "has",
        "have",
        "how",
        "i",
        "if",
        "in",
        "instead",
        "into",
        "is",
        "it",
        "its",
        "just",
        "may",
        "me",
        "more",
        "most",
        "must",
        "my",
        "no",
        "nor",
        "not",
        "of",
        "off",
        "on",
        "only",
        "onto",
        "or",
        "other",
        "our",
        "out",
        "over",
        "own",
        "per",
        "please",
        "should",
        "so",
        "some",
        "such",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "through",
        "to",
        "too",
        "under",
        "until",
        "up",
        "upon",
        "us",
        "use",
        "used",
        "uses",
        "using",
        "via",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "whether",
        "which",
        "while",
        "who",
        "whose",
        "why",
        "will",
        "with",
        "within",
        "without",
        "would",
        "you",
        "your",
    ]
)
"""Stop words: dropped from queries, kept in documents."""

_WORD = re.compile(r"[^\W_]+(?:_+[^\W_]+)*")
_ASCII_WORDS = "".join(chr(code) if chr(code).isalnum() or chr(code) == "_" else " " for code in range(128))
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_A-Za-z0-9]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_MAX_WORD = 120
_MAX_TERM = 40


def split_identifier(word: str) -> list[str]:
    """The parts of an identifier, lower-cased: ``getHTTPResponse_v2`` gives ``get http response v 2``."""
    return [part.lower() for part in _PART.findall(word)]


class Tokeniser:
    """Splits text into terms and caches the terms of words (one per index or ranker; not thread-safe).

    Parameters: ``cache_size`` is the maximum number of cached words; a full cache is cleared.
    """

    __slots__ = ("_cache", "_cache_size", "_stem")

    def __init__(self, cache_size: int = 200_000) -> None:
        self._cache: dict[str, tuple[str, ...]] = {}
        self._cache_size = cache_size
        self._stem: Callable[[str], str] = Stemmer("english", 0).stemWord  # pyright: ignore[reportUnknownMemberType]

    def word_terms(self, word: str) -> tuple[str, ...]:
        """The terms of one word: the stems of its parts and, for a compound, the whole word in lower case."""
        cached = self._cache.get(word)
        if cached is None:
            if len(self._cache) >= self._cache_size:
                self._cache.clear()
            cached = self._cache[word] = self._terms_of(word)
        return cached

    def name_terms(self, name: str) -> tuple[str, ...]:
        """The terms of a file name, in which hyphens and dots also separate words."""
        cached = self._cache.get(name)
        return self.word_terms(name.replace("-", "_").replace(".", "_")) if cached is None else cached

    def terms(self, text: str) -> list[str]:
        """The terms of ``text`` in order, with repetitions."""
        return [term for word in _WORD.findall(text) for term in self.word_terms(word)]

    def bag(self, text: str) -> dict[str, int]:
        """The number of occurrences of each term in ``text``. Looks up each distinct word once."""
        counts: dict[str, int] = {}
        times_of, cached = counts.get, self._cache.get
        # Splitting at blanks is several times as fast as searching; leading underscores that it leaves are no terms.
        words = text.translate(_ASCII_WORDS).split() if text.isascii() else _WORD.findall(text)
        for word, times in Counter(words).items():
            terms = cached(word)
            for term in self.word_terms(word) if terms is None else terms:
                counts[term] = times_of(term, 0) + times
        return counts

    def query_terms(self, text: str) -> list[str]:
        """The distinct terms of a question, in order, without stop words (unless there is nothing else)."""
        words = _WORD.findall(text)
        telling = [word for word in words if word.lower() not in STOP_WORDS]
        return unique(term for word in telling or words for term in self.word_terms(word))

    def _terms_of(self, word: str) -> tuple[str, ...]:
        if len(word) > _MAX_WORD:
            return ()
        if not word.isascii() and _CJK.search(word):
            return tuple(_cjk_terms(word))
        parts = split_identifier(word)
        terms = [self._stem(part) if part.isascii() else part for part in parts if _worth_keeping(part)]
        if len(parts) > 1:
            whole = "".join(parts)
            if len(whole) <= _MAX_TERM:
                terms.append(whole)
        return tuple(terms)


def unique(items: Iterable[str]) -> list[str]:
    """The items without duplicates, in order of first occurrence."""
    return list(dict.fromkeys(items))


def _worth_keeping(part: str) -> bool:
    return len(part) <= _MAX_TERM and (len(part) > 1 or not part.isascii()) and not (part.isdigit() and len(part) > 5)


def _cjk_terms(word: str) -> list[str]:
    """Split text of a script without spaces into overlapping pairs of characters."""
    folded = word.lower()
    return [folded[i : i + 2] for i in range(len(folded) - 1)] or [folded]
