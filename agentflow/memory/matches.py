"""Turns ranked files into matches for other packages: blends rankings, prefers targets, describes each file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from agentflow.core.data.context import ContextGenerationInput, MatchItem
from agentflow.core.data.frozen import frozen
from agentflow.core.data.values import as_text
from agentflow.core.ports.memory_ports import Candidate
from agentflow.lib.text.terms import Tokeniser
from agentflow.memory.defined_names import Definition, definitions
from agentflow.memory.index_rows import FileRow, PastCommit
from agentflow.memory.index_store import Store
from agentflow.memory.ranking import Ranked
from agentflow.memory.weights import (
    RANK_OFFSET,
    SYMBOL_FILE,
    SYMBOL_LEAST_RARITY,
    SYMBOL_NAME,
    SYMBOL_TEXT,
    TARGET_SHARE,
)
from agentflow.memory.window import best_window, clipped, lines_of, matched_terms, window_score

FILES_OF_SYMBOLS = 30
"""Number of the best files searched for definitions."""
_SHOWN_FILES = 10


@frozen
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
    """The best ``limit`` commits with messages that resemble ``question``, best first."""
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


DEPTH = 50
"""Each source is asked for so many candidates at least, and so many ranked files are fused with them."""


@frozen
class Proposal:
    """A source's candidate that the index knows: its file, the lines that matter and the reason."""

    file: FileRow
    lines: tuple[int, int] | None
    score: float
    why: str


def proposals(
    candidates: Sequence[Candidate], rows: Mapping[str, FileRow]
) -> tuple[list[Proposal], list[tuple[str, str]]]:
    """The candidates with paths among ``rows``, best first, each file once; ``(path, reason)`` of the others."""
    chosen: dict[int, Proposal] = {}
    left_out: list[tuple[str, str]] = []
    for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
        row = rows.get(candidate.path)
        if row is None:
            left_out.append((candidate.path, "proposed by a source, and not in the index"))
        elif row.id not in chosen:
            chosen[row.id] = Proposal(row, candidate.lines, candidate.score, candidate.why)
    return list(chosen.values()), left_out


def fused(ranked: Sequence[Ranked], answers: Sequence[Sequence[Proposal]]) -> list[Ranked]:
    """``ranked`` and the proposals of each source, in one order: by the sum of reciprocal ranks, scaled to 0..1."""
    first = 1 / (RANK_OFFSET + 1)
    scores: dict[int, float] = {}
    items = {item.file.id: item for item in ranked}
    for rank, item in enumerate(ranked, 1):
        scores[item.file.id] = 1 / (RANK_OFFSET + rank)
    for answer in answers:
        for rank, proposal in enumerate(answer, 1):
            file = proposal.file
            scores[file.id] = scores.get(file.id, 0.0) + 1 / (RANK_OFFSET + rank)
            item = items.get(file.id) or Ranked(file, 0.0, {}, lines=proposal.lines)
            items[file.id] = replace(item, why=(*item.why, proposal.why)) if proposal.why else item
    whole = first * (1 + len(answers))
    mixed = [replace(item, score=min(1.0, scores[file] / whole)) for file, item in items.items()]
    return sorted(mixed, key=lambda item: (-item.score, item.file.root, item.file.path))


_BACKGROUND_CHARS = 4_000
SHOWN_SYMBOLS = 12


def background(input: ContextGenerationInput) -> str:
    """The background of a question: the tail of its inputs, inherited context and earlier outputs."""
    parts = [input.inherited_context, input.previous_outputs]
    if input.query:
        parts += [input.template_description, *(as_text(value) for value in input.inputs.values())]
    return "\n".join(part[-_BACKGROUND_CHARS:] for part in parts if part).strip()


def blended(ranked: Sequence[Ranked], near: Sequence[Ranked], weight: float) -> list[Ranked]:
    """``ranked`` with the scores of ``near``, times ``weight``, added; rescaled to 0..1."""
    scores = {item.file.id: item for item in ranked}
    extra = {item.file.id: item.score for item in near}
    items = [*ranked, *(item for item in near if item.file.id not in scores)]
    mixed = [
        replace(item, score=((item.score if item.file.id in scores else 0.0) + weight * extra.get(item.file.id, 0.0)) / (1 + weight))
        for item in items
    ]  # fmt: skip
    return _ordered(mixed)


def preferred(ranked: Sequence[Ranked], targets: Sequence[str]) -> list[Ranked]:
    """``ranked`` with the files named by ``targets`` (absolute path or end of a path) first, if any match."""
    names = tuple(target.removeprefix("./") for target in targets)

    def hit(item: Ranked) -> bool:
        full = os.path.join(item.file.root, item.file.path)
        return any(full == target or full.endswith("/" + target) for target in names)

    if not any(hit(item) for item in ranked):
        return list(ranked)
    return _ordered(
        [replace(item, score=item.score * (1 - TARGET_SHARE) + (TARGET_SHARE if hit(item) else 0.0)) for item in ranked]
    )


def _ordered(items: Sequence[Ranked]) -> list[Ranked]:
    return sorted(items, key=lambda item: (-item.score, item.file.root, item.file.path))


def match_items(
    ranked: Sequence[Ranked],
    texts: Mapping[tuple[str, str], str],
    terms: Mapping[str, float],
    past: Mapping[int, PastCommit],
) -> list[MatchItem]:
    """The matches for ranked files, each with its best lines from ``texts``; files without a text are left out.

    ``metadata`` has the evidence for a file: the ``terms`` it contains, the past ``commit`` most similar to the question, the
    best file that changes together with it (``beside``), and ``why`` other sources propose it.
    """
    matches: list[MatchItem] = []
    for item in ranked:
        text = texts.get((item.file.root, item.file.path))
        if text is None:
            continue
        window = best_window(text, terms) if item.lines is None else lines_of(text, *item.lines)
        past_commit = past.get(item.commit) if item.commit is not None else None
        matches.append(
            MatchItem(
                path=os.path.join(item.file.root, item.file.path),
                content=window.text,
                score=round(item.score, 6),
                kind="file",
                start_line=window.start,
                end_line=window.end,
                relevance=_relevance(item, past_commit),
                metadata={
                    "root": item.file.root,
                    "relative_path": item.file.path,
                    "language": item.file.language,
                    "lines": item.file.lines,
                    "signals": dict(item.signals),
                    "terms": matched_terms(text, terms),
                    "commit": {"digest": past_commit.digest, "subject": past_commit.subject}
                    if past_commit is not None
                    else None,
                    "beside": item.beside.path if item.beside is not None else None,
                    "why": list(item.why),
                },
            )
        )
    return matches


_SIGNAL_TEXTS = {
    "body": "its text",
    "window": "its best lines",
    "path": "its path",
    "symbols": "names it defines",
    "messages": "commit messages",
    "commits": "similar past commits",
    "cochange": "changes with other matches",
    "name": "its name",
    "kin": "named like another match",
    "recency": "changed recently",
    "model": "a model's judgement",
}


def _relevance(item: Ranked, past_commit: PastCommit | None) -> str:
    strong = sorted(
        (signal for signal in item.signals.items() if signal[0] in _SIGNAL_TEXTS), key=lambda signal: -signal[1]
    )
    reasons = [_SIGNAL_TEXTS[name] for name, value in strong[:3] if value > 0]
    if past_commit is not None and _SIGNAL_TEXTS["commits"] in reasons:
        reasons[reasons.index(_SIGNAL_TEXTS["commits"])] = f"a past commit ({past_commit.subject})"
    if item.beside is not None and _SIGNAL_TEXTS["cochange"] in reasons:
        reasons[reasons.index(_SIGNAL_TEXTS["cochange"])] = f"changing with {item.beside.path}"
    return "; ".join((["matched by " + ", ".join(reasons)] if reasons else []) + list(item.why))


def describe_file(language: str, lines: int, symbols: Sequence[str]) -> str:
    """The metadata line of a file: ``python, 210 lines; defines A, b, c``."""
    line = f"{language}, {lines} lines"
    return f"{line}; defines {', '.join(symbols[:SHOWN_SYMBOLS])}" if symbols else line


def summary(text: str, matches: Sequence[MatchItem]) -> str:
    """One sentence that describes the matches."""
    question = " ".join(text.split())
    question = question if len(question) <= 120 else f"{question[:117]}..."
    if not matches:
        return f"no file matches '{question}'"
    names = ", ".join(str(match.metadata.get("relative_path", match.path)) for match in matches[:5])
    more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
    return f"{len(matches)} file{'s' * (len(matches) > 1)} for '{question}': {names}{more}"
