"""Parses the answers of the ``atomic:associative_matching`` templates."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, cast

from agentflow.core.context import AssociativeMatchResult, MatchItem
from agentflow.core.results import TaskResult


def match_result(result: TaskResult, known: Container[str], limit: int) -> AssociativeMatchResult:
    """The matches in a task's answer, best first: a JSON list of ``{path, score, relevance}``.

    Paths that are not in ``known`` are dropped and listed in ``skipped``; scores are clipped to 0..1. ``error`` is
    set if the task failed or its answer is not such a list.
    """
    if result.failed:
        return AssociativeMatchResult(error=result.content)
    parsed: Any = result.parsed_content
    if isinstance(parsed, dict):
        data = cast(dict[str, Any], parsed)
        parsed = next((data[key] for key in ("matches", "files", "results") if key in data), None)
    if not isinstance(parsed, list):
        why = result.notes.parse_error or "it is no list of {path, score, relevance}"
        return AssociativeMatchResult(error=f"the model's choice of files cannot be read: {why}")
    matches: list[MatchItem] = []
    skipped: list[dict[str, str]] = []
    for entry in cast(list[Any], parsed):
        item = cast(dict[str, Any], entry) if isinstance(entry, dict) else {"path": entry, "score": 1.0}
        path, score = item.get("path"), item.get("score", item.get("relevance_score", 0.0))
        if not isinstance(path, str) or path not in known:
            skipped.append({"path": str(path)[:500], "reason": "not among the candidates"})
        elif isinstance(score, bool) or not isinstance(score, int | float):
            skipped.append({"path": path, "reason": "no numeric score"})
        else:
            matches.append(
                MatchItem(path=path, score=min(1.0, max(0.0, float(score))), relevance=str(item.get("relevance", "")))
            )
    matches.sort(key=lambda match: -match.score)
    summary = "; ".join(f"{match.path}: {match.relevance}" for match in matches[:limit] if match.relevance)
    return AssociativeMatchResult(context_summary=summary, matches=matches[:limit], skipped=skipped)
