"""Ranks with a model: it scores the candidates of the lexical search, in concurrent shards that fit its budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, cast

from agentflow.core.call import CallContext, current_call
from agentflow.core.errors import TaskError
from agentflow.core.results import TaskResult
from agentflow.memory.sharding import shards

RunTask = Callable[[str, dict[str, Any], CallContext | None], Awaitable[TaskResult]]
"""``(template name, inputs, call or None)``: runs a template."""

Describe = Callable[[Sequence[str], str], Awaitable[Mapping[str, str]]]
"""``(paths, strategy)``: the text a model is shown for each path; see :meth:`MemorySystem.describe`."""

TEMPLATES: dict[str, str] = {
    "content": "atomic:associative_matching",
    "metadata": "atomic:associative_matching_metadata",
}
"""Template names by strategy."""


class RerankFailed(TaskError):
    """The model did not give a ranking: its task failed, or its answer could not be read, twice."""

    default_code = "memory/rerank"
    default_reason = "context_matching_failure"


class LlmRanker:
    """The :class:`~agentflow.core.ports.Ranker` that asks a model.

    Parameters: ``run_task`` runs a template; ``describe`` gives the text shown for each candidate; ``strategy`` content
    or metadata; ``budget_tokens`` estimated tokens per shard; ``concurrency`` shards asked at once; ``templates``
    overrides the template names. The template is given ``query``, ``metadata`` (a JSON list of ``{path, text}``) and
    ``max_results``; it answers with a JSON list of ``{path, score, relevance}``, or an object that holds one under
    ``matches`` or ``files``.
    """

    def __init__(
        self,
        run_task: RunTask,
        describe: Describe,
        *,
        strategy: Literal["content", "metadata"] = "content",
        budget_tokens: int = 12_000,
        concurrency: int = 8,
        templates: Mapping[str, str] | None = None,
    ) -> None:
        self._run_task = run_task
        self._describe = describe
        self._strategy = strategy
        self._budget = budget_tokens
        self._concurrency = concurrency
        self._template = {**TEMPLATES, **(templates or {})}[strategy]

    async def rank(self, text: str, candidates: Sequence[str], limit: int) -> list[tuple[str, float]]:
        """``(path, score in 0..1)`` of the best ``limit`` candidates, best first; ties keep the candidates' order.

        Paths the model invented are dropped, scores outside 0..1 are clipped. If an answer cannot be read, the model is
        asked once more. Raises RerankFailed; limits and cancellation pass through.
        """
        described = await self._describe(candidates, self._strategy)
        parts = shards({path: described.get(path, "") for path in candidates}, self._budget)
        gate = asyncio.Semaphore(self._concurrency)
        failures: list[RerankFailed] = []
        answers: list[dict[str, float]] = [{} for _ in parts]

        async def ask(index: int, shard: dict[str, str]) -> None:
            async with gate:
                try:
                    answers[index] = await self._ask(text, shard, limit)
                except RerankFailed as failure:
                    failures.append(failure)

        try:
            async with asyncio.TaskGroup() as group:
                for index, shard in enumerate(parts):
                    group.create_task(ask(index, shard))
        except BaseExceptionGroup as ended:
            raise ended.exceptions[0] from None
        if failures:
            raise failures[0]
        scores = {path: score for answer in answers for path, score in answer.items()}
        order = {path: index for index, path in enumerate(candidates)}
        return sorted(scores.items(), key=lambda item: (-item[1], order[item[0]]))[:limit]

    async def _ask(self, text: str, shard: dict[str, str], limit: int) -> dict[str, float]:
        listing = json.dumps([{"path": path, "text": content} for path, content in shard.items()], ensure_ascii=False)
        inputs = {"query": text, "metadata": listing, "max_results": limit}
        problem = ""
        for _ in range(2):
            result = await self._run_task(self._template, inputs, current_call.get())
            if result.failed:
                raise RerankFailed(
                    f"the re-ranking task failed: {result.content}",
                    hint="memory goes on without a ranker: leave ranker= unset, or mend the model's settings",
                    details={"template": self._template},
                )
            try:
                return _ranking(result, shard)
            except ValueError as error:
                problem = str(error)
        raise RerankFailed(
            f"the model's ranking could not be read, twice: {problem}",
            hint="use a model that follows a JSON format, or leave ranker= unset",
            details={"template": self._template},
        )


def _ranking(result: TaskResult, shard: Mapping[str, str]) -> dict[str, float]:
    """The scores in an answer. Raises ValueError with what is wrong if they cannot be read."""
    data: Any = result.parsed_content
    if data is None:
        data = json.loads(result.content)
    if isinstance(data, dict):
        listed = cast(dict[str, Any], data)
        data = next((listed[key] for key in ("matches", "files", "results") if key in listed), None)
    if not isinstance(data, list):
        raise ValueError("it is no list of {path, score}")
    scores: dict[str, float] = {}
    for entry in cast(list[Any], data):
        if not isinstance(entry, dict):
            raise ValueError("an entry is no object")
        item = cast(dict[str, Any], entry)
        path, score = item.get("path"), item.get("score", item.get("relevance_score"))
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise ValueError("an entry has no numeric score")
        if isinstance(path, str) and path in shard:
            scores[path] = min(1.0, max(0.0, float(score)))
    return scores
