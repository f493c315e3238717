"""Turns prose and code into search terms: identifiers are split at case and underscore, lower-cased, stemmed.

Everything that compares text by words (the index, the sentence ranker, the offline model) uses this one tokeniser, so
that a term found by one is the term another knows. The stemmer is a light English suffix stripper in the spirit of
Porter's (Program 14(3), 1980): it only has to bring ``parse``, ``parser``, ``parsing`` together, not to make words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

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
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_A-Za-z0-9]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_VOWEL = re.compile(r"[aeiouy]")
_MAX_WORD = 120
_MAX_TERM = 40


def stem(word: str) -> str:
    """The stem of a lower-case word. Words under four letters and words that are not plain ASCII stay as they are."""
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return word
    word = _inflection(_plural(word))
    word = _derivation(word)
    if (len(word) > 4 and word.endswith("e")) or (len(word) == 4 and word.endswith("e") and word[2] not in "aeiou"):
        word = word[:-1]
    if len(word) > 6 and word.endswith("at"):
        word = word[:-2]
    if len(word) > 3 and word.endswith("y") and word[-2] not in "aeiou":
        word = word[:-1] + "i"
    return word


def _plural(word: str) -> str:
    if not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1]


def _inflection(word: str) -> str:
    for ending in ("ing", "ed"):
        if word.endswith(ending):
            base = word[: -len(ending)]
            if len(base) < 3 or not _VOWEL.search(base) or word.endswith("eed"):
                return word
            if base[-1] == base[-2] and base[-1] not in "lsz":
                return base[:-1]
            return base
    return word


_DERIVED: tuple[tuple[str, str, int], ...] = (
    ("izations", "ize", 4),
    ("ization", "ize", 4),
    ("isation", "ize", 4),
    ("ation", "at", 4),
    ("ator", "at", 4),
    ("ition", "it", 3),
    ("ction", "ct", 2),
    ("sion", "s", 4),
    ("ment", "", 6),
    ("ness", "", 4),
    ("ably", "", 4),
    ("able", "", 4),
    ("ible", "", 4),
    ("fully", "", 4),
    ("ful", "", 4),
    ("ally", "al", 3),
    ("ly", "", 4),
    ("er", "", 4),
)


def _derivation(word: str) -> str:
    for ending, instead, least in _DERIVED:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            base = word[: -len(ending)]
            if not instead and len(base) > 4 and base[-1] == base[-2] and base[-1] not in "lsz":
                base = base[:-1]
            return base + instead
    return word


def split_identifier(word: str) -> list[str]:
    """The parts of an identifier, lower-cased: ``getHTTPResponse_v2`` gives ``get http response v 2``."""
    return [part.lower() for part in _PART.findall(word)]


class Tokeniser:
    """Text to terms, with a bounded memory of words it has seen (one per index or ranker; not for sharing by threads).

    Parameters: ``cache_size`` is how many distinct words are remembered; when full, all are forgotten.
    """

    __slots__ = ("_cache", "_cache_size")

    def __init__(self, cache_size: int = 200_000) -> None:
        self._cache: dict[str, tuple[str, ...]] = {}
        self._cache_size = cache_size

    def word_terms(self, word: str) -> tuple[str, ...]:
        """The terms of one word: the stems of its parts and, for a compound, the whole of it in lower case."""
        found = self._cache.get(word)
        if found is None:
            if len(self._cache) >= self._cache_size:
                self._cache.clear()
            found = self._cache[word] = _terms_of(word)
        return found

    def name_terms(self, name: str) -> tuple[str, ...]:
        """The terms of a file's name, where hyphens and dots part words too."""
        found = self._cache.get(name)
        return self.word_terms(name.replace("-", "_").replace(".", "_")) if found is None else found

    def terms(self, text: str) -> list[str]:
        """The terms of ``text`` in order, repeats kept."""
        return [term for word in _WORD.findall(text) for term in self.word_terms(word)]

    def bag(self, text: str) -> dict[str, int]:
        """How often each term occurs in ``text``. Costs one dictionary look-up per distinct word, not per word."""
        counts: dict[str, int] = {}
        for word, times in Counter(_WORD.findall(text)).items():
            for term in self.word_terms(word):
                counts[term] = counts.get(term, 0) + times
        return counts

    def query_terms(self, text: str) -> list[str]:
        """The distinct terms of a question, in order, without stop words (unless it has nothing else)."""
        words = _WORD.findall(text)
        telling = [word for word in words if word.lower() not in STOP_WORDS]
        return unique(term for word in telling or words for term in self.word_terms(word))


def unique(items: Iterable[str]) -> list[str]:
    """Each item once, in the order of first occurrence."""
    return list(dict.fromkeys(items))


def _terms_of(word: str) -> tuple[str, ...]:
    if len(word) > _MAX_WORD:
        return ()
    if not word.isascii() and _CJK.search(word):
        return tuple(_cjk_terms(word))
    parts = split_identifier(word)
    terms = [stem(part) for part in parts if _worth_keeping(part)]
    if len(parts) > 1:
        whole = "".join(parts)
        if len(whole) <= _MAX_TERM:
            terms.append(whole)
    return tuple(terms)


def _worth_keeping(part: str) -> bool:
    return len(part) <= _MAX_TERM and (len(part) > 1 or not part.isascii()) and not (part.isdigit() and len(part) > 5)


def _cjk_terms(word: str) -> list[str]:
    """Scripts written without spaces become overlapping pairs of characters."""
    folded = word.lower()
    return [folded[i : i + 2] for i in range(len(folded) - 1)] or [folded]
