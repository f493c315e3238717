"""Messages, signals, state and limits of runs that workers do: sent by a process that neither started the run nor does it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, CallContext, Limits, ModelRequest, Price, ScriptedProvider, tool
from agentflow.core.data.messages import ToolResultPart
from tests.scale.workers import working
from tests.support.postgres import Server


class Payment(BaseModel):
    """A payment."""

    amount: int


class Site:
    """One process of three: the one that starts runs, the one that sends to them, and the one that does them."""

    def __init__(self, urls: list[str], paid: Counter[str]) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.paid = paid
        self.flow = AgentFlow(
            provider=ScriptedProvider(self.model),
            durable=" ".join(urls),
            prices={"scripted:*": Price(input=0, output=10)},
        )
        site = self

        @tool
        async def look(path: str, ctx: CallContext) -> str:
            """Look at a file."""
            site.begun.set()
            await site.go.wait()
            ctx.state["last"] = path
            return f"seen {path}"

        @self.flow.task(tools=[look], max_output_tokens=100)
        async def agent(about: str) -> str:
            """{{about}}"""
            raise NotImplementedError

        @self.flow.task(max_output_tokens=100)
        async def item(n: int) -> str:
            """Item {{n}}"""
            raise NotImplementedError

        @self.flow.workflow
        async def pays(order: str) -> int:
            await self.flow.publish("order", order)
            return (await self.flow.signal("payment", Payment)).amount

        @self.flow.workflow
        async def every(count: int) -> list[str]:
            return await self.flow.map(item, range(count), limit=2)

        self.agent, self.pays, self.every = agent, pays, every

    async def model(self, request: ModelRequest) -> Any:
        self.paid[request.messages[-1].text] += 1
        texts = [each.text for each in request.messages if each.role == "user"]
        results = [part for each in request.messages for part in each.parts if isinstance(part, ToolResultPart)]
        usage = {"input_tokens": 0, "output_tokens": 100}
        if request.tools and not results:
            return {"tool_calls": [{"name": "look", "arguments": {"path": "a.py"}}], "usage": usage}
        return {"text": " / ".join(texts), "usage": usage}


@pytest.fixture(params=["one database", "three shards"])
async def sites(postgres_server: Server, request: pytest.FixtureRequest) -> Any:
    """A starter, a sender and a worker."""
    urls = [postgres_server.schema() for _ in range(3 if request.param == "three shards" else 1)]
    paid: Counter[str] = Counter()
    starter, sender, worker = Site(urls, paid), Site(urls, paid), Site(urls, paid)
    async with starter.flow, sender.flow, worker.flow:
        yield starter, sender, worker


async def test_a_text_reaches_the_model_of_a_run_that_a_worker_does(sites: Any) -> None:
    """It is stored for the run when ``say`` returns, and read once, before the next turn; published state is seen from anywhere."""
    starter, sender, worker = sites
    handle = await starter.flow.start(starter.agent("Review src/."), run_id="r", where="workers")
    await sender.flow.say("r", "before it begins")
    async with working(worker.flow):
        await worker.begun.wait()
        await sender.flow.say("r", "also look at tests/")
        worker.go.set()
        assert (await handle.result()).value == "Review src/.\n\nbefore it begins / also look at tests/"
    assert (await sender.flow.state("r")) == {"last": "a.py"}
    assert starter.begun.is_set() is False


async def test_a_text_outlives_the_worker_that_was_to_read_it(sites: Any) -> None:
    """A worker that closes leaves the run, and what was said to it, to another one, whose model reads each text once."""
    starter, sender, worker = sites
    handle = await starter.flow.start(starter.agent("Review src/."), run_id="r", where="workers")
    async with working(worker.flow):
        await worker.begun.wait()
        await sender.flow.say("r", "also look at tests/")
        await worker.flow.aclose()
    async with working(sender.flow):
        await sender.begun.wait()
        await sender.flow.say("r", "and docs/")
        sender.go.set()
        assert (await handle.result()).value == "Review src/. / also look at tests/\n\nand docs/"


@pytest.mark.parametrize("early", [True, False], ids=["before it is asked for", "while the run waits"])
async def test_a_signal_reaches_a_run_that_a_worker_does(sites: Any, early: bool) -> None:
    """A signal is kept until it is asked for; a run that waits for one is on no worker, and continues on one that is free."""
    starter, sender, worker = sites
    handle = await starter.flow.start(starter.pays("o-1"), run_id="r", where="workers")
    if early:
        await sender.flow.send_signal("r", "payment", {"amount": 7})
    async with working(worker.flow):
        if not early:
            while (await sender.flow.find_run("r")).status != "waiting":
                await asyncio.sleep(0.01)
            assert await sender.flow.state("r") == {"order": "o-1"}
            await sender.flow.send_signal("r", "payment", {"amount": 7})
        assert (await handle.result()).value == 7


async def test_a_limit_of_a_run_that_a_worker_does_is_raised_from_elsewhere(sites: Any) -> None:
    """The run waits at its limit outside of the worker; the answer is its new limit there, and nothing is paid for twice."""
    starter, sender, worker = sites
    handle = await starter.flow.start(
        starter.every(4), run_id="r", where="workers", limits=Limits(usd=0.002), on_limit="wait"
    )
    async with working(worker.flow):
        while (await sender.flow.find_run("r")).status != "waiting":
            await asyncio.sleep(0.01)
        [question] = await sender.flow.questions("r")
        assert question.limit is not None and question.limit.name == "usd"
        await sender.flow.send("r", question.key, 1)
        assert len((await handle.result()).value) == 4
    assert set(worker.paid.values()) == {1} and len(worker.paid) == 4
