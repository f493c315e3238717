"""Results of a lookup besides files: definitions within them, and past commits similar to the question."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agentflow.core.data.context import MatchItem
from agentflow.lib.text.tokens import Tokeniser
from agentflow.memory.ranking import Ranked
from agentflow.memory.rows import FileRow
from agentflow.memory.store import Store
from agentflow.memory.symbols import Definition, definitions
from agentflow.memory.weights import SYMBOL_FILE, SYMBOL_LEAST_RARITY, SYMBOL_NAME, SYMBOL_TEXT
from agentflow.memory.window import clipped, matched_terms, window_score

FILES_OF_SYMBOLS = 30
"""Number of the best files that are searched for definitions."""
_SHOWN_FILES = 10


@dataclass(frozen=True, slots=True)
class FoundCommit:
    """A commit similar to a question: ``score`` in 0..1, and the files it touched that still exist."""

    digest: str
    time: int
    subject: str
    score: float
    files: tuple[FileRow, ...]


def symbol_items(
    ranked: Sequence[Ranked], texts: Mapping[tuple[str, str], str], terms: Mapping[str, float], tokeniser: Tokeniser
) -> list[MatchItem]:
    """The definitions in the ranked files as matches, best first; ``terms`` are weighted by rarity."""
    weights = {term: max(rarity, SYMBOL_LEAST_RARITY) for term, rarity in terms.items()}
    symbols: list[tuple[Ranked, Definition, str, float, float]] = []
    for item in ranked[:FILES_OF_SYMBOLS]:
        text = texts.get((item.file.root, item.file.path), "")
        lines = text.splitlines()
        for definition in definitions(text, item.file.language):
            body = "\n".join(lines[definition.start - 1 : definition.end])
            words = tokeniser.name_terms(definition.name)
            named = sum(word in terms for word in words) / len(words) if words else 0.0
            held = window_score(body, weights)
            if held or named:
                symbols.append((item, definition, body, held, named))
    most = max((held for _, _, _, held, _ in symbols), default=0.0) or 1.0
    matches = [
        MatchItem(
            path=os.path.join(item.file.root, item.file.path),
            content=clipped(body),
            score=round(min(1.0, SYMBOL_FILE * item.score + SYMBOL_TEXT * held / most + SYMBOL_NAME * named), 6),
            kind="symbol",
            start_line=definition.start,
            end_line=definition.end,
            relevance=f"{definition.name}, defined in {item.file.path}",
            metadata={
                "root": item.file.root,
                "relative_path": item.file.path,
                "language": item.file.language,
                "name": definition.name,
                "terms": matched_terms(body, terms),
            },
        )
        for item, definition, body, held, named in symbols
    ]
    return sorted(matches, key=lambda match: (-match.score, match.path, match.start_line or 0))


def found_commits(store: Store, tokeniser: Tokeniser, question: str, limit: int) -> list[FoundCommit]:
    """The best ``limit`` commits whose messages resemble ``question``, best first."""
    terms = tokeniser.query_terms(question)
    alike = store.search("commits", terms, limit) if terms else {}
    if not alike:
        return []
    best = max(alike.values())
    touched: dict[int, list[int]] = {}
    for commit, file in store.history.files(list(alike)):
        touched.setdefault(commit, []).append(file)
    rows = store.rows(sorted({file for files in touched.values() for file in files}))
    commits = store.history.commits(list(alike))
    items = [
        FoundCommit(
            past.digest,
            past.time,
            past.subject,
            alike[id] / best,
            tuple(rows[file] for file in touched.get(id, ()) if file in rows),
        )
        for id, past in commits.items()
    ]
    return sorted(items, key=lambda commit: (-commit.score, -commit.time))


def commit_items(commits: Sequence[FoundCommit], terms: Mapping[str, float]) -> list[MatchItem]:
    """Commits as matches: examples of how something similar was done before."""
    return [
        MatchItem(
            path=f"commit:{commit.digest}",
            content="\n".join([commit.subject, *(file.path for file in commit.files[:_SHOWN_FILES])]),
            score=round(commit.score, 6),
            kind="commit",
            relevance=f"{_day(commit.time)}: {commit.subject}",
            metadata={
                "digest": commit.digest,
                "date": _day(commit.time),
                "subject": commit.subject,
                "files": [file.path for file in commit.files],
                "paths": [os.path.join(file.root, file.path) for file in commit.files],
                "terms": matched_terms(commit.subject, terms),
            },
        )
        for commit in commits
    ]


def _day(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, UTC).date().isoformat()
