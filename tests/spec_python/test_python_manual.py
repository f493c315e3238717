"""The manual of Python texts is a suite: every block of every page is run and compared with what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from tests.support.manual import Block, Expectation
from tests.support.python_manual import outcome_of, python_block, python_blocks

PAGES = sorted(Path(__file__).parent.glob("*.md"))


async def shout(text: str) -> str:
    """The text in capitals."""
    return text.upper()


async def add_up(numbers: list[int]) -> int:
    """The sum of the numbers."""
    return sum(numbers)


async def broken() -> str:
    """Always fails."""
    raise ValueError("this tool is broken")


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "README.md"], ids=lambda page: page.stem)
async def test_the_manual_says_what_happens(page: Path, tmp_path: Path) -> None:
    """Each expression of the page has the value that the page says, or raises an error of that code."""
    wrong: list[str] = []
    said = 0
    for block in python_blocks(page):
        for expected in block.expectations:
            said += 1
            difference = await _difference(block, expected, tmp_path)
            if difference is not None:
                wrong.append(f"{block.page}.md:{expected.line}: {difference}")
    assert said and not wrong, "\n" + "\n".join(wrong)


async def _difference(block: Block, expected: Expectation, root: Path) -> str | None:
    model = ScriptedProvider(list(block.replies))
    async with AgentFlow(
        provider=model, root=root, tools=[shout, add_up, broken], notes="session", limits=Limits(depth=3_000)
    ) as flow:
        try:
            return outcome_of(expected, ((await flow.run(expected.program, surface="python")).value), None)
        except AgentflowError as error:
            return outcome_of(expected, None, error)


def test_blocks_are_split_at_what_they_say() -> None:
    """A program holds all statements above what is said, but for those that ended in an error; lines keep their numbers."""
    block = python_block("page", 10, "x = 1\nx + 1  # => 2\nx.y  # error: field/missing\n# model: hi\nx  # => 1\n")
    assert [each.program for each in block.expectations] == [
        "x = 1\nx + 1  # => 2",
        "x = 1\nx + 1  # => 2\nx.y  # error: field/missing",
        "x = 1\nx + 1  # => 2\n\n# model: hi\nx  # => 1",
    ]
    assert block.replies == ["hi"] and [each.line for each in block.expectations] == [11, 12, 14]


def test_every_page_is_in_the_index() -> None:
    """The table of the manual's first page lists all pages."""
    index = (Path(__file__).parent / "README.md").read_text("utf-8")
    assert [page.name for page in PAGES if page.name != "README.md" and f"({page.name})" not in index] == []
