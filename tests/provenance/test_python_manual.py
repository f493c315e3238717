"""The manual of Python texts in a flow with a policy: the same values and errors, whether or not tests count."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow, Limits, Provenance, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from tests.spec_python.test_python_manual import PAGES, add_up, broken, shout
from tests.support.manual import Block, Expectation
from tests.support.python_manual import outcome_of, python_blocks


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True], ids=["data", "strict"])
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "README.md"], ids=lambda page: page.stem)
async def test_the_manual_is_the_same_with_a_policy(page: Path, strict: bool, tmp_path: Path) -> None:
    """Twins of what texts call give the values and the errors that the manual says."""
    wrong: list[str] = []
    for block in python_blocks(page):
        for expected in block.expectations:
            difference = await _difference(block, expected, tmp_path, strict)
            if difference is not None:
                wrong.append(f"{block.page}.md:{expected.line}: {difference}")
    assert not wrong, "\n" + "\n".join(wrong)


async def _difference(block: Block, expected: Expectation, root: Path, strict: bool) -> str | None:
    async with AgentFlow(
        provider=ScriptedProvider(list(block.replies)),
        root=root,
        tools=[shout, add_up, broken],
        notes="session",
        limits=Limits(depth=3_000),
        provenance=Provenance(strict=strict),
    ) as flow:
        try:
            return outcome_of(expected, ((await flow.run(expected.program, surface="python")).value), None)
        except AgentflowError as error:
            return outcome_of(expected, None, error)
