"""All weights of lookups, each with its origin.

*Tuned*: chosen by recall and MRR on the repositories for tuning that ``tests/benchmarks/memory_recall.py`` names, and measured
on others. *Literature*: the usual value, unchanged. *Judgement*: set by hand, with no questions to measure it by.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from agentflow.core.data.frozen import frozen


@frozen
class RankWeights:
    """The weight of each signal.

    Of the file itself: ``body``, ``symbols``: BM25 of its text and of the names it defines; ``window``: how much of the
    question its best 60 lines hold; ``lead``: it is among the best files by all this; ``kin``: it is named like another of
    them (header, test, translation unit). These are multiplied by ``prose``, ``data`` or ``text`` for documents, data and
    files of unknown kind and by ``tests`` for tests; for a kind that the question speaks of (docs, configuration, tests),
    by ``mentioned`` or ``mentioned_tests``.

    The features that count for every kind alike: ``path``, ``messages``: BM25 of its path and of the
    messages of the commits that touched it; ``name``: how much of its name occurs in the question; ``commits``: past
    commits with messages like the question touched it; ``recency``: it was touched recently and often; ``cochange``: it
    changes together with the best files.

    The defaults were tuned together, with ``tests/benchmarks/memory_recall.py`` and on the repositories that it names.
    """

    body: float = 0.6
    symbols: float = 0.3
    window: float = 0.9
    lead: float = 0.5
    kin: float = 0.35
    path: float = 0.6
    messages: float = 0.7
    name: float = 0.2
    commits: float = 0.6
    recency: float = 0.25
    cochange: float = 0.3
    prose: float = 0.5
    data: float = 0.6
    text: float = 0.6
    tests: float = 0.7
    mentioned: float = 0.9
    mentioned_tests: float = 1.15


FLATTEN_WINDOW = 0.7
"""Exponent of the window signal: a file with nearly the best lines counts nearly as much. Tuned, with the weights."""
WINDOW_SATURATION = 1.2
"""``k1`` of BM25, for repetitions within a window. Literature (Robertson and Zaragoza, 2009), as FTS5 has it."""
RANK_OFFSET = 60
"""Reciprocal rank fusion of sources: rank ``n`` counts 1 / (60 + n), so that no source decides alone. Literature (Cormack,
Clarke and Büttcher, 2009)."""
BACKGROUND_WEIGHT = 0.25
"""Weight of the background (inputs, inherited context, earlier outputs) relative to the question itself. Judgement:
commits, the questions of the benchmark, have none."""
SYMBOL_FILE, SYMBOL_TEXT, SYMBOL_NAME = 0.4, 0.4, 0.2
"""The parts of a definition's score: its file's score, its lines, its name. Judgement: the benchmark's truth are files."""
SYMBOL_LEAST_RARITY = 0.1
"""The minimum weight of a term within definitions: a term in every file no longer distinguishes files, but still
definitions. Judgement."""
TARGET_SHARE = 0.5
"""Share of the score of a file that the caller names as a target. Judgement: named files come first if they match at all."""

_MENTIONED = {
    "prose": r"docs?|document\w*|readme|guide|tutorial|faq|comment\w*|manual|man|changelog|news|history|notes?",
    "data": r"ci|config\w*|workflow\w*|travis|github|actions?|build|package|json|yaml|yml|toml|tox|deps|dependenc\w*"
    r"|requirements?|setup|metadata|settings?|docker\w*|release\w*|install\w*",
    "text": r"make\w*|build|docker\w*|license|requirements?|ci|gitignore|install\w*|config\w*|docs?|man|changelog"
    r"|news|notes?|authors|contributors",
    "tests": r"tests?|testing|tested|spec|coverage|fixture\w*|bench\w*|regression",
}
MENTIONS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {kind: re.compile(rf"\b(?:{words})\b", re.I) for kind, words in _MENTIONED.items()}
)
"""Words of a question that speak of a kind of file. Judgement; the factors ``mentioned`` and ``mentioned_tests`` are tuned.

How often a word of a message counts is decided where the index is written, in :mod:`agentflow.lib.text.terms`: once more for each
doubling, which makes the database smaller at the same recall. Words of texts, paths and definitions count as BM25 has it.
"""
