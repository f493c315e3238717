"""The manual in a flow with a policy: the same values and errors, whether or not anything stands in a box, or is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow, Provenance, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.labels import Following
from agentflow.core.data.limits import Limits
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import compile_program
from tests.spec.test_manual import BLOCKS, add_up, broken, shout
from tests.support.labelled import label_literals
from tests.support.manual import Block, Expectation, outcome

FEW = BLOCKS[::12]
"""Blocks of all pages, enough to see that the mode works at all."""


async def run(flow: AgentFlow, program: str, *, literals: bool, strict: bool) -> object:
    """The value of a program, with or without its literals in boxes."""
    if not literals:
        return await flow.evaluator.evaluate_string(program, SexpEnvironment())
    labelled: Following = "strict" if strict else True
    compiled = compile_program(
        program, names=flow.engine.names(), limits=Limits(), passes=(label_literals,), labelled=labelled
    )
    result = await flow.run(compiled)
    return result.value


async def difference(
    block: Block, expected: Expectation, root: Path, *, literals: bool, strict: bool = False
) -> str | None:
    """What differs from the page, if anything does."""
    model = ScriptedProvider(list(block.replies))
    tools = [shout, add_up, broken]
    policy = Provenance(strict=strict)
    async with AgentFlow(provider=model, root=root, tools=tools, notes="session", provenance=policy) as flow:
        value, error = None, None
        try:
            value = await run(flow, expected.program, literals=literals, strict=strict)
        except AgentflowError as raised:
            error = raised
        return outcome(expected, value, error)


async def wrong(block: Block, root: Path, *, literals: bool, strict: bool = False) -> list[str]:
    """All that differs in a block."""
    found = [
        (each, await difference(block, each, root, literals=literals, strict=strict)) for each in block.expectations
    ]
    return [f"{block.page}.md:{expected.line}: {text}" for expected, text in found if text is not None]


@pytest.mark.parametrize("block", FEW, ids=str)
async def test_some_of_the_manual_is_the_same_with_a_policy(block: Block, tmp_path: Path) -> None:
    """In a flow with a policy that allows everything, forms have the values and errors of the manual."""
    assert await wrong(block, tmp_path, literals=False) + await wrong(block, tmp_path, literals=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("literals", [False, True], ids=["bare", "labelled"])
@pytest.mark.parametrize("block", BLOCKS, ids=str)
async def test_the_manual_is_the_same_with_a_policy(block: Block, literals: bool, tmp_path: Path) -> None:
    """So it is for the whole manual, with every literal in a box too."""
    assert await wrong(block, tmp_path, literals=literals) == []


REFUSED = {
    "define a local in an arm": ("03-binding", 47),
    "wait for a signal within a time that depends on something": ("17-time-and-waiting", 92),
    "wait for a signal by a schema that depends on something": ("17-time-and-waiting", 93),
}
"""Examples that a strict policy refuses when all literals are labelled, by page and line."""


@pytest.mark.parametrize("block", FEW[::2], ids=str)
async def test_some_of_the_manual_is_the_same_with_a_strict_policy(block: Block, tmp_path: Path) -> None:
    """Where nothing is labelled, a strict policy changes no value and no error."""
    assert await wrong(block, tmp_path, literals=False, strict=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=str)
async def test_the_manual_is_the_same_with_a_strict_policy(block: Block, tmp_path: Path) -> None:
    """So it is for the whole manual, and with every literal in a box but for what is refused."""
    assert await wrong(block, tmp_path, literals=False, strict=True) == []
    refused = [f"{page}.md:{line}:" for page, line in REFUSED.values()]
    other = [
        each for each in await wrong(block, tmp_path, literals=True, strict=True) if not each.startswith(tuple(refused))
    ]
    assert other == []
