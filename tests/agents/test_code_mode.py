"""Code mode: a model runs programs that call the tools, as texts of a model are run everywhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import (
    AgentFlow,
    ApprovalRequest,
    CallContext,
    ConfigurationError,
    Denied,
    LimitExceeded,
    Limits,
    ModelRequest,
    Provenance,
    ScriptedProvider,
    Sink,
    ToolCall,
    code,
    tool,
)
from agentflow.core.data.messages import ToolResultPart
from agentflow.events import Event, ToolStarted


class Order(BaseModel):
    id: int
    total: float


@tool(read_only=True)
async def orders(customer: str, limit: int = 3) -> list[Order]:
    """The orders of a customer."""
    return [Order(id=n, total=n * 10) for n in range(limit)]


@tool(read_only=True, source="web")
async def fetch(path: str) -> str:
    """Read a page."""
    return f"page {path}"


def program(text: str) -> dict[str, Any]:
    """A reply that runs a program."""
    return {"tool_calls": [{"name": "run_program", "arguments": {"program": text}}]}


def read(request: ModelRequest) -> ToolResultPart:
    """The result in the last message of a request."""
    (part,) = request.messages[-1].parts
    assert isinstance(part, ToolResultPart)
    return part


async def results(flow_tools: list[Any], *programs: str, **options: Any) -> list[ToolResultPart]:
    """The results that a model reads for its programs."""
    model = ScriptedProvider([*map(program, programs), "done"])
    async with AgentFlow(provider=model, tools=flow_tools, **options) as flow:
        assert await flow.ask("Go.", tools=[code(flow.tools)]) == "done"
    return [read(request) for request in model.requests[1:]]


async def test_a_program_calls_tools_and_the_model_reads_its_value() -> None:
    """One tool is offered; its description has the usage of the others; the value of the program alone is the result."""
    model = ScriptedProvider([program("sum([o.total for o in orders(customer='ada')])"), "30"])
    async with AgentFlow(provider=model, tools=[orders, fetch]) as flow:
        assert await flow.ask("How much?", tools=[code(flow.tools)]) == "30"
    first, second = model.requests
    (spec,) = first.tools
    assert spec.name == "run_program" and list(spec.input_schema["properties"]) == ["program"]
    assert (
        "orders(customer: str, limit: int = ...) -> list[{id: int, total: float}] tool: The orders of"
        in spec.description
    )
    assert read(second).text == "30.0" and not read(second).is_error


async def test_a_fence_around_the_program_is_no_fault() -> None:
    """Models put code into blocks, also where only code is asked for."""
    (result,) = await results([fetch], "```python\nfetch(path='a')\n```")
    assert result.text == "page a"


async def test_programs_may_be_s_expressions() -> None:
    """``surface`` is the language of the programs and of the description."""
    model = ScriptedProvider([program('(string-append (value-of (fetch (path "a"))) "!")'), "done"])
    async with AgentFlow(provider=model, tools=[fetch]) as flow:
        await flow.ask("Go.", tools=[code([fetch], surface="sexp")])
    assert read(model.requests[1]).text == "page a!"
    assert "(fetch (path string)) -> str tool" in model.requests[0].tools[0].description


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fetch(pat='a')", "call/unknown-parameter"),
        ("delete()", "name/not-granted"),
        ("import os", "hint"),
        ("(", "error["),
        ("raise ValueError('no page')", "no page"),
        ("while True:\n    pass", "steps"),
        ("eval_program(\"read_diary()\", allow=['read_diary'])", "name/not-granted"),
    ],
)
async def test_the_model_reads_the_error_and_writes_another_program(text: str, said: str) -> None:
    """Errors of the check and of the run are the result of the call, with their code and span; nothing else ends."""

    async def read_diary() -> str:
        """Read the diary."""
        raise NotImplementedError

    model = ScriptedProvider([program(text), program("fetch(path='b')"), "done"])
    async with AgentFlow(provider=model, tools=[fetch, read_diary]) as flow:
        assert await flow.ask("Go.", tools=[code([fetch], max_steps=50_000)]) == "done"
    faulty, right = map(read, model.requests[1:])
    assert faulty.is_error and said in faulty.text and right.text == "page b"


async def test_nothing_runs_of_a_program_with_an_error() -> None:
    """The whole text is checked first."""
    ran: list[str] = []

    async def note(text: str) -> str:
        """Note a text."""
        ran.append(text)
        return text

    (result,) = await results([note], "note(text='a')\nnote(txt='b')")
    assert result.is_error and "did not run" in result.text and not ran


async def test_a_tool_that_was_not_given_cannot_be_called() -> None:
    """Neither by its name, nor by a task or program that the program defines."""
    model = ScriptedProvider([program("fetch(path='a')"), "done"])
    async with AgentFlow(provider=model, tools=[orders, fetch]) as flow:
        await flow.ask("Go.", tools=[code([orders])])
    assert "name/not-granted" in read(model.requests[1]).text


async def test_a_narrowed_run_narrows_the_names() -> None:
    """``allow=`` of the run holds for names and for ``flow.tools``; an object that the task lists is its own."""
    for listed, answer in (("names", "name/not-granted"), ("objects", "page a")):
        model = ScriptedProvider([program("fetch(path='a')"), "done"])
        async with AgentFlow(provider=model, tools=[orders, fetch]) as flow:

            @flow.task(tools=[code(["orders", "fetch"] if listed == "names" else [orders, fetch])])
            async def agent() -> str:
                """Go."""
                raise NotImplementedError

            await flow.run("(agent)", allow=["agent", "orders"])
        assert answer in read(model.requests[1]).text


async def test_an_approval_asks_once_for_the_program() -> None:
    """The approver sees the program and all that it can reach; a no is read by the model, with the reason."""
    asked: list[ApprovalRequest] = []

    @tool(approval=True)
    async def pay(eur: int) -> str:
        """Pay money."""
        return f"paid {eur}"

    def approve(request: ApprovalRequest) -> Any:
        asked.append(request)
        return True if len(asked) == 1 else Denied("enough")

    twice = "[pay(eur=1), pay(eur=2)]"
    yes, no = await results([pay], twice, twice, approve=approve)
    assert json.loads(yes.text) == ["paid 1", "paid 2"], yes.text
    assert no.is_error and "enough" in no.text
    assert [request.tool for request in asked] == ["program", "program"]
    assert asked[0].manifest is not None and asked[0].manifest.covers == ("pay",)


async def test_the_middleware_of_the_task_sees_the_calls_of_the_program() -> None:
    """A guardrail around the task's tools holds for programs of its model, too."""
    seen: list[tuple[str, dict[str, Any]]] = []

    async def careful(call: ToolCall, run: Any, ctx: CallContext) -> Any:
        seen.append((call.name, call.arguments))
        if call.arguments.get("path") == "secret":
            raise Denied("not this one")
        return await run(call)

    model = ScriptedProvider([program("[fetch(path='a'), fetch(path='secret')]"), "done"])
    async with AgentFlow(provider=model, tools=[fetch]) as flow:
        await flow.ask("Go.", tools=[code(flow.tools)], around_tool=[careful])
    assert [name for name, _ in seen] == ["run_program", "fetch", "fetch"]
    assert "not this one" in read(model.requests[1]).text


async def test_deferred_tools_are_found_and_called() -> None:
    """They are not in the description: ``search_tools`` gives their usage, and programs may call them."""

    @tool(defer_loading=True)
    async def send_invoice(to: str) -> str:
        """Send an invoice by mail."""
        return f"sent to {to}"

    find = {"tool_calls": [{"name": "search_tools", "arguments": {"query": "mail an invoice"}}]}
    model = ScriptedProvider([find, program("send_invoice(to='ada')"), "done"])
    async with AgentFlow(provider=model, tools=[orders, send_invoice]) as flow:
        await flow.ask("Go.", tools=[code(flow.tools)])
    first, second, third = model.requests
    assert [spec.name for spec in first.tools] == ["run_program", "search_tools"]
    assert "send_invoice" not in first.tools[0].description and "1 more" in first.tools[0].description
    (hit,) = json.loads(read(second).text)
    assert hit["in_programs"].startswith("send_invoice(to: str) -> str tool:")
    assert read(third).text == "sent to ada" and third.tools == first.tools


async def test_tasks_and_workflows_are_called_as_well() -> None:
    """Within the run: their model calls count against its limits, and their events are below the program's."""
    seen: list[Event] = []
    model = ScriptedProvider(
        [program("[judge(text='a'), both(text='b')]"), "one", "two", "done", program("judge(text='a')"), "x"]
    )
    async with AgentFlow(provider=model) as flow:
        flow.subscribe(seen.append)

        @flow.task
        async def judge(text: str) -> str:
            """Judge {{text}}."""
            raise NotImplementedError

        @flow.workflow
        async def both(text: str) -> str:
            return await judge(text)

        assert await flow.ask("Go.", tools=[code([judge, both])]) == "done"
        assert json.loads(read(model.requests[3]).text) == ["one", "two"]
        with pytest.raises(LimitExceeded):
            await flow.run(flow.ask("Go.", tools=[code([judge])]), limits=Limits(model_calls=1))
    outer = next(event for event in seen if isinstance(event, ToolStarted) and event.name == "run_program")
    inner = [event for event in seen if event.type == "task_started" and event.path.startswith(outer.path + "/")]
    assert len(inner) == 2


async def test_a_policy_follows_values_through_a_program() -> None:
    """What a program read on the web does not reach a guarded argument."""

    @tool(sinks={"to": "user"})
    async def send(to: str) -> str:
        """Send something."""
        raise NotImplementedError

    policy = Provenance(rules=[Sink("send", "to", allow=["user"])])
    (result,) = await results([fetch, send], "send(to=fetch(path='a'))", provenance=policy)
    assert result.is_error and "web" in result.text


async def test_a_stopped_program_does_not_call_again(tmp_path: Path) -> None:
    """In a durable run the calls of a program are recorded: after an interruption those that had answered are not made again."""
    ran: list[int] = []
    stop = asyncio.Event()

    async def step(n: int) -> int:
        """Take a step."""
        ran.append(n)
        if n == 2 and not stop.is_set():
            stop.set()
            await asyncio.sleep(60)
        return n

    def replies(request: ModelRequest) -> Any:
        return program("[step(n=n) for n in range(4)]") if len(request.messages) == 1 else read(request).text

    async def in_flow(work: Any) -> Any:
        model = ScriptedProvider(replies)
        async with AgentFlow(provider=model, tools=[step], durable=f"sqlite:///{tmp_path}/runs.db") as flow:

            @flow.task(tools=[code([step])])
            async def agent() -> str:
                """Go."""
                raise NotImplementedError

            return await work(flow, agent), len(model.requests)

    async def start(flow: AgentFlow, agent: Any) -> None:
        await flow.start(agent(), run_id="r")
        await asyncio.wait_for(stop.wait(), 60)

    async def resume(flow: AgentFlow, agent: Any) -> Any:
        return await (await flow.resume("r")).result()

    await in_flow(start)
    result, asked = await in_flow(resume)
    assert json.loads(result.value) == [0, 1, 2, 3] and asked == 1
    assert ran == [0, 1, 2, 2, 3]


async def test_an_approval_of_a_program_may_come_later(tmp_path: Path) -> None:
    """A durable run waits for it outside of memory; after the yes the program runs, with the same text."""

    @tool(approval=True)
    async def pay(eur: int) -> str:
        """Pay money."""
        return f"paid {eur}"

    def replies(request: ModelRequest) -> Any:
        return program("[pay(eur=1), pay(eur=2)]") if len(request.messages) == 1 else read(request).text

    async def in_flow(work: Any) -> Any:
        model = ScriptedProvider(replies)
        async with AgentFlow(provider=model, tools=[pay], durable=f"sqlite:///{tmp_path}/runs.db") as flow:

            @flow.task(tools=[code([pay])])
            async def agent() -> str:
                """Go."""
                raise NotImplementedError

            return await work(flow, agent)

    async def start(flow: AgentFlow, agent: Any) -> None:
        await flow.start(agent(), run_id="r")
        while not await flow.questions("r"):
            await asyncio.sleep(0.01)

    async def answer(flow: AgentFlow, agent: Any) -> Any:
        (question,) = await flow.questions("r")
        assert question.reason == "approval" and "pay(eur=2)" in question.question
        await flow.send("r", question.key, True)
        return await (await flow.resume("r")).result()

    await in_flow(start)
    assert json.loads((await in_flow(answer)).value) == ["paid 1", "paid 2"]


# -- what is refused ----------------------------------------------------------------------------------------------


async def local(n: int) -> str:
    """A function that the flow does not have."""
    raise NotImplementedError


@pytest.mark.parametrize(
    ("tools", "hint"),
    [
        (lambda: [code([local])], "AgentFlow(tools=[local])"),
        (lambda: code([fetch]), "tools=[code("),
        (lambda: [code(fetch)], "tools=["),
        (lambda: [code([fetch], surface="py")], "surface='python'"),  # type: ignore[arg-type]
        (lambda: [code([fetch], max_steps=0)], "max_steps=1_000_000"),
    ],
)
async def test_wrong_uses_say_what_to_write(tools: Any, hint: str) -> None:
    """The ways in which it is written first, each an error when the task is declared."""
    async with AgentFlow(provider=ScriptedProvider([]), tools=[fetch]) as flow:
        with pytest.raises(ConfigurationError) as caught:
            await flow.ask("Go.", tools=tools())
        assert caught.value.code == "config/option" and hint in str(caught.value.hint)


async def test_two_of_them_are_a_duplicate() -> None:
    """One tool has one name: a list holds one ``code(...)``, of all tools for programs."""
    async with AgentFlow(provider=ScriptedProvider([]), tools=[fetch, orders]) as flow:
        with pytest.raises(ConfigurationError) as caught:
            await flow.ask("Go.", tools=[code([fetch]), code([orders])])
        assert caught.value.code == "tool/duplicate"


async def test_other_tools_stand_beside_it() -> None:
    """A list may offer some tools directly, and others, or the same ones, to programs."""
    model = ScriptedProvider(["done"])
    async with AgentFlow(provider=model, tools=[fetch, orders]) as flow:
        await flow.ask("Go.", tools=[orders, code(flow.tools)])
    assert [spec.name for spec in model.requests[0].tools] == ["orders", "run_program"]
