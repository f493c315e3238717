"""Turns ranked files into matches for other packages: blends rankings, prefers targets, describes each file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentflow.core.data.context import ContextGenerationInput, MatchItem
from agentflow.core.data.values import as_text
from agentflow.memory.ranking import Ranked
from agentflow.memory.rows import PastCommit
from agentflow.memory.weights import TARGET_SHARE
from agentflow.memory.window import best_window, lines_of, matched_terms

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
