"""Ports of examples about approvals, guardrails and hooks: who decides about a call, what a no says, and what stands around a call."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agentflow import (
    AgentFlow,
    ApprovalRequest,
    Approved,
    CallContext,
    Denied,
    ModelRequest,
    ModelResponse,
    Retry,
    TaskResult,
    ToolCall,
    tool,
)
from agentflow.errors import AgentflowError
from agentflow.events import WaitStarted
from agentflow.testing import Script
from tests.ports.replies import both, calls, told

RunTool = Callable[[ToolCall], Awaitable[TaskResult]]
RunModel = Callable[[ModelRequest], Awaitable[ModelResponse]]


# -- who decides ----------------------------------------------------------------------------------------------------


async def test_an_approval_that_is_stored_and_resumed_elsewhere(script: Script, tmp_path: Path) -> None:
    """OpenAI Agents SDK, human_in_the_loop.py: only calls for Oakland wait, the state is stored, and another process asks and goes on."""

    def weather_app() -> AgentFlow:
        flow = AgentFlow(durable=f"sqlite:///{tmp_path}/runs.db")

        @tool
        async def weather(city: str) -> str:
            """The weather of a city."""
            return f"sunny in {city}"

        async def for_oakland(arguments: dict[str, Any], ctx: CallContext) -> bool:
            return "Oakland" in arguments["city"]

        @tool(approval=for_oakland)
        async def temperature(city: str) -> str:
            """The temperature in a city."""
            return f"20 degrees in {city}"

        @flow.task(name="assist", tools=[weather, temperature])
        async def assist(question: str) -> str:
            """{{question}}"""

        return flow

    places = ("Oakland", "Berkeley")
    script.on("assist", both(*[calls(name, city=city) for name in ("weather", "temperature") for city in places]), told)
    program = '(value-of (assist (question "How is it in Oakland and Berkeley?")))'
    async with weather_app() as flow:
        with script.answers(flow):
            run = await flow.start(program, run_id="weather-1")
            assert await run.wait() == "waiting"
    async with weather_app() as flow:
        with script.answers(flow):
            (question,) = await flow.questions("weather-1")
            assert "temperature" in question.question and "Oakland" in question.question
            await flow.send("weather-1", question.key, True)
            result = await (await flow.resume("weather-1")).result()
    assert result.value.splitlines() == [
        "sunny in Oakland",
        "sunny in Berkeley",
        "20 degrees in Oakland",
        "20 degrees in Berkeley",
    ]


async def test_a_call_is_asked_about_by_its_arguments(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, ``needs_approval=function``; Pydantic AI, ``raise ApprovalRequired`` for ``.env``: other files are written unasked."""
    written: dict[str, str] = {}

    @tool(approval=lambda arguments, ctx: arguments["path"] in {".env"})
    def update_file(path: str, content: str) -> str:
        """Write a file."""
        written[path] = content
        return f"{path} updated"

    @tool(approval=True)
    def delete_file(path: str) -> str:
        """Delete a file."""
        raise AssertionError("nobody agreed to that")

    @flow.task(tools=[update_file, delete_file])
    async def edit(wish: str) -> str:
        """{{wish}}"""

    def approve(request: ApprovalRequest) -> bool | Denied:
        return True if request.tool == "update_file" else Denied("deleting files is not allowed")

    script.on(
        "edit",
        both(
            calls("delete_file", path="__init__.py"),
            calls("update_file", path="README.md", content="Hello"),
            calls("update_file", path=".env", content=""),
        ),
        told,
    )
    said = (await flow.run(edit("Delete, write and clear."), approve=approve)).value.splitlines()
    assert "deleting files is not allowed" in said[0] and said[1:] == ["README.md updated", ".env updated"]
    assert written == {"README.md": "Hello", ".env": ""}


async def test_a_rejection_whose_reason_the_model_reads(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, human_in_the_loop_custom_rejection.py: a no says something of its own, and the model answers with it; a no
    without a reason has the text that the application gives to all of them."""

    @tool(approval=True)
    async def publish(title: str) -> str:
        """Publish an announcement."""
        return f"published {title}"

    @flow.task(tools=[publish], tool_choice="publish")
    async def operate(wish: str) -> str:
        """{{wish}}"""

    def reviewer(answer: Any) -> Callable[[ApprovalRequest], Any]:
        return lambda request: answer or Denied("publishing was cancelled")

    script.on("operate", lambda request: told(request) or calls("publish", title="Maintenance"))
    wish = "Announce the maintenance."
    denied = await flow.run(operate(wish), approve=reviewer(Denied("the reviewer found a mistake")))
    cancelled = await flow.run(operate(wish), approve=reviewer(None))
    agreed = await flow.run(operate(wish), approve=reviewer(True))
    assert "did not run: the reviewer found a mistake" in denied.value
    assert "did not run: publishing was cancelled" in cancelled.value
    assert agreed.value == "published Maintenance"


@pytest.mark.parametrize("answer", ["too much money", ("yes", "looks fine"), {"approved": True, "reason": "fine"}, 1])
async def test_an_answer_that_only_looks_like_a_yes(flow: AgentFlow, script: Script, answer: Any) -> None:
    """An approver that gives a reason, as those of the Agents SDK may: a text is a no with that reason, and no truthy value is a yes."""
    paid: list[int] = []

    @tool(approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    script.on("ask", calls("pay", amount=500), told)
    said = await flow.run(flow.ask("Pay.", tools=[pay]), approve=lambda request: answer)
    assert "did not run" in said.value and not paid
    assert not isinstance(answer, str) or answer in said.value


# -- a person edits or answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (True, "a stay at the McKittrick hotel"),
        (Approved(arguments={"hotel": "the Plaza"}), "a stay at the Plaza"),
        (Denied("the customer has a hotel already"), "the customer has a hotel already"),
    ],
)
async def test_a_person_edits_a_call_or_refuses_it(flow: AgentFlow, script: Script, answer: Any, expected: str) -> None:
    """LangGraph, review tool calls, ``interrupt`` with accept, edit and response: a person lets the call run, with other arguments, or not."""

    @tool(approval=True)
    def book_hotel(hotel: str) -> str:
        """Book a hotel."""
        return f"booked a stay at {hotel}"

    script.on("ask", calls("book_hotel", hotel="the McKittrick hotel"), told)
    async with flow.stream(flow.ask("Book the McKittrick.", tools=[book_hotel]), approval_ttl=60) as run:
        async for event in run.of(WaitStarted):
            assert event.call is not None and event.call["arguments"] == {"hotel": "the McKittrick hotel"}
            await flow.send(event.run_id, event.key, answer)
        assert expected in await run.value()


async def test_any_tool_asks_a_person_who_may_answer_in_its_place(flow: AgentFlow, script: Script) -> None:
    """LangGraph, ``add_human_in_the_loop(tool)``: a wrapper around any tool has a person accept, edit or answer in place of the call."""

    async def reviewed(call: ToolCall, run: RunTool, ctx: CallContext) -> TaskResult:
        answer = await ctx.ask_human(f"{call.name} {json.dumps(dict(call.arguments))}?")
        if answer["type"] == "response":
            return TaskResult.complete(answer["args"])
        return await run(replace(call, arguments=answer["args"]) if answer["type"] == "edit" else call)

    @tool(around=[reviewed])
    def book_hotel(hotel: str) -> str:
        """Book a hotel."""
        return f"booked {hotel}"

    answers = [
        {"type": "accept"},
        {"type": "edit", "args": {"hotel": "Plaza"}},
        {"type": "response", "args": "I have one already."},
    ]
    script.on("ask", lambda request: told(request) or calls("book_hotel", hotel="Ritz"))
    said: list[str] = []
    for answer in answers:
        async with flow.stream(flow.ask("Book.", tools=[book_hotel]), approval_ttl=60) as run:
            async for event in run.of(WaitStarted):
                await flow.send(event.run_id, event.key, answer)
            said.append(await run.value())
    assert said == ["booked Ritz", "booked Plaza", "I have one already."]


# -- guardrails of tools --------------------------------------------------------------------------------------------


async def test_guardrails_of_tools_reject_replace_and_halt(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, basic/tool_guardrails.py: one guard rejects a call by its arguments, one replaces what a tool gave, one halts."""

    async def no_sensitive_words(call: ToolCall, run: RunTool, ctx: CallContext) -> TaskResult:
        for word in ("password", "acme"):
            if word in str(dict(call.arguments)).lower():
                raise Denied(f"the call has the word '{word}' in it")
        return await run(call)

    async def no_phone_numbers(call: ToolCall, run: RunTool, ctx: CallContext) -> TaskResult:
        result = await run(call)
        return TaskResult.complete("not shown: it has a phone number") if "555-1234" in result.content else result

    class SensitiveData(Exception):
        pass

    async def no_numbers_of_persons(call: ToolCall, run: RunTool, ctx: CallContext) -> TaskResult:
        result = await run(call)
        if "ssn" in result.content:
            raise SensitiveData(call.name)
        return result

    @tool(around=[no_sensitive_words])
    def send_email(to: str, body: str) -> str:
        """Send an email."""
        return f"sent to {to}"

    @tool(around=[no_numbers_of_persons])
    def user_data(user: str) -> dict[str, str]:
        """The data of a user."""
        return {"user": user, "ssn": "123-45-6789"}

    @tool(around=[no_phone_numbers])
    def contact(user: str) -> dict[str, str]:
        """How to reach a user."""
        return {"user": user, "phone": "555-1234"}

    @flow.task(tools=[send_email, user_data, contact])
    async def secure(wish: str) -> str:
        """{{wish}}"""

    script.on(
        "secure",
        *[calls("send_email", to="john", body="Welcome"), told],
        *[calls("send_email", to="john", body="Introducing ACME"), told],
        *[calls("contact", user="john"), told],
        calls("user_data", user="john"),
    )
    assert await secure("Welcome John.") == "sent to john"
    assert "the word 'acme'" in await secure("Introduce ACME.")
    assert await secure("How do I reach him?") == "not shown: it has a phone number"
    with pytest.raises(AgentflowError) as error:
        await secure("Who is he?")
    assert isinstance(error.value.__cause__, SensitiveData)


# -- hooks around tools and models ----------------------------------------------------------------------------------


@dataclass
class Rolls:
    """Dependencies of the dice port: what has been rolled, and what the callbacks saw."""

    rolled: list[int] = field(default_factory=list[int])
    seen: list[str] = field(default_factory=list[str])


async def test_callbacks_before_and_after_models_and_tools(flow: AgentFlow, script: Script) -> None:
    """Google ADK, samples/callbacks: lists of callbacks around models and tools, of which one changes a tool's answer; a model's callback
    answers in place of the model; and a callback after the agent replaces its answer."""

    def roll_die(sides: int, ctx: CallContext[Rolls]) -> int:
        """Roll a die."""
        ctx.deps.rolled.append(sides)
        return sides

    def noting(name: str) -> Callable[..., Awaitable[TaskResult]]:
        async def callback(call: ToolCall, run: RunTool, ctx: CallContext[Rolls]) -> TaskResult:
            ctx.deps.seen.append(f"before {call.name} {name}")
            result = await run(call)
            ctx.deps.seen.append(f"after {call.name} {name}")
            return result

        return callback

    async def with_test(call: ToolCall, run: RunTool, ctx: CallContext[Rolls]) -> TaskResult:
        result = await run(call)
        return TaskResult.complete(f"tested: {result.content}")

    async def around_model(request: ModelRequest, run: RunModel, ctx: CallContext[Rolls]) -> ModelResponse:
        ctx.deps.seen.append("before model")
        if "forbidden" in request.messages[0].text:
            return ModelResponse.of_text("I cannot answer that.")
        response = await run(request)
        ctx.deps.seen.append("after model")
        return response

    @flow.task(
        tools=[roll_die],
        around_tool=[noting("1"), with_test, noting("2")],
        around_model=[around_model],
        check=lambda text, ctx: f"{text} (checked)",
    )
    async def dice(wish: str) -> str:
        """{{wish}}"""

    script.on("dice", calls("roll_die", sides=6), told)
    deps = Rolls()
    assert (await flow.run(dice("Roll."), deps=deps)).value == "tested: 6 (checked)"
    around = ["before model", "after model"]
    assert deps.seen == [
        *around,
        "before roll_die 1",
        "before roll_die 2",
        "after roll_die 2",
        "after roll_die 1",
        *around,
    ]
    refused = await flow.run(dice("Something forbidden"), deps=deps)
    assert refused.value == "I cannot answer that. (checked)" and refused.usage.requests == 0


async def test_hooks_that_change_refuse_retry_and_mend(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, hooks.md: a hook for tools of some names, a wrap hook around a model, ``ModelRetry`` in an after-model hook, and an error
    hook that turns a failure of one kind into what the model should do."""
    log: list[str] = []

    class UpstreamError(Exception):
        def __init__(self, status: int) -> None:
            super().__init__(f"status {status}")
            self.status = status

    async def audit(call: ToolCall, run: RunTool, ctx: CallContext) -> TaskResult:
        if call.name == "send_email":
            log.append(f"audit: {call.name}")
        return await run(call)

    async def converted(call: ToolCall, run: RunTool, ctx: CallContext) -> TaskResult:
        result = await run(call)
        if isinstance(result.error, UpstreamError):
            if result.error.status >= 500:
                raise Retry("the service is busy: call again")
            return TaskResult.complete("there is no such thing")
        return result

    async def no_placeholder(request: ModelRequest, run: RunModel, ctx: CallContext) -> ModelResponse:
        log.append("before")
        response = await run(request)
        log.append("after")
        return response

    def real(text: str, ctx: CallContext) -> str:
        if "PLACEHOLDER" in text:
            raise Retry("the answer has placeholder text: give real data")
        return text

    statuses = iter([503, 404])

    def fetch(page: str) -> str:
        """Fetch something."""
        raise UpstreamError(next(statuses))

    def send_email(to: str) -> str:
        """Send an email."""
        return f"sent to {to}"

    @flow.task(
        tools=[fetch, send_email], around_tool=[audit, converted], around_model=[no_placeholder], check=real, rounds=1
    )
    async def assist(wish: str) -> str:
        """{{wish}}"""

    script.on(
        "assist",
        both(calls("fetch", page="x"), calls("send_email", to="ada")),
        calls("fetch", page="x"),
        "PLACEHOLDER",
        "Ada knows.",
    )
    assert await assist("Fetch it and tell Ada.") == "Ada knows."
    requests = script.requests("assist")
    assert told(requests[1]) == "the service is busy: call again\nsent to ada"
    assert told(requests[2]) == "there is no such thing"
    assert requests[3].messages[-1].text == "the answer has placeholder text: give real data"
    assert log == ["before", "after", "audit: send_email", *["before", "after"] * 3]


async def test_what_a_model_is_sent_is_rewritten(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, ``WrapperModel`` and history processors: names are taken out of what the model is sent and put back into what it says."""

    async def without_names(request: ModelRequest, run: RunModel, ctx: CallContext[dict[str, str]]) -> ModelResponse:
        messages = request.messages
        for name, stand_in in ctx.deps.items():
            messages = tuple(
                replace(
                    message,
                    parts=tuple(replace(part, text=part.text.replace(name, stand_in)) for part in message.parts),
                )
                for message in messages
            )
        response = await run(replace(request, messages=messages[-3:]))
        text = response.text
        for name, stand_in in ctx.deps.items():
            text = text.replace(stand_in, name)
        return response.with_text(text)

    script.on("ask", "Person 1 lives in Oslo.")
    asked = flow.ask("Where does Ada live?", around_model=[without_names])
    assert (await flow.run(asked, deps={"Ada": "Person 1"})).value == "Ada lives in Oslo."
    assert script.requests("ask")[0].messages[0].text == "Where does Person 1 live?"
