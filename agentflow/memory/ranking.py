"""Ranks files for a question: a weighted sum of BM25 per field and signals from history, each scaled to 0..1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentflow.lib.tokens import Tokeniser
from agentflow.memory.store import FileRow, Store


@dataclass(frozen=True, slots=True)
class RankWeights:
    """How much each signal counts.

    ``body``, ``path``, ``symbols``, ``messages``: BM25 of the file's text, its path, the names it defines, the messages
    of the commits that touched it. ``commits``: past commits with messages similar to the question touched it.
    ``recency``: it was touched recently and often. ``cochange``: it changes together with the best files. ``kin``: it
    is named like one of the best files (header, test, translation unit). ``name``: how much of the file's own name
    occurs in the question. ``prose``, ``data``, ``text``: factors for documents, data and files of unknown kind;
    ``tests`` for tests. The defaults were tuned with ``tests/benchmarks/memory_recall.py``.
    """

    body: float = 1.0
    path: float = 0.6
    symbols: float = 0.7
    messages: float = 0.4
    commits: float = 0.6
    recency: float = 0.25
    cochange: float = 0.6
    kin: float = 0.5
    name: float = 0.2
    prose: float = 0.5
    data: float = 0.5
    text: float = 0.5
    tests: float = 1.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """A file with its score in 0..1 and the signals behind it, each in 0..1."""

    file: FileRow
    score: float
    signals: Mapping[str, float]


_FLATTEN = 0.7
"""Exponent of the normalised signals; below one, several moderate signals beat a single strong one."""
_CANDIDATES = 200
_SEEDS = 15
_PAST_COMMITS = 60
_COMMITS_OF_A_SEED = 60


def rank(
    store: Store,
    tokeniser: Tokeniser,
    terms: Sequence[str],
    weights: RankWeights,
    limit: int,
    *,
    fields: Sequence[str] = (),
) -> list[Ranked]:
    """The best ``limit`` files for ``terms``, best first, ties ordered by path.

    ``fields`` restricts what is searched (default: all of :data:`~agentflow.memory.store.FIELDS`).
    """
    if not terms:
        return []
    signals = _lexical(store, terms, fields or ("body", "path", "symbols", "messages"))
    rows = store.rows(sorted({file for scores in signals.values() for file in scores}))
    signals["name"] = _named(tokeniser, rows, frozenset(terms))
    scores = _sum(signals, rows, weights)
    seeds = sorted(scores, key=lambda file: (-scores[file], rows[file].path))[:_SEEDS]
    signals["cochange"] = _normalised(_cochange(store, seeds, scores))
    signals["kin"] = _kin(rows, seeds, scores)
    signals["recency"] = {file: row.recency for file, row in rows.items() if row.recency > 0}
    rows.update(store.rows(sorted(signals["cochange"].keys() - rows.keys())))
    final = _sum(signals, rows, weights)
    scale = sum(getattr(weights, name) for name, signal in signals.items() if signal) or 1.0
    best = sorted(final, key=lambda file: (-final[file], rows[file].root, rows[file].path))[:limit]
    return [
        Ranked(
            rows[file],
            min(1.0, final[file] / scale),
            {name: round(signal[file], 4) for name, signal in signals.items() if file in signal},
        )
        for file in best
    ]


def _lexical(store: Store, terms: Sequence[str], fields: Sequence[str]) -> dict[str, dict[int, float]]:
    signals = {field: _normalised(store.search(field, terms, _CANDIDATES)) for field in fields}
    if "messages" in signals:
        signals["commits"] = _normalised(_like_past_commits(store, terms))
    return signals


def _like_past_commits(store: Store, terms: Sequence[str]) -> dict[int, float]:
    alike = _normalised(store.search("commits", terms, _PAST_COMMITS))
    if not alike:
        return {}
    touched = store.commit_files(list(alike))
    sizes: dict[int, int] = {}
    for commit, _ in touched:
        sizes[commit] = sizes.get(commit, 0) + 1
    scores: dict[int, float] = {}
    for commit, file in touched:
        scores[file] = scores.get(file, 0.0) + alike[commit] ** 2 / sizes[commit] ** 0.5
    return scores


def _cochange(store: Store, seeds: Sequence[int], scores: Mapping[int, float]) -> dict[int, float]:
    shares: dict[int, float] = {}
    for seed in seeds:
        commits = store.file_commits(seed, _COMMITS_OF_A_SEED)
        if not commits:
            continue
        share = scores[seed] / (len(commits) + 2)
        for _, file in store.commit_files(commits):
            if file != seed:
                shares[file] = shares.get(file, 0.0) + share
    return shares


def _kin(rows: Mapping[int, FileRow], seeds: Sequence[int], scores: Mapping[int, float]) -> dict[int, float]:
    by_name: dict[str, float] = {}
    for seed in seeds:
        name = rows[seed].bare
        by_name[name] = max(by_name.get(name, 0.0), scores[seed])
    best = max(by_name.values(), default=0.0)
    if best <= 0:
        return {}
    return {file: by_name[name] / best for file, row in rows.items() if (name := row.bare) in by_name}


def _named(tokeniser: Tokeniser, rows: Mapping[int, FileRow], terms: frozenset[str]) -> dict[int, float]:
    """By file, the share of the terms in its name (without suffix) that occur in the question."""
    shares: dict[int, float] = {}
    for file, row in rows.items():
        words = tokeniser.name_terms(row.bare)
        held = len(terms.intersection(words))
        if held:
            shares[file] = held / len(words)
    return shares


def _sum(
    signals: Mapping[str, Mapping[int, float]], rows: Mapping[int, FileRow], weights: RankWeights
) -> dict[int, float]:
    scores: dict[int, float] = {}
    for name, by_file in signals.items():
        weight = getattr(weights, name)
        for file, value in by_file.items():
            scores[file] = scores.get(file, 0.0) + weight * value
    factor = {"prose": weights.prose, "data": weights.data, "text": weights.text}
    return {
        file: score * factor.get(rows[file].language, 1.0) * (weights.tests if rows[file].is_test else 1.0)
        for file, score in scores.items()
        if file in rows
    }


def _normalised(scores: dict[int, float]) -> dict[int, float]:
    best = max(scores.values(), default=0.0)
    return {file: (score / best) ** _FLATTEN for file, score in scores.items()} if best > 0 else {}
