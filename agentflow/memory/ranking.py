"""Ranks files for a question: a weighted sum of BM25 per field and signals from history, each scaled to 0..1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from agentflow.core.data.frozen import frozen
from agentflow.lib.text.terms import Tokeniser
from agentflow.memory.index_rows import FileRow
from agentflow.memory.index_store import Store
from agentflow.memory.weights import FLATTEN_WINDOW, MENTIONS, RankWeights
from agentflow.memory.window import WINDOW_LINES, window_score

ReadTexts = Callable[[Sequence[FileRow]], Mapping[int, str]]
"""Returns the texts of files by id; files that cannot be read are absent."""


@frozen
class Ranked:
    """A file with its score in 0..1 and the signals behind it, each in 0..1.

    ``commit`` is the id of the past commit most similar to the question that touched the file, ``beside`` the best file
    that changes together with it; None without one. ``why`` are the reasons of the sources that proposed the file,
    ``lines`` the lines where a source found it, if nothing else did.
    """

    file: FileRow
    score: float
    signals: Mapping[str, float]
    commit: int | None = None
    beside: FileRow | None = None
    why: tuple[str, ...] = ()
    lines: tuple[int, int] | None = None


_OF_THE_FILE = frozenset({"body", "symbols", "window", "lead", "kin"})
_CANDIDATES = 200
_READ = 30
_SEEDS = 15
_PAST_COMMITS = 60
_COMMITS_OF_A_SEED = 60


def rank(
    store: Store,
    tokeniser: Tokeniser,
    question: str,
    weights: RankWeights,
    limit: int,
    read: ReadTexts,
    *,
    fields: Sequence[str] = (),
) -> list[Ranked]:
    """The best ``limit`` files for ``question``, best first, ties ordered by path.

    ``fields`` restricts the search (default: all of :data:`~agentflow.memory.index_store.FIELDS`); texts are read unless it excludes
    the body.
    """
    phrases = tokeniser.query_phrases(question)
    if not phrases:
        return []
    terms = list(phrases)
    signals, spoke = _lexical(store, phrases, fields or ("body", "path", "symbols", "messages"))
    rows = store.rows(sorted({file for scores in signals.values() for file in scores}))
    signals["name"] = _named(tokeniser, rows, frozenset(terms))
    kinds = _Kinds(question, weights)
    if "body" in signals:
        signals["window"] = _windows(store, phrases, signals, rows, read)
    scores = _sum(signals, rows, weights, kinds)
    seeds = sorted(scores, key=lambda file: (-scores[file], rows[file].path))[:_SEEDS]
    shares, beside = _cochange(store, seeds, scores)
    signals["cochange"] = _normalised(shares)
    rows.update(store.rows(sorted(signals["cochange"].keys() - rows.keys())))
    signals["lead"] = _normalised({seed: scores[seed] for seed in seeds})
    signals["kin"] = _kin(rows, seeds, scores)
    signals["recency"] = {file: row.recency for file, row in rows.items() if row.recency > 0}
    final = _sum(signals, rows, weights, kinds)
    scale = sum(getattr(weights, name) for name, signal in signals.items() if signal) or 1.0
    best = sorted(final, key=lambda file: (-final[file], rows[file].root, rows[file].path))[:limit]
    return [
        Ranked(
            rows[file],
            min(1.0, final[file] / scale),
            {name: round(signal[file], 4) for name, signal in signals.items() if file in signal},
            spoke.get(file),
            rows.get(beside.get(file, -1)),
        )
        for file in best
    ]


class _Kinds:
    """The factor for a file's own signals, by its kind and the subject of the question."""

    def __init__(self, question: str, weights: RankWeights) -> None:
        spoken = {kind for kind, pattern in MENTIONS.items() if pattern.search(question)}
        self._by_language = {
            kind: max(getattr(weights, kind), weights.mentioned) if kind in spoken else getattr(weights, kind)
            for kind in ("prose", "data", "text")
        }
        self._tests = weights.mentioned_tests if "tests" in spoken else weights.tests

    def factor(self, row: FileRow) -> float:
        return self._by_language.get(row.language, 1.0) * (self._tests if row.is_test else 1.0)


def looked_for(field: str, phrases: Mapping[str, str]) -> list[str]:
    """The search text for ``field``, given its notation, for the terms of a question and their phrases."""
    match field:
        case "body" | "path":
            return list(phrases.values())
        case "symbols":  # compounds are one word there (:func:`~agentflow.memory.rerank.spaced_names`)
            return [term if " " in phrase else phrase for term, phrase in phrases.items()]
        case _:
            return list(phrases)


def _lexical(
    store: Store, phrases: Mapping[str, str], fields: Sequence[str]
) -> tuple[dict[str, dict[int, float]], dict[int, int]]:
    """The signals from words, and by file the commit that contributed most."""
    terms = list(phrases)
    signals = {field: _normalised(store.search(field, looked_for(field, phrases), _CANDIDATES)) for field in fields}
    if "messages" not in signals:
        return signals, {}
    scores, spoke = _like_past_commits(store, terms)
    signals["commits"] = _normalised(scores)
    return signals, spoke


def _windows(
    store: Store,
    phrases: Mapping[str, str],
    signals: Mapping[str, Mapping[int, float]],
    rows: Mapping[int, FileRow],
    read: ReadTexts,
) -> dict[int, float]:
    """The share of the question that the best lines contain, for the files ranked first by all other signals.

    A file no longer than a window is one window: its whole text counts.
    """
    together: dict[int, float] = {}
    for signal in signals.values():
        for file, value in signal.items():
            together[file] = together.get(file, 0.0) + value
    first = sorted((file for file in together if file in rows), key=lambda file: (-together[file], rows[file].path))
    total = store.count()
    rarity = {
        term: math.log(1 + (total + 0.5) / (store.count_holding(phrase) + 0.5)) for term, phrase in phrases.items()
    }
    long = [rows[file] for file in first[:_READ] if rows[file].lines > WINDOW_LINES]
    best = _normalised({file: window_score(text, rarity) for file, text in read(long).items()}, FLATTEN_WINDOW)
    body = signals["body"]
    for file in first[:_READ]:
        if rows[file].lines <= WINDOW_LINES and file in body:
            best[file] = body[file]
    return best


def _like_past_commits(store: Store, terms: Sequence[str]) -> tuple[dict[int, float], dict[int, int]]:
    alike = _normalised(store.search("commits", terms, _PAST_COMMITS))
    if not alike:
        return {}, {}
    touched = store.history.files(list(alike))
    sizes: dict[int, int] = {}
    for commit, _ in touched:
        sizes[commit] = sizes.get(commit, 0) + 1
    scores: dict[int, float] = {}
    spoke: dict[int, int] = {}
    for commit, file in touched:
        scores[file] = scores.get(file, 0.0) + alike[commit] ** 2 / sizes[commit] ** 0.5
        if file not in spoke or alike[commit] > alike[spoke[file]]:
            spoke[file] = commit
    return scores, spoke


def _cochange(
    store: Store, seeds: Sequence[int], scores: Mapping[int, float]
) -> tuple[dict[int, float], dict[int, int]]:
    """By file, how often it changes together with the seeds, and the seed it changes with most."""
    shares: dict[int, float] = {}
    most: dict[int, tuple[float, int]] = {}
    for seed in seeds:
        commits = store.history.commits_of(seed, _COMMITS_OF_A_SEED)
        if not commits:
            continue
        share = scores[seed] / (len(commits) + 2)
        own: dict[int, float] = {}
        for _, file in store.history.files(commits):
            if file != seed:
                own[file] = own.get(file, 0.0) + share
        for file, value in own.items():
            shares[file] = shares.get(file, 0.0) + value
            most[file] = max(most.get(file, (0.0, -1)), (value, seed))
    return shares, {file: seed for file, (_, seed) in most.items()}


def _kin(rows: Mapping[int, FileRow], seeds: Sequence[int], scores: Mapping[int, float]) -> dict[int, float]:
    by_name: dict[str, list[int]] = {}
    for seed in seeds:
        by_name.setdefault(rows[seed].bare, []).append(seed)
    return _normalised(
        {
            file: max((scores[seed] for seed in by_name.get(row.bare, ()) if seed != file), default=0.0)
            for file, row in rows.items()
        }
    )


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
    signals: Mapping[str, Mapping[int, float]], rows: Mapping[int, FileRow], weights: RankWeights, kinds: _Kinds
) -> dict[int, float]:
    of_the_file: dict[int, float] = {}
    scores: dict[int, float] = {}
    for name, by_file in signals.items():
        weight = getattr(weights, name)
        into = of_the_file if name in _OF_THE_FILE else scores
        for file, value in by_file.items():
            into[file] = into.get(file, 0.0) + weight * value
    for file, score in of_the_file.items():
        if file in rows:
            scores[file] = scores.get(file, 0.0) + score * kinds.factor(rows[file])
    return {file: score for file, score in scores.items() if file in rows}


def _normalised(scores: Mapping[int, float], exponent: float = 1.0) -> dict[int, float]:
    best = max(scores.values(), default=0.0)
    return {file: (score / best) ** exponent for file, score in scores.items() if score > 0} if best > 0 else {}
