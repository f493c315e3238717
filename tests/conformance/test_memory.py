"""The rules of the memory and ranker ports, on every implementation that ships."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import MemorySystem
from agentflow.core.call.call import CallContext
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput
from agentflow.core.data.results import TaskResult
from agentflow.core.ports.memory_ports import MemoryPort, Ranker
from agentflow.lib.text.sentence_rank import LexicalSentenceRanker
from agentflow.memory import FileIndex, LexicalRanker, LlmRanker
from tests.support.fake_memory import FakeMemory
from tests.support.fakes import FakeRun
from tests.support.repository import write

FILES = {"pelican.py": "def pelican(): 'a pelican eats fish'", "heron.py": "def heron(): 'fish'", "none.py": "x = 1"}


def _is_there(path: str) -> bool:
    return os.path.exists(path)


async def scoring_model(template: str, inputs: dict[str, Any], call: CallContext | None) -> TaskResult:
    """A model that scores by how often the question occurs."""
    shown = json.loads(inputs["metadata"])
    scores = [{"path": s["path"], "score": min(1.0, s["text"].count(inputs["query"]) / 4)} for s in shown]
    return TaskResult(content=json.dumps([score for score in scores if score["score"]]))


@pytest.fixture(params=["lexical", "reranked", "fake"])
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemoryPort]:
    write(tmp_path, FILES)
    top = str(tmp_path)
    if request.param == "fake":
        yield FakeMemory([f"{top}/pelican.py", f"{top}/heron.py"], summary="two")
        return
    ranker = LlmRanker(scoring_model) if request.param == "reranked" else None
    async with MemorySystem(roots=[tmp_path], ranker=ranker) as system:
        yield system


@pytest.fixture(params=["lexical", "model"])
async def ranker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Ranker, dict[str, str]]]:
    write(tmp_path, FILES)
    index = FileIndex()
    await index.update(tmp_path)
    paths = [os.path.join(row.root, row.path) for row in await index.files()]
    candidates = {path: FILES[os.path.basename(path)] for path in paths}
    yield LexicalRanker(index) if request.param == "lexical" else LlmRanker(scoring_model), candidates
    await index.aclose()


async def test_matches_come_best_first_with_absolute_paths(memory: MemoryPort) -> None:
    """Scores lie in 0..1 and fall; ``file_paths`` has each path once, in that order; there is a summary."""
    result = await memory.get_relevant_context_for(ContextGenerationInput(query="pelican fish"))
    assert isinstance(result, AssociativeMatchResult) and result.error is None and result.context_summary
    scores = [match.score for match in result.matches]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    assert result.file_paths == list(dict.fromkeys(match.path for match in result.matches))
    assert all(os.path.isabs(path) and _is_there(path) for path in result.file_paths)
    assert os.path.basename(result.file_paths[0]) == "pelican.py"


async def test_the_same_question_gives_the_same_answer(memory: MemoryPort) -> None:
    """Nothing in a lookup depends on time, chance or what was asked before; many may be asked at once."""
    asked = ContextGenerationInput(query="pelican")
    first = await memory.get_relevant_context_for(asked)
    others = await asyncio.gather(*(memory.get_relevant_context_for(asked) for _ in range(5)))
    assert all(other.file_paths == first.file_paths for other in others)


async def test_a_ranker_orders_candidates_by_score(ranker: tuple[Ranker, dict[str, str]]) -> None:
    """At most ``max_results``, best first, scores in 0..1, nothing that was no candidate."""
    rank, candidates = ranker
    question = ContextGenerationInput(query="pelican", max_results=2)
    order = await rank.rank(question, candidates, FakeRun().call())
    assert os.path.basename(order[0][0]) == "pelican.py" and len(order) <= 2
    assert all(path in candidates and 0 <= score <= 1 for path, score in order)
    assert [score for _, score in order] == sorted((score for _, score in order), reverse=True)
    assert await rank.rank(question, {}, FakeRun().call()) == []


@pytest.mark.parametrize("rank", [LexicalSentenceRanker()])
def test_a_sentence_ranker_scores_every_text(rank: LexicalSentenceRanker) -> None:
    """One score in 0..1 for each text, in order, whatever the texts are."""
    texts = ["a pelican", "", "fish " * 500, "\0\ud800", "pelican pelican"]
    scores = rank("pelican", texts)
    assert len(scores) == len(texts) and all(0 <= score <= 1 for score in scores) and scores[0] > scores[2]
    assert rank("pelican", texts) == scores
