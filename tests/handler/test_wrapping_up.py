"""``wrap_up=True``: the last turn that the limits allow an agent is kept for its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Limits, ModelRequest, Price, ScriptedProvider

CALLS: list[dict[str, Any]] = [{"name": "dig", "arguments": {}}]


class Digger:
    """A model that calls its tool for as long as it may, and answers when it may not."""

    def __init__(self, **options: Any) -> None:
        self.requests: list[ModelRequest] = []
        self.dug = 0
        self.flow = AgentFlow(
            provider=ScriptedProvider(self.model), prices={"scripted:*": Price(input=0, output=10)}, **options
        )

        @self.flow.tool
        async def dig() -> str:
            """Dig deeper."""
            self.dug += 1
            return "earth"

        @self.flow.task(tools=[dig], max_output_tokens=100)
        async def search() -> dict[str, int]:
            """Search."""
            raise NotImplementedError

        self.search = search

    def model(self, request: ModelRequest) -> dict[str, Any]:
        self.requests.append(request)
        usage: dict[str, Any] = {"input_tokens": 0, "output_tokens": 100}
        if request.tool_choice == "none":
            return {"text": '{"found": 1}', "usage": usage}
        return {"text": "", "tool_calls": CALLS, "usage": usage}


LIMITS = {
    "turns": (Limits(turns=4), 4, "no turns are left"),
    "model_calls": (Limits(model_calls=3), 3, "no model calls are left"),
    "usd": (Limits(usd=0.0045), 4, "the money of this run is used up"),
}


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("limit", ["turns", "model_calls", "usd"])
async def test_the_last_turn_answers(limit: str, durable: bool, tmp_path: Path) -> None:
    """The model is told why, may call no tool, and its answer has the form that the task demands."""
    limits, turns, reason = LIMITS[limit]
    digger = Digger(durable=f"sqlite:///{tmp_path}/runs.db" if durable else None)
    async with digger.flow as flow:
        if durable:
            result: Any = await (await flow.start(digger.search(), limits=limits, wrap_up=True)).result()
        else:
            result = await flow.run(digger.search(), limits=limits, wrap_up=True)
    assert result.value == {"found": 1}
    assert len(digger.requests) == turns and digger.dug == turns - 1
    last = digger.requests[-1]
    assert last.tools and last.tool_choice == "none"
    assert reason in last.messages[-1].text and last.messages[-1].role == "user"
    assert all("last turn" not in each.text for request in digger.requests[:-1] for each in request.messages)


async def test_a_call_in_the_last_turn_is_not_carried_out() -> None:
    """A model that calls a tool in spite of it has given no answer; the tool does not run."""
    digger = Digger()

    def stubborn(request: ModelRequest) -> Any:
        return {"text": '{"found": 2}', "tool_calls": CALLS}

    digger.model = stubborn  # type: ignore[method-assign]
    digger.flow = AgentFlow(provider=ScriptedProvider(stubborn))

    @digger.flow.tool
    async def dig() -> str:
        """Dig deeper."""
        digger.dug += 1
        return "earth"

    @digger.flow.task(tools=[dig])
    async def search() -> dict[str, int]:
        """Search."""
        raise NotImplementedError

    async with digger.flow as flow:
        assert (await flow.run(search(), limits=Limits(turns=2), wrap_up=True)).value == {"found": 2}
    assert digger.dug == 1


async def test_a_task_without_tools_is_not_told(tmp_path: Path) -> None:
    """Only agents, whose tools could go on for ever, have a last turn."""
    requests: list[ModelRequest] = []

    def model(request: ModelRequest) -> str:
        requests.append(request)
        return "done"

    async with AgentFlow(provider=ScriptedProvider(model), wrap_up=True) as flow:
        assert await flow.ask("Work") == "done"
        assert await flow.ask("Work") == "done"
    assert [len(each.messages[-1].text) for each in requests] == [4, 4]
