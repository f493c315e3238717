"""The steps of a task are recorded too: an interrupted task repeats the turn it was in, and nothing before it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, DurableRun, Limits, Price, ScriptedProvider
from agentflow.core.data.messages import Attempt, ModelDelta, ModelRequest, ToolResultPart, Usage
from agentflow.core.data.provider_errors import ConnectionLost
from agentflow.events import EffectReplayed, Event, ModelStarted, Warning

LOOP = """
(defatom work (params (q string)) (instructions "{{q}}") (tools (look)))
(list (content (work (q "go"))) (content (work (q "again"))))
"""
TASKS = LOOP.replace("(content (work", "((lambda (task) task) (work")


class Model:
    """Calls ``look`` four times and then answers with what it has read; ``held`` is the call that hangs."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.looked: Counter[str] = Counter()
        self.held: str | None = None
        self.reached = asyncio.Event()
        self.requests: list[ModelRequest] = []

    async def hold(self, what: str) -> None:
        if what == self.held:
            self.reached.set()
            await asyncio.Event().wait()

    async def answer(self, request: ModelRequest) -> Any:
        last = max(i for i, m in enumerate(request.messages) if m.role == "user" and m.text)
        read = [part.text for m in request.messages[last:] for part in m.parts if isinstance(part, ToolResultPart)]
        asked = f"{request.messages[last].text}-{len(read)}"
        await self.hold(asked)
        self.asked[asked] += 1
        self.requests.append(request)
        if len(read) < 4:
            return {"tool_calls": [{"name": "look", "arguments": {"at": f"{asked}"}}]}
        return f"read {' '.join(read)}"

    async def look(self, at: str) -> str:
        """Look at something."""
        await self.hold(f"look {at}")
        self.looked[at] += 1
        return f"<{at}>"

    def flow(self, tmp_path: Path, **options: Any) -> AgentFlow:
        chosen: dict[str, Any] = {"provider": ScriptedProvider(self.answer), "tools": [self.look], **options}
        return AgentFlow(root=tmp_path, durable=f"sqlite:///{tmp_path}/r.db", **chosen)

    async def reach(self, handle: DurableRun) -> None:
        """Wait until the run is where it is held. Raises what ends it before."""
        reached, ended = asyncio.ensure_future(self.reached.wait()), asyncio.ensure_future(handle.result())
        await asyncio.wait([reached, ended], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            raise AssertionError(f"it ended before: {ended.result()}")
        ended.cancel()

    async def run(self, tmp_path: Path, text: str, held: str | None, **options: Any) -> Any:
        """Run until ``held`` is reached, or to the end; gives the result then."""
        self.held = held
        self.reached.clear()
        async with self.flow(tmp_path, **options) as flow:
            handle = await flow.start(text, run_id="r")
            if held is not None:
                await self.reach(handle)
                return handle
            return await handle.result()


async def test_a_task_goes_on_in_the_turn_it_was_in(tmp_path: Path) -> None:
    """Interrupted in the third tool call and in the fifth answer, a task asks its model for no answer twice."""
    model = Model()
    for held in ("look go-2", "go-4", "look again-0"):
        await model.run(tmp_path, LOOP, held)
    result = await model.run(tmp_path, LOOP, None)
    (tmp_path / "other").mkdir()
    undisturbed = await Model().run(tmp_path / "other", LOOP, None)
    assert result.value == undisturbed.value and result.usage == undisturbed.usage
    assert set(model.asked.values()) == {1} and len(model.asked) == 10
    assert set(model.looked.values()) == {1} and len(model.looked) == 8
    assert result.usage.requests == 10


class Breaking(ScriptedProvider):
    """A model of which the first attempt at every answer breaks after a few words, which are paid for."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        broken = Attempt(1, "scripted", request.model)
        yield ModelDelta(attempt=broken)
        yield ModelDelta(text="some words that come to nothing")
        yield ModelDelta(attempt=replace(broken, outcome="failed", error=ConnectionLost("broke")))
        async with contextlib.aclosing(super().stream(request)) as answer:
            async for delta in answer:
                yield delta


@pytest.mark.parametrize("limits", [Limits(), Limits(usd=1_000.0)])
async def test_lost_attempts_are_paid_for_once_and_not_forgotten(tmp_path: Path, limits: Limits) -> None:
    """What attempts had cost that broke is in the usage and the cost of the task and of the run, however often it was
    interrupted, as if it had never been."""
    spent: list[Usage] = []
    for directory, stops in (("undisturbed", ()), ("interrupted", ("look go-0", "look go-2", "look again-3"))):
        (tmp_path / directory).mkdir()
        model = Model()
        options = {
            "provider": Breaking(model.answer),
            "prices": {"scripted:*": Price(1_000, 1_000)},
            "limits": limits,
        }
        for held in stops:
            await model.run(tmp_path / directory, TASKS, held, **options)
        result = await model.run(tmp_path / directory, TASKS, None, **options)
        assert result.usage == result.value[0].usage + result.value[1].usage
        assert result.cost == pytest.approx(result.usage.total_tokens / 1_000)
        spent.append(result.usage)
    for usage in spent:  # of the input the estimates may differ: they learn from the answers that came before
        assert usage.requests == 20 and usage.estimated_tokens > 500
    assert spent[0].output_tokens == spent[1].output_tokens


async def test_a_repaired_answer_is_not_asked_for_again(tmp_path: Path) -> None:
    """An answer that was no JSON is recorded before it is sent back."""
    model = Model()
    said: Counter[str] = Counter()

    async def answer(request: ModelRequest) -> str:
        what = "repair" if "not valid JSON" in request.messages[-1].text else "first"
        await model.hold(what)
        said[what] += 1
        return '{"a": 1}' if what == "repair" else "no json"

    model.answer = answer  # type: ignore[method-assign]
    text = '(defatom ask (params (q string)) (instructions "go") (output_format "json")) (get-field (ask (q "x")) \'parsedContent)'
    await model.run(tmp_path, text, "repair")
    assert (await model.run(tmp_path, text, None)).value == {"a": 1}
    assert said == {"first": 1, "repair": 1}


async def test_a_task_begins_with_the_files_it_began_with(tmp_path: Path) -> None:
    """What the opening held when the first turn was taken stays, although the file is another now."""
    (tmp_path / "a.txt").write_text("OLD TEXT")
    text = LOOP.replace("(tools (look))", '(tools (look)) (file_paths "a.txt")').replace(
        '(content (work (q "again")))', "1"
    )
    model = Model()
    reached: list[ModelRequest] = []

    async def looked(at: str) -> str:
        """Look at something."""
        reached.append(model.requests[-1])
        if len(reached) == 2:
            model.reached.set()
            await asyncio.Event().wait()
        return "<seen>"

    looked.__name__ = "look"
    await model.run(tmp_path, text, "never", tools=[looked])
    (tmp_path / "a.txt").write_text("NEW TEXT")
    await model.run(tmp_path, text, None, tools=[looked])
    shown = ["\n".join(m.text for m in request.messages) for request in model.requests]
    assert all("OLD TEXT" in each and "NEW TEXT" not in each for each in shown) and len(shown) == 5


async def test_a_task_that_a_tool_runs_has_a_record(tmp_path: Path) -> None:
    """A tool's own tasks, several at once, are not paid for again when the tool is carried out anew; totals are exact."""
    model = Model()
    calls: Counter[str] = Counter()

    async def answer(request: ModelRequest) -> str:
        calls[request.messages[-1].text] += 1
        return f"re {request.messages[-1].text} {len(request.messages)}"

    model.answer = answer  # type: ignore[method-assign]
    flows: list[AgentFlow] = []

    async def both(ctx: CallContext) -> str:
        """Run two tasks."""
        task = flows[-1].task_system.execute_task
        results = await asyncio.gather(*[task("atomic", "asking", {"q": each}) for each in ("x", "y")])
        await model.hold("tool")
        return " + ".join(result.content for result in results)

    template = {"name": "ask", "subtype": "asking", "params": "q", "instructions": "{{q}}"}
    values: list[Any] = []
    for held in ("tool", None):
        model.held = held
        model.reached.clear()
        async with model.flow(tmp_path, tools=[both]) as flow:
            flows.append(flow)
            flow.task_system.register_template(template)
            handle = await flow.start('(list (content (both)) (content (ask (q "after"))))', run_id="r")
            if held:
                await model.reach(handle)
            else:
                values.append(await handle.result())
    assert calls == {"x": 1, "y": 1, "after": 1} and values[0].usage.requests == 3
    assert values[0].value[0] == "re x 1 + re y 1"


async def test_a_program_that_was_written_is_not_written_again(tmp_path: Path) -> None:
    """``solve``: the model's program is recorded, runs again, and its effects answer."""
    model = Model()
    asked: list[str] = []

    async def answer(request: ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        right = '(list (content (look (at "a"))) (content (look (at "b"))))'
        return f"```\n{'(undefined-name)' if len(asked) == 1 else right}\n```"

    model.answer = answer  # type: ignore[method-assign]
    text = '(value-of (solve "it" (allow look)))'
    await model.run(tmp_path, text, "look b")
    count = len(asked)
    assert (await model.run(tmp_path, text, None)).value == ["<a>", "<b>"]
    assert len(asked) == count and model.looked == {"a": 1, "b": 1}


async def test_events_of_replayed_steps(tmp_path: Path) -> None:
    """Replayed answers and tool results are events of the slice in which they were replayed; no model call starts."""
    model = Model()
    await model.run(tmp_path, LOOP, "go-3")
    events: list[Event] = []
    model.held = None
    async with model.flow(tmp_path) as flow:
        flow.subscribe(events.append)
        await (await flow.start(LOOP, run_id="r")).result()
    kinds = [(each.kind, each.name) for each in events if isinstance(each, EffectReplayed)]
    assert kinds == [("model", ""), ("tool", "look")] * 3
    assert len([each for each in events if isinstance(each, ModelStarted)]) == 7
    assert not [each for each in events if isinstance(each, Warning)]
    paths = [each.path for each in events if isinstance(each, EffectReplayed)]
    assert len(set(paths)) == 6
