"""A limit stops the branches of a run; an answer that has arrived by then is recorded, and not paid for again with a higher limit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, LimitExceeded, Limits, ModelRequest, Price, ScriptedProvider
from agentflow.errors import WorkflowError
from agentflow.events import Event, TaskFinished, ToolFinished
from tests.support.children import HANG_S

FORMS = {
    "pmap": "(pmap (lambda (n) (content (item (n n)))) (range 10) {})",
    "parallel": "(parallel " + " ".join(f"(content (item (n {n})))" for n in range(10)) + ")",
    "inner": "(pmap (lambda (m) (pmap (lambda (n) (content (item (n (+ n (* 5 m)))))) (range 5) {})) (range 2))",
}


@pytest.mark.parametrize("at_once", [2, 5])
@pytest.mark.parametrize("form", ["map", "gather", "group", "timeout", *FORMS])
async def test_what_arrived_is_not_paid_again(form: str, at_once: int, tmp_path: Path) -> None:
    """Ten calls, of which at most five are paid for at first: together the two runs pay for each once."""
    paid: Counter[str] = Counter()

    async def model(request: ModelRequest) -> Any:
        paid[request.messages[-1].text] += 1
        await asyncio.sleep(0.01)  # calls that begin together answer together
        return {"text": "x", "usage": {"input_tokens": 0, "output_tokens": 100}}

    async with AgentFlow(
        provider=ScriptedProvider(model),
        prices={"scripted:*": Price(input=0, output=10)},
        durable=f"sqlite:///{tmp_path}/runs.db",
    ) as flow:

        @flow.task(max_output_tokens=100)
        async def item(n: int) -> str:
            """Item {{n}}"""
            raise NotImplementedError

        @flow.workflow
        async def every(ns: list[int]) -> list[str]:
            return await flow.map(item, ns, limit=at_once)

        @flow.workflow
        async def gathered(ns: list[int]) -> list[str]:
            return await asyncio.gather(*[item(n) for n in ns])

        @flow.workflow
        async def grouped(ns: list[int]) -> list[str]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(item(n)) for n in ns]
            return [each.result() for each in tasks]

        @flow.workflow
        async def timed(ns: list[int]) -> list[str]:
            async with asyncio.timeout(HANG_S):
                return await asyncio.gather(*[asyncio.wait_for(item(n), HANG_S) for n in ns])

        ways: dict[str, Any] = {"map": every, "gather": gathered, "group": grouped, "timeout": timed}

        def program() -> Any:
            return ways[form](list(range(10))) if form in ways else FORMS[form].format(at_once)

        with pytest.raises((LimitExceeded, ExceptionGroup, WorkflowError)):
            limits = Limits(usd=0.005, concurrency=at_once)
            await (await flow.start(program(), run_id="r", limits=limits)).result()
        first = paid.total()
        assert 0 < first < 10
        await (await flow.resume("r", limits=Limits(usd=1, concurrency=at_once))).result()
        assert set(paid.values()) == {1} and len(paid) == 10


async def test_a_success_is_shown_once_it_is_stored(tmp_path: Path) -> None:
    """The Finished events of a durable run come in the order of a plain run, and each after the record of its outcome."""
    database = f"{tmp_path}/runs.db"
    stored: list[tuple[str, int]] = []
    shown: list[list[tuple[str, str]]] = []

    async def model(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return {"text": "", "tool_calls": [{"name": "look", "arguments": {"at": "a"}}]}
        return "done"

    def note(event: Event) -> None:
        shown[-1].append((event.type, event.path))
        if isinstance(event, TaskFinished | ToolFinished) and len(shown) == 2:
            with sqlite3.connect(database) as reader:
                stored.append(
                    (event.type, reader.execute("select count(*) from af_effect where state = 1").fetchone()[0])
                )
            reader.close()

    for durable in (None, f"sqlite:///{database}"):
        shown.append([])
        async with AgentFlow(provider=ScriptedProvider(model), durable=durable) as flow:
            flow.subscribe(note)

            @flow.tool
            async def look(at: str) -> str:
                """Look."""
                return at

            @flow.task(tools=[look])
            async def work() -> str:
                """Work."""
                raise NotImplementedError

            @flow.workflow
            async def both() -> list[str]:
                return [await work(), await work()]

            await (flow.run(both()) if durable is None else (await flow.start(both())).result())
    assert shown[0] == shown[1]
    assert stored == [("tool_finished", 2), ("task_finished", 3), ("tool_finished", 5), ("task_finished", 6)]
