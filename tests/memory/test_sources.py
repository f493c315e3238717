"""Sources that propose files: what they add, how it is fused, and what happens when they fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agentflow import AgentFlow, Candidate, ContextGenerationInput
from agentflow.cli.admin.search import search_command
from agentflow.core.data.errors import LimitExceeded
from agentflow.core.events.events import Event, Warning
from agentflow.memory import FileMemory
from tests.support.fakes import FakeRun
from tests.support.repository import write

FILES = {
    "stream.py": "def read():\n    '''Reads a stream.'''\n",
    "streams.md": "How a stream is read.\n",
    "brook.py": "# water\n" * 100 + "def flow():\n    '''Water runs.'''\n",
}


def real(path: Path) -> str:
    return os.path.realpath(path)


class Source:
    """Proposes what it was built with."""

    def __init__(self, answer: Callable[[str, int], Sequence[Candidate]]) -> None:
        self._answer = answer
        self.asked: list[tuple[str, int]] = []

    async def candidates(self, question: ContextGenerationInput, limit: int) -> Sequence[Candidate]:
        self.asked.append((question.text, limit))
        return self._answer(question.text, limit)


def failing(error: Exception) -> Source:
    def answer(text: str, limit: int) -> Sequence[Candidate]:
        raise error

    return Source(answer)


def question(text: str = "stream") -> ContextGenerationInput:
    return ContextGenerationInput(query=text)


async def test_a_source_adds_a_file_that_shares_no_word_with_the_question(tmp_path: Path) -> None:
    """With the lines that it names, and its reason among the evidence."""
    write(tmp_path, FILES)
    brook = real(tmp_path / "brook.py")
    source = Source(lambda text, limit: [Candidate(brook, (101, 102), 0.4, "means the same")])
    async with FileMemory(roots=[tmp_path], sources=[source]) as memory:
        found = {match.path: match for match in (await memory.find(question())).matches}
    match = found[brook]
    assert (match.start_line, match.end_line) == (101, 102) and "Water runs" in match.content
    assert match.relevance == "means the same" and match.metadata["why"] == ["means the same"]
    assert len(found) == 3 and source.asked == [("stream", 50)]


async def test_orders_are_fused_by_rank_and_not_by_score(tmp_path: Path) -> None:
    """A file that both put forward precedes one that a source alone rates a thousand; all scores stay in 0..1."""
    write(tmp_path, FILES)
    top = real(tmp_path)
    source = Source(lambda text, limit: [Candidate(f"{top}/brook.py", None, 1_000.0), Candidate(f"{top}/streams.md")])
    async with FileMemory(roots=[tmp_path], sources=[source]) as memory:
        matches = (await memory.find(question())).matches
    assert matches[0].path.endswith("streams.md")
    assert all(0 <= match.score <= 1 for match in matches)


async def test_a_proposal_that_is_not_indexed_is_left_out_and_listed(tmp_path: Path) -> None:
    """A source cannot hand out what file tools refuse."""
    write(tmp_path, {**FILES, "secret.pem": "x"})
    secret = real(tmp_path / "secret.pem")
    source = Source(lambda text, limit: [Candidate(secret), Candidate("/etc/passwd")])
    async with FileMemory(roots=[tmp_path], sources=[source]) as memory:
        result = await memory.find(question())
    assert {match.path for match in result.matches}.isdisjoint({secret, "/etc/passwd"})
    assert {"/etc/passwd", secret} <= {skip["path"] for skip in result.skipped}


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), KeyError("x")])
async def test_a_source_that_fails_is_a_warning_and_the_order_is_that_without_it(
    tmp_path: Path, error: Exception
) -> None:
    """Whatever it raises, which names the source; the answer is not an error."""
    write(tmp_path, FILES)
    run = FakeRun()
    async with FileMemory(roots=[tmp_path]) as plain, FileMemory(roots=[tmp_path], sources=[failing(error)]) as memory:
        expected = (await plain.find(question())).matches
        result = await memory.find(question(), run.call())
    assert result.matches == expected and result.error is None
    (warning,) = [event for event in run.events if isinstance(event, Warning)]
    assert warning.code == "memory/source" and "Source" in warning.message


async def test_a_limit_passes_through_a_source_and_a_ranker(tmp_path: Path) -> None:
    """A source may not spend what the run has not."""
    write(tmp_path, FILES)
    async with FileMemory(
        roots=[tmp_path], sources=[failing(LimitExceeded("spent", limit="usd", allowed=1))]
    ) as memory:
        with pytest.raises(LimitExceeded):
            await memory.find(question())


async def test_a_flow_asks_its_sources_within_the_run(tmp_path: Path) -> None:
    """``AgentFlow(sources=...)`` reaches ``get_context``; a warning is an event of the run."""
    write(tmp_path, FILES)
    brook = real(tmp_path / "brook.py")
    warnings: list[Event] = []
    sources = [Source(lambda text, limit: [Candidate(brook)]), failing(ValueError("broken"))]
    async with AgentFlow("offline", root=tmp_path, sources=sources) as flow:
        flow.subscribe(warnings.append)
        paths = (await flow.run('(get_context (query "stream"))')).value
    assert brook in paths
    assert [event.code for event in warnings if isinstance(event, Warning)] == ["memory/source"]


async def test_evidence_stands_in_the_rows_of_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row of ``agentflow search`` says why, in words."""
    write(tmp_path, FILES)
    await search_command("stream", str(tmp_path), cache_dir=tmp_path / "cache")
    assert "matched by" in capsys.readouterr().out
