"""The manual is the suite: every block of every page is compiled, run and compared with what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.lang.environment import SexpEnvironment
from tests.support.manual import Block, blocks, outcome

PAGES = sorted(Path(__file__).parent.glob("*.md"))
BLOCKS = [block for page in PAGES for block in blocks(page)]


async def shout(text: str) -> str:
    """The text in capitals."""
    return text.upper()


async def add_up(numbers: list[int]) -> list[int] | int:
    """The sum of the numbers."""
    return sum(numbers)


async def broken() -> str:
    """Always fails."""
    raise ValueError("this tool is broken")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
async def test_the_manual_says_what_happens(block: Block, tmp_path: Path) -> None:
    """Each form with an expectation has that value, or raises an error of that code."""
    wrong: list[str] = []
    for expected in block.expectations:
        tools = [shout, add_up, broken]
        model = ScriptedProvider(list(block.replies))
        async with AgentFlow(provider=model, root=tmp_path, tools=tools, notes="session") as flow:
            value, error = None, None
            try:
                value = await flow.evaluator.evaluate_string(expected.program, SexpEnvironment())
            except AgentflowError as raised:
                error = raised
            difference = outcome(expected, value, error)
        if difference is not None:
            wrong.append(f"{block.page}.md:{expected.line}: {difference}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_page_is_in_the_index() -> None:
    """The table of the manual's first page lists all pages."""
    index = (Path(__file__).parent / "README.md").read_text("utf-8")
    assert [page.name for page in PAGES if page.name != "README.md" and f"({page.name})" not in index] == []
