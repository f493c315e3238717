"""A failure that the program has handled stays as it was: a resumed run tries again only what ended it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, ScriptedProvider

TEXTS = {
    "parallel": "try:\n    parallel({bad}, {good})\nexcept Exception:\n    pass\n{later}",
    "pmap": "try:\n    pmap(lambda f: f(), [lambda: {bad}, lambda: {good}])\nexcept Exception:\n    pass\n{later}",
    "nested": "try:\n    parallel(parallel({good}, parallel({good}, {bad})), {good})\nexcept Exception:\n    pass\n{later}",
    "within a branch": "def f():\n    try:\n        parallel({bad}, {good})\n    except Exception:\n        return {good}\n    return 1\nparallel(f(), f())\n{later}",
    "alone": "try:\n    {bad}\nexcept Exception:\n    pass\n{later}",
    "retry": "try:\n    retry(2, parallel({bad}, {good}))\nexcept Exception:\n    pass\n{later}",
}


def flow_of(root: Path, fails: Callable[[str], bool], called: list[str]) -> AgentFlow:
    """A durable flow with a tool that notes its calls, and fails where ``fails`` says so."""
    flow = AgentFlow(provider=ScriptedProvider(), durable=f"sqlite:///{root}/runs.db")

    @flow.tool
    async def look(at: str) -> str:
        """Look at something."""
        called.append(at)
        if fails(at):
            raise ValueError("no luck")
        return at

    return flow


async def ended(flow: AgentFlow, handle: Any) -> str:
    try:
        return str(await handle.result())
    except AgentflowError as error:
        return error.code


@pytest.mark.parametrize("name", TEXTS)
async def test_a_handled_failure_is_not_tried_again(name: str, tmp_path: Path) -> None:
    """A failure in a branch that an `except` around its form caught is replayed, although the call would succeed now.

    It was tried again, and the run could not be resumed at all: the form's record says that this branch settled it.
    """
    calls = {"bad": "look(at='bad')", "good": "look(at='good')", "later": "look(at='last')"}
    text = TEXTS[name].format(**calls)
    first: list[str] = []
    async with flow_of(tmp_path, lambda at: at in ("bad", "last"), first) as flow:
        assert await ended(flow, await flow.start(text, surface="python", run_id="r")) == "host/raised"
    again: list[str] = []
    async with flow_of(tmp_path, lambda at: False, again) as flow:
        result = await (await flow.resume("r")).result()
    assert result.value == "last" and again == ["last"] and "bad" in first


async def test_a_failure_that_ended_the_run_is_tried_again(tmp_path: Path) -> None:
    """One that nothing handled is tried again, with the branches that it stopped."""
    text = "look(at='first')\nparallel(look(at='good'), look(at='bad'))"
    first: list[str] = []
    async with flow_of(tmp_path, lambda at: at == "bad", first) as flow:
        await ended(flow, await flow.start(text, surface="python", run_id="r"))
    again: list[str] = []
    async with flow_of(tmp_path, lambda at: False, again) as flow:
        assert (await (await flow.resume("r")).result()).value == ["good", "bad"]
    assert "first" not in again and "bad" in again
