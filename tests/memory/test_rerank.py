"""A model as ranker: shares that fit, asked at once, answers checked."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.memory import LlmRanker, RerankFailed
from agentflow.memory.index_rows import estimated_tokens, shards
from tests.support.fakes import FakeRun


class Model:
    """A task runner that answers as told and records what it was asked."""

    def __init__(self, *answers: object | Callable[[dict[str, Any]], object]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.running = self.most = 0

    async def __call__(self, template: str, inputs: dict[str, Any], call: CallContext | None) -> TaskResult:
        self.asked.append((template, inputs))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        value = answer(inputs) if callable(answer) else answer
        if isinstance(value, TaskResult):
            return value
        return TaskResult(content=value if isinstance(value, str) else json.dumps(value))


def described(*paths: str) -> dict[str, str]:
    return {path: f"text of {path} " * 40 for path in paths}


async def rank(model: Model, *paths: str, limit: int = 5, strategy: str = "content", **options: Any) -> Any:
    question = ContextGenerationInput(query="q", matching_strategy=strategy, max_results=limit)  # type: ignore[arg-type]
    return await LlmRanker(model, **options).rank(question, described(*paths), FakeRun().call())


def by_length(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    shown = json.loads(inputs["metadata"])
    return [{"path": item["path"], "score": len(item["path"]) / 10, "relevance": "so"} for item in shown]


async def test_the_models_scores_order_the_candidates() -> None:
    """Best first, ties in the order given, at most ``limit``; scores are clipped, made-up paths dropped."""
    model = Model([{"path": "b", "score": 0.9}, {"path": "nope", "score": 1}, {"path": "a", "score": 7}])
    order = await rank(model, "a", "b", "c")
    assert order == [("a", 1.0), ("b", 0.9)]
    template, inputs = model.asked[0]
    assert template == "atomic:associative_matching" and inputs["query"] == "q" and inputs["max_results"] == 5
    assert [item["path"] for item in json.loads(inputs["metadata"])] == ["a", "b", "c"]


async def test_the_metadata_strategy_has_a_template_of_its_own() -> None:
    """It is chosen by the question."""
    model = Model({"matches": [{"path": "a", "score": 0.5}]})
    assert await rank(model, "a", strategy="metadata") == [("a", 0.5)]
    assert model.asked[0][0] == "atomic:associative_matching_metadata"


async def test_shares_are_asked_at_the_same_time() -> None:
    """Many candidates become several requests that run together, at most ``concurrency``, joined into one order."""
    model = Model(by_length)
    paths = ["x" * n for n in range(1, 10)]
    order = await rank(model, *paths, limit=4, budget_tokens=400, concurrency=3)
    assert len(model.asked) > 3 and model.most == 3
    assert order == [("x" * n, n / 10) for n in (9, 8, 7, 6)]


async def test_shares_are_within_the_permits_of_the_run() -> None:
    """``concurrency`` of the run bounds them too, with whatever else is in flight."""
    model = Model(by_length)
    question = ContextGenerationInput(query="q", max_results=4)
    call = FakeRun(limits=Limits(concurrency=2)).call()
    await LlmRanker(model, budget_tokens=400).rank(question, described(*("x" * n for n in range(1, 10))), call)
    assert len(model.asked) > 3 and model.most == 2


@pytest.mark.parametrize("bad", ["not json", '{"files": 3}', '[{"path": "a"}]', '["a"]', '[{"path":"a","score":true}]'])
async def test_an_answer_that_is_no_ranking_is_asked_for_once_more(bad: str) -> None:
    """The second answer counts; a second bad one is reported."""
    good = [{"path": "a", "score": 0.5}]
    assert await rank(Model(bad, good), "a") == [("a", 0.5)]
    with pytest.raises(RerankFailed) as caught:
        await rank(Model(bad, bad), "a")
    assert caught.value.code == "memory/rerank" and caught.value.reason == "context_matching_failure"


async def test_one_bad_entry_does_not_void_the_others() -> None:
    """Entries without a number or of another shape are left out; the rest is the ranking, without a second question."""
    model = Model([{"path": "a", "score": 0.5}, {"path": "b", "score": "much"}, 7, {"path": "c", "score": 0.9}])
    assert await rank(model, "a", "b", "c") == [("c", 0.9), ("a", 0.5)] and len(model.asked) == 1


async def test_a_failed_task_is_reported_and_limits_pass() -> None:
    """A FAILED result becomes RerankFailed with its message; a limit of the run goes through as it is."""
    failed = TaskResult.failure("llm_error", "no credit left")
    with pytest.raises(RerankFailed, match="no credit left"):
        await rank(Model(failed), "a")
    limit = LimitExceeded("too many tokens", limit="tokens", allowed=1)
    with pytest.raises(LimitExceeded) as caught:
        await rank(Model(limit), "a")
    assert caught.value is limit


async def test_outside_of_a_run_no_model_is_asked() -> None:
    """A model call needs a run to be charged to."""
    model = Model([{"path": "a", "score": 0.5}])
    with pytest.raises(RerankFailed, match="within a run"):
        await LlmRanker(model).rank(ContextGenerationInput(query="q"), described("a"), None)
    assert model.asked == []


async def test_no_candidates_ask_nobody() -> None:
    """An empty list costs no model call."""
    model = Model("x")
    assert await rank(model) == [] and model.asked == []


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=3_000), max_size=30), st.integers(100, 2_000))
def test_shares_keep_every_candidate_in_order_and_fit(described: dict[str, str], budget: int) -> None:
    """No candidate is lost or moved, and no share is larger than the budget (a lone candidate is cut to it)."""
    made = shards(described, budget)
    assert [path for share in made for path in share] == list(described)
    assert all(share for share in made)
    for share in made:
        size = sum(estimated_tokens(path) + estimated_tokens(text) for path, text in share.items())
        assert size <= budget or len(share) == 1


async def test_shards_have_the_same_paths_however_they_overlap() -> None:
    """What each shard asks is numbered below a place of its own, so paths do not depend on which is answered first."""

    async def paths() -> dict[str, list[str]]:
        asked: dict[str, list[str]] = {}

        async def run(template: str, inputs: dict[str, Any], call: CallContext | None) -> TaskResult:
            assert call is not None
            await asyncio.sleep(random.random() * 0.003)
            first = json.loads(inputs["metadata"])[0]["path"]
            asked.setdefault(first, []).append(call.next_path())
            return TaskResult(content=json.dumps(by_length(inputs)) if len(asked[first]) == 2 else "no list")

        names = [f"file{index}" for index in range(6)]
        question = ContextGenerationInput(query="q", max_results=6)
        await LlmRanker(run, budget_tokens=100, concurrency=3).rank(question, described(*names), FakeRun().call())
        return asked

    runs = [await paths() for _ in range(5)]
    assert len(runs[0]) > 3 and all(each == runs[0] for each in runs)
