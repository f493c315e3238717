"""Turns prose and code into search terms: identifiers are split at case and underscore, lower-cased, stemmed.

The index, the sentence ranker and the offline model all use this tokeniser, so that they agree on terms; in the index the texts
of files are split and stemmed by the database (:mod:`agentflow.memory.rerank`). ASCII words are stemmed as English, by Snowball's
stemmer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, cast

try:
    from Stemmer import Stemmer as _extension  # pyright: ignore[reportUnknownVariableType] - a C extension, without types
except ImportError:  # a Python that it has no wheels for
    _extension = None

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
_SPLITTING = bytes(code if code >= 128 or chr(code).isalnum() or chr(code) == "_" else 32 for code in range(256))
"""Blanks for every character outside an ASCII word. Characters beyond ASCII are handled with their word."""
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_A-Za-z0-9]+")
_CASED_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]*[^\W_A-Z]+|[A-Z]+")
"""A part of a word in the texts of :mod:`agentflow.memory.rerank`: digits belong to the part before them."""
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_MAX_WORD = 120
_MAX_TERM = 40
_TIMES = tuple(min(times, 16).bit_length() for times in range(17))
"""How often a word counts that stands so often: once more for each doubling, up to 16 (see agentflow.memory.weights)."""


def stem_in_python() -> Callable[[str], str]:
    """Snowball's stemmer of English words without the C extension: the same stems, at a hundredth of the speed."""
    from snowballstemmer.english_stemmer import EnglishStemmer

    return cast(Any, EnglishStemmer)().stemWord


class _Stems(dict[str, str]):
    """The term of each part of a word; empty for a part not worth one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._stem = stem_in_python() if _extension is None else cast(Any, _extension)("english", 0).stemWord

    def __missing__(self, part: str) -> str:
        if len(self) >= self._size:
            self.clear()
        folded = part.lower()
        term = "" if not _worth_keeping(folded) else self._stem(folded) if folded.isascii() else folded
        self[part] = term
        return term


class _Terms(dict[bytes, str]):
    """The terms of each word (in UTF-8), each followed by a blank."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._stems = _Stems(size)

    def __missing__(self, data: bytes) -> str:
        if len(self) >= self._size:
            self.clear()
        word = data.decode("utf-8", "surrogatepass")
        joined = "".join(f"{self._of(each)} " for each in _WORD.findall(word))
        if len(data) <= _MAX_WORD:
            self[data] = joined
        return joined

    def stem(self, part: str) -> str:
        """The term of a part of a word; empty if it is not worth one."""
        return self._stems[part]

    def _of(self, word: str) -> str:
        if len(word) > _MAX_WORD:
            return ""
        if not word.isascii() and _CJK.search(word):
            return " ".join(_cjk_terms(word))
        parts = _PART.findall(word)
        terms = " ".join(map(self._stems.__getitem__, parts))
        whole = "".join(parts)
        return f"{terms} {whole.lower()}" if len(parts) > 1 and len(whole) <= _MAX_TERM else terms


_KEPT_NAMES = 20_000
"""Files that questions come upon again and again: as many as their rows are kept."""


class Tokeniser:
    """Splits text into terms and caches the terms of words (one per index or ranker; not thread-safe).

    Parameters: ``cache_size`` is the maximum number of cached words; a full cache is cleared.
    """

    __slots__ = ("_names", "_terms")

    def __init__(self, cache_size: int = 200_000) -> None:
        self._terms = _Terms(cache_size)
        self._names: dict[str, list[str]] = {}

    def word_terms(self, word: str) -> list[str]:
        """The terms of one word: the stems of its parts and, for a compound, the whole word in lower case."""
        return self._terms[word.encode("utf-8", "surrogatepass")].split()

    def name_terms(self, name: str) -> list[str]:
        """The terms of a file name; hyphens and dots also separate words. Do not change the list."""
        terms = self._names.get(name)
        if terms is None:
            if len(self._names) >= _KEPT_NAMES:
                self._names.clear()
            terms = self._names[name] = self.word_terms(name.replace("-", "_").replace(".", "_"))
        return terms

    def terms(self, text: str) -> list[str]:
        """The terms of ``text`` in order, with repetitions."""
        return [term for word in _words(text) for term in self._terms[word].split()]

    def bag(self, text: str) -> Counter[str]:
        """The number of occurrences of each term in ``text``. Looks up each distinct word once."""
        counts: Counter[str] = Counter()
        for word, times in Counter(_words(text)).items():
            for term in self._terms[word].split():
                counts[term] += times
        return counts

    def query_terms(self, text: str) -> list[str]:
        """The distinct terms of a question, in order, without stop words (unless there is nothing else)."""
        return unique(term for word in _telling(text) for term in self.word_terms(word))

    def query_phrases(self, text: str) -> dict[str, str]:
        """The terms of a question, each with its search text for a text that was not turned into terms but only spaced
        (:mod:`agentflow.memory.rerank`): the part of a word before it is stemmed; for a compound, its parts in order.
        """
        phrases: dict[str, str] = {}
        for word in _telling(text):
            terms = self.word_terms(word)
            if word.isascii() or not _CJK.search(word):
                parts = [part.lower() for part in _PART.findall(word)]
                stems = {self._terms.stem(part): part for part in parts}
                whole = " ".join(_CASED_PART.findall(word)).lower()
            else:
                stems, whole = {}, ""
            for term in terms:
                phrases.setdefault(term, stems.get(term) or whole or term)
        return phrases


def common_start(term: str) -> str:
    """The common prefix of all forms of a word with this ``term``: ``quer`` for ``queri`` and ``query``."""
    return term[:-1] if len(term) > 3 and term.endswith("i") else term


def _telling(text: str) -> list[str]:
    words = _WORD.findall(text)
    return [word for word in words if word.lower() not in STOP_WORDS] or words


def _words(text: str) -> list[bytes]:
    return text.encode("utf-8", "surrogatepass").translate(_SPLITTING).split()


def repeated(counted: Iterable[tuple[str | None, int]]) -> str:
    """Texts that end in a blank, in any order, without None: once for a count of 1, once more for each doubling up to 16."""
    return "".join(
        [text if times == 1 else text * _TIMES[times if times < 16 else 16] for text, times in counted if text]
    )


def unique(items: Iterable[str]) -> list[str]:
    """The items without duplicates, in order of first occurrence."""
    return list(dict.fromkeys(items))


def _worth_keeping(part: str) -> bool:
    return len(part) <= _MAX_TERM and (len(part) > 1 or not part.isascii()) and not (part.isdigit() and len(part) > 5)


def _cjk_terms(word: str) -> list[str]:
    """Split text of a script without spaces into overlapping pairs of characters."""
    folded = word.lower()
    return [folded[i : i + 2] for i in range(len(folded) - 1)] or [folded]
