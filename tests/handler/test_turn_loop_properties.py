"""Whatever models and tools do, a prompt ends in an outcome or one of our errors and leaves everything whole."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.core.data.errors import AgentflowError, TaskError
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import (
    ModelResponse,
    Native,
    OtherPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    Usage,
)
from agentflow.core.data.provider_errors import Overloaded
from agentflow.core.data.session import Session
from agentflow.core.ports.ports import Prompt
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.tools import subtask_tool, tool
from agentflow.handler.turn_loop import TurnLoop
from tests.support.fakes import FakeProvider, FakeRouter, FakeRun, check_strictly

names = st.sampled_from(["fine", "fails", "raises", "alone", "late", "digs", "unknown", "bad", ""])
tool_parts = st.builds(
    ToolCallPart,
    id=st.sampled_from(["a", "b", "c", "d", ""]) | st.uuids().map(str),
    name=names,
    arguments=st.sampled_from([{}, {"n": 1}, {"n": "x"}, {"n": None, "m": [1]}]),
    invalid=st.sampled_from(["", "", "", "cut off"]),
)
parts: st.SearchStrategy[Part] = st.one_of(
    st.sampled_from(["", " ", "text", '{"n": 1}', '{"n": "x"}', "[1"]).map(TextPart),
    st.just(ThinkingPart("hm")),
    st.just(OtherPart(Native("fake", {}))),
    tool_parts,
    tool_parts,
)
responses = st.builds(
    ModelResponse,
    st.lists(parts, max_size=5).map(tuple),
    st.sampled_from(
        ["end", "end", "end", "tool_calls", "tool_calls", "max_tokens", "refusal", "pause", "stop_sequence"]
    ),
    st.builds(Usage, st.integers(0, 5_000), st.integers(0, 500), requests=st.just(1)),
)
failures = st.builds(lambda: Overloaded("busy", status=529))
replies = st.lists(st.one_of(*[responses] * 8, failures), min_size=1, max_size=6)


def registry() -> ToolRegistry:
    made = ToolRegistry()

    @made.add
    async def fine(n: int = 0) -> int:
        await asyncio.sleep(0)
        return n

    @made.add
    async def fails() -> None:
        raise ValueError("no")

    @made.add
    async def raises() -> None:
        await asyncio.sleep(0)
        raise TaskError("stop")

    @made.add
    @tool(sequential=True)
    async def alone(n: int = 0) -> str:
        await asyncio.sleep(0)
        return "x" * 10_000

    @made.add
    @tool(timeout_s=0.001)
    async def late() -> None:
        await asyncio.sleep(1)

    @made.add
    async def bad() -> Any:
        return {"status": "CONTINUATION", "content": "", "notes": {"subtask_request": {"depth": "x"}}}

    made.add(subtask_tool("digs", "Digs.", parameters={"n?": "any", "m?": "any"}))
    return made


TOOLS = registry()


@given(replies, st.booleans(), st.sampled_from([None, 8_000]))
@settings(max_examples=75, deadline=None)
def test_everything_stays_whole(script: list[Any], json: bool, window: int | None) -> None:
    """Events in pairs, no stream or task left, history whole and acceptable, only our errors."""

    async def main() -> None:
        # Two assistant messages may follow a pause; everything else a strict server demands holds for the session.
        provider = FakeProvider(*script, *["last"] * 8, window=window, strict=False)
        loop = TurnLoop(FakeRouter(provider), TOOLS)
        run, session = FakeRun(limits=Limits(turns=5, output_chars=2_000)), Session()
        prompt = Prompt(parts=(TextPart("go"),), json_output=json)
        try:
            outcome = await loop.run_prompt(prompt, run.call(session))
        except AgentflowError:
            assert not session.turns()
        else:
            assert session.turns() == [outcome.turn] and outcome.turns <= 5
            check_strictly((*session.messages, session.messages[0]))
        assert run.unbalanced() == [] and provider.open_streams == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for event in run.events:
            event.to_dict()

    asyncio.run(main())
