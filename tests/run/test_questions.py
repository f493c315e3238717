"""Questions and approvals of runs that are not durable: open in memory for a while, or denied."""

from __future__ import annotations

import asyncio

import pytest

from agentflow import AgentFlow, tool
from agentflow.core.data.errors import DataError, SexpEvaluationError
from agentflow.events import Event, WaitStarted


@tool(approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


async def test_what_is_open_in_memory_is_answered_by_send() -> None:
    """With ``approval_ttl`` both wait for an answer that fits, and branches beside them go on."""
    async with AgentFlow(tools=[pay], approval_ttl=30) as flow:
        started: list[WaitStarted] = []

        def note(event: Event) -> None:
            if isinstance(event, WaitStarted):
                started.append(event)

        flow.subscribe(note)
        text = '(parallel (ask-human "How many?" {"type" "integer"}) (content (pay)))'
        running = asyncio.create_task(flow.run(text, run_id="r", allow=["ask-human", "pay"]))
        while len(await flow.questions("r")) < 2:
            await asyncio.sleep(0.001)
        keys = {each.reason: each.key for each in started}
        with pytest.raises(DataError, match="does not fit"):
            await flow.send("r", keys["question"], "x")
        await flow.send("r", keys["question"], 3)
        await flow.send("r", keys["approval"], True)
        assert (await running).value == [3, "paid"]
        with pytest.raises(DataError) as caught:
            await flow.send("r", keys["question"], 4)
        assert caught.value.code == "question/unknown"


@pytest.mark.parametrize("ttl", [0.0, 0.05])
async def test_nobody_answers(ttl: float) -> None:
    """At once, or when the time is up, an approval is denied and a question is an error."""
    async with AgentFlow(tools=[pay], approval_ttl=ttl) as flow:
        assert (await flow.run("(failed? (pay))", allow=["pay"])).value is True
        with pytest.raises(SexpEvaluationError) as caught:
            await flow.run('(ask-human "?")')
        assert caught.value.code == "question/unanswered" and caught.value.span is not None
        assert await flow.questions("r") == []
