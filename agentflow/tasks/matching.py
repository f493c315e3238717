"""The answer of memory out of a model's choice of files."""

from __future__ import annotations

from collections.abc import Container

from agentflow.core.data.context import AssociativeMatchResult
from agentflow.core.data.file_choice import read_choice
from agentflow.core.data.results import TaskResult


def match_result(result: TaskResult, candidates: Container[str], limit: int) -> AssociativeMatchResult:
    """The matches in a task's answer (see :func:`~agentflow.core.data.file_choice.read_choice`), best first.

    Entries that cannot be used are listed in ``skipped``. ``error`` is set if the task failed or its answer is no list.
    """
    try:
        matches, skipped = read_choice(result, candidates, unscored=0.0)
    except ValueError as error:
        why = str(error) if result.failed else f"the model's choice of files cannot be read: {error}"
        return AssociativeMatchResult(error=why)
    matches.sort(key=lambda match: -match.score)
    summary = "; ".join(f"{match.path}: {match.relevance}" for match in matches[:limit] if match.relevance)
    return AssociativeMatchResult(context_summary=summary, matches=matches[:limit], skipped=skipped)
