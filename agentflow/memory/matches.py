"""Ranked files to the matches the rest of the house sees: blending, preferring, and what is said of each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentflow.core.context import ContextGenerationInput, MatchItem
from agentflow.core.values import as_text
from agentflow.memory.ranking import Ranked
from agentflow.memory.window import best_window

BACKGROUND_WEIGHT = 0.25
"""How much what is known already counts beside the question itself."""
_BACKGROUND_CHARS = 4_000
_SHOWN_SYMBOLS = 12


def background(input: ContextGenerationInput) -> str:
    """What is known beside the question: its inputs, inherited context and earlier outputs, the newest end of each."""
    parts = [input.inherited_context, input.previous_outputs]
    if input.query:
        parts += [input.template_description, *(as_text(value) for value in input.inputs.values())]
    return "\n".join(part[-_BACKGROUND_CHARS:] for part in parts if part).strip()


def blended(found: Sequence[Ranked], near: Sequence[Ranked], weight: float) -> list[Ranked]:
    """``found`` with ``weight`` of the scores of ``near`` added, as a share of one again."""
    scores = {item.file.id: item for item in found}
    extra = {item.file.id: item.score for item in near}
    items = [*found, *(item for item in near if item.file.id not in scores)]
    made = [
        replace(item, score=((item.score if item.file.id in scores else 0.0) + weight * extra.get(item.file.id, 0.0)) / (1 + weight))
        for item in items
    ]  # fmt: skip
    return _ordered(made)


def preferred(found: Sequence[Ranked], targets: Sequence[str]) -> list[Ranked]:
    """``found`` with the files named by ``targets`` (absolute, or ending so) before all others, as long as they match at all."""
    wanted = tuple(target.removeprefix("./") for target in targets)

    def hit(item: Ranked) -> bool:
        full = os.path.join(item.file.root, item.file.path)
        return any(full == target or full.endswith("/" + target) for target in wanted)

    if not any(hit(item) for item in found):
        return list(found)
    return _ordered([replace(item, score=item.score / 2 + (0.5 if hit(item) else 0.0)) for item in found])


def _ordered(items: Sequence[Ranked]) -> list[Ranked]:
    return sorted(items, key=lambda item: (-item.score, item.file.root, item.file.path))


def match_items(
    found: Sequence[Ranked], texts: Mapping[tuple[str, str], str], terms: Mapping[str, float]
) -> list[MatchItem]:
    """The matches for ranked files, each with its best lines out of ``texts``; files that are gone are left out."""
    made: list[MatchItem] = []
    for item in found:
        text = texts.get((item.file.root, item.file.path))
        if text is None:
            continue
        window = best_window(text, terms)
        made.append(
            MatchItem(
                path=os.path.join(item.file.root, item.file.path),
                content=window.text,
                score=round(item.score, 6),
                kind="file",
                start_line=window.start,
                end_line=window.end,
                relevance=_relevance(item),
                metadata={
                    "root": item.file.root,
                    "relative_path": item.file.path,
                    "language": item.file.language,
                    "lines": item.file.lines,
                    "signals": dict(item.signals),
                },
            )
        )
    return made


_SAID = {
    "body": "its text",
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


def _relevance(item: Ranked) -> str:
    strong = sorted(item.signals.items(), key=lambda signal: -signal[1])[:3]
    return "matched by " + ", ".join(_SAID.get(name, name) for name, value in strong if value > 0)


def describe_file(language: str, lines: int, symbols: Sequence[str]) -> str:
    """The metadata line of a file: ``python, 210 lines; defines A, b, c``."""
    said = f"{language}, {lines} lines"
    return f"{said}; defines {', '.join(symbols[:_SHOWN_SYMBOLS])}" if symbols else said


def summary(text: str, matches: Sequence[MatchItem]) -> str:
    """One sentence on what was found."""
    asked = " ".join(text.split())
    asked = asked if len(asked) <= 120 else f"{asked[:117]}..."
    if not matches:
        return f"no file matches '{asked}'"
    names = ", ".join(str(match.metadata.get("relative_path", match.path)) for match in matches[:5])
    more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
    return f"{len(matches)} file{'s' * (len(matches) > 1)} for '{asked}': {names}{more}"
