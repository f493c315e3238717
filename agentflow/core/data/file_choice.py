"""Reads a model's choice of files: the answer to the ``associative_matching`` templates."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from typing import Any, cast

from agentflow.core.data.context import MatchItem
from agentflow.core.data.results import TaskResult

_FENCED = re.compile(r"^```[\w-]*[ \t]*\n(.*?)\n```[ \t]*$", re.DOTALL | re.MULTILINE)


def read_choice(
    result: TaskResult, candidates: Container[str], *, unscored: float | None = None
) -> tuple[list[MatchItem], list[dict[str, str]]]:
    """The matches in an answer, in its order, and its unusable entries as ``{path, reason}``.

    The answer is a JSON list of ``{path, score, relevance}``, or an object that holds one under ``matches``, ``files`` or
    ``results``; each entry stands for itself, so a list that misses its schema in some entries is read all the same. Scores
    are clipped to 0..1; ``unscored`` is the score of an entry without one; without it, such an entry is unusable. Raises
    ValueError with the reason if the list is missing.
    """
    data = _answer(result)
    if isinstance(data, dict):
        listed = cast(dict[str, Any], data)
        data = next((listed[key] for key in ("matches", "files", "results") if key in listed), None)
    if not isinstance(data, list):
        raise ValueError(result.notes.parse_error or "it is not a list of {path, score, relevance}")
    matches: list[MatchItem] = []
    skipped: list[dict[str, str]] = []
    for entry in cast(list[Any], data):
        item = cast(dict[str, Any], entry) if isinstance(entry, dict) else {"path": entry}
        path, score = item.get("path"), item.get("score", item.get("relevance_score", unscored))
        if not isinstance(path, str) or path not in candidates:
            skipped.append({"path": str(path)[:500], "reason": "not among the candidates"})
        elif isinstance(score, bool) or not isinstance(score, int | float):
            skipped.append({"path": path, "reason": "no numeric score"})
        else:
            clipped = min(1.0, max(0.0, float(score)))
            matches.append(MatchItem(path=path, score=clipped, relevance=str(item.get("relevance", ""))))
    return matches, skipped


def _answer(result: TaskResult) -> Any:
    """The data of an answer, also if it violates its schema or its task did not ask for JSON."""
    error = result.notes.error
    if error is not None:
        if error.reason == "output_format_failure" and "value" in error.details:
            return error.details["value"]
        raise ValueError(result.content)
    if result.parsed_content is not None:
        return result.parsed_content
    fenced = _FENCED.search(result.content)
    try:
        return json.loads(result.content if fenced is None else fenced.group(1))
    except (ValueError, RecursionError) as wrong:
        raise ValueError(result.notes.parse_error or f"it is not JSON: {wrong}") from None
