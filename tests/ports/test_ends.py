"""Ports of examples about how an agent ends: forced tools, tools that end it, an answer by a function, and handoffs to other agents."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, CallContext, Finish, Handoff, Retry, Session, TaskResult, ToolCall, tool
from agentflow.core.data.messages import Message, TextPart
from agentflow.events import TaskStarted, TextDelta
from agentflow.testing import Script
from tests.ports.replies import calls, offered, told
from tests.support.model_server import ModelServer

# -- tools that must be called, and tools that end the agent --------------------------------------------------------


class Weather(BaseModel):
    """What the weather tool gives."""

    city: str
    conditions: str


def get_weather(city: str) -> Weather:
    """Get the weather."""
    return Weather(city=city, conditions="sunny with wind")


@pytest.mark.parametrize("behaviour", ["default", "first_tool", "custom"])
async def test_forcing_the_use_of_a_tool(flow: AgentFlow, script: Script, behaviour: str) -> None:
    """OpenAI Agents SDK, agent_patterns/forcing_tool_use.py: the model has to call a tool; its result goes back, is the answer, or is made
    into the answer by a function of the results."""

    async def described(call: ToolCall, run: Any, ctx: CallContext) -> TaskResult:
        weather = (await run(call)).value()
        raise Finish(f"{weather.city} is {weather.conditions}.")

    options: dict[str, Any] = {
        "default": {"tools": [get_weather]},
        "first_tool": {
            "tools": [tool(ends=True)(functools.partial(get_weather))],
            "tool_choice": "required",
            "output": Weather,
        },
        "custom": {"tools": [get_weather], "tool_choice": "required", "around_tool": [described]},
    }[behaviour]
    expected: dict[str, Any] = {
        "default": "It is sunny.",
        "first_tool": Weather(city="Tokyo", conditions="sunny with wind"),
        "custom": "Tokyo is sunny with wind.",
    }
    script.on("ask", calls("get_weather", city="Tokyo"), "It is sunny.")
    assert await flow.ask("What is the weather in Tokyo?", **options) == expected[behaviour]
    assert script.requests("ask")[0].tool_choice == options.get("tool_choice", "auto")
    assert len(script.requests("ask")) == (2 if behaviour == "default" else 1)


async def test_a_forced_tool_is_forced_once(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, ``ModelSettings(tool_choice=name)`` with ``reset_tool_choice``: after the first call the model is free, and ends."""

    @flow.task(tools=[get_weather], tool_choice="get_weather")
    async def assist(question: str) -> str:
        """{{question}}"""

    script.on("assist", calls("get_weather", city="Oslo"), "Rain.")
    assert await assist("The weather in Oslo?") == "Rain."
    assert [request.tool_choice for request in script.requests("assist")] == ["get_weather", "auto"]


async def test_a_tool_choice_reaches_the_vendor() -> None:
    """OpenAI, ``tool_choice`` in the model settings of the frameworks: the first request says it in the vendor's words, the next is free."""
    replies = [calls("get_weather", city="Oslo"), "Rain."]
    async with ModelServer(replies) as server:
        async with AgentFlow("openai:gpt-5", base_url=server.url, api_key="k") as flow:
            assert await flow.ask("The weather?", tools=[get_weather], tool_choice="get_weather") == "Rain."
    first, second = [request.body for request in server.requests]
    assert first["tool_choice"] == {"type": "function", "name": "get_weather"} and "tool_choice" not in second


async def test_a_tool_ends_the_agent_from_within(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, an exception that ends the run from a tool, as a workaround: the tool itself says that this is the answer."""

    async def look_up(order: int) -> str:
        """Look an order up."""
        if order == 0:
            raise Finish("There is no order, so there is nothing to do.")
        return f"order {order} is on its way"

    @flow.task(tools=[look_up])
    async def support(question: str) -> str:
        """{{question}}"""

    script.on("support", calls("look_up", order=0))
    assert await support("Where is my order?") == "There is no order, so there is nothing to do."


# -- an answer by a function ----------------------------------------------------------------------------------------


class Row(BaseModel):
    """A row of a table."""

    name: str
    country: str


class Failure(BaseModel):
    """When the query cannot be changed so that it works."""

    explanation: str


TABLES = {"capitals": [Row(name="Amsterdam", country="Netherlands"), Row(name="Mexico City", country="Mexico")]}


@tool(ends=True)
def run_sql(query: str) -> list[Row]:
    """Run a query on the database; its rows are the answer."""
    found = re.match(r"SELECT (.+) FROM (\w+)", query)
    if found is None:
        raise Retry(f"unsupported query: '{query}'")
    if found.group(1) != "*":
        raise Retry("only 'SELECT *' is supported")
    if found.group(2) not in TABLES:
        raise Retry(f"there is no table '{found.group(2)}'; there are {', '.join(TABLES)}")
    return TABLES[found.group(2)]


async def test_output_functions(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, output.md, output functions: an agent ends by a function whose value is the answer, or by an answer of another type; a
    router ends by handing over to that agent."""

    @flow.task(system="You run SQL queries.", tools=[run_sql])
    async def sql(query: str) -> list[Row] | Failure:
        """{{query}}"""

    @flow.task(system="You route requests to other agents.", handoffs=[sql])
    async def route(request: str) -> list[Row] | Failure:
        """{{request}}"""

    failure = '{"kind": "Failure", "explanation": "there is no table pets"}'
    script.on("route", *[calls("transfer_to_sql", query="SELECT name FROM capitals")] * 2)
    script.on(
        "sql",
        calls("run_sql", query="SELECT name FROM capitals"),
        calls("run_sql", query="SELECT * FROM capitals"),
        calls("run_sql", query="SELECT * FROM pets"),
        failure,
    )
    assert await route("Select the names of all capitals") == TABLES["capitals"]
    assert told(script.requests("sql")[1]) == "only 'SELECT *' is supported"
    assert await route("Select all pets") == Failure(explanation="there is no table pets")


# -- handoffs -------------------------------------------------------------------------------------------------------


async def test_routing_by_language(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, agent_patterns/routing.py: triage hands over by the language, the answer is streamed, and the agent is kept for
    the next message of the conversation."""

    @flow.task(system="You only speak French.", history=True)
    async def french(message: str) -> str:
        """{{message}}"""

    @flow.task(system="You only speak Spanish.", history=True)
    async def spanish(message: str) -> str:
        """{{message}}"""

    @flow.task(system="Hand over by language.", handoffs=[french, spanish], history=True)
    async def triage(message: str) -> str:
        """{{message}}"""

    agents = {"triage": triage, "french": french, "spanish": spanish}
    session = Session()
    script.on("triage", calls("transfer_to_french", message="Bonsoir ?"))
    script.on("french", "Bonsoir.", "De rien.")
    shown: list[str] = []
    for message in ("How do I say good evening in French?", "Merci !"):
        async with flow.stream(agents[session.agent or "triage"](message), session=session) as run:
            async for delta in run.of(TextDelta):
                shown.append(delta.text)
            await run.value()
    assert "".join(shown) == "Bonsoir.De rien." and session.agent == "french"
    said = [message.text for message in script.requests("french")[1].messages if message.text]
    assert said[0] == "How do I say good evening in French?" and said[-2:] == ["Bonsoir.", "Merci !"]


@dataclass
class Booking:
    """The dependencies of the airline's desk."""

    seat: str | None = None
    confirmation: str | None = None
    flight: str | None = None


async def test_an_airlines_customer_service(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, customer_service/main.py: triage, answers to questions and seats hand over to each other, something happens at a
    handoff, tools share the booking, and the conversation goes on with whoever had it last."""

    @tool(name="faq_lookup", description="Look up frequently asked questions.")
    async def faq(question: str) -> str:
        """Answers to questions."""
        return "One bag, under 50 pounds." if "bag" in question.lower() else "I do not know."

    async def update_seat(confirmation: str, seat: str, ctx: CallContext[Booking]) -> str:
        """Update the seat of a booking.

        Args:
            confirmation: the confirmation number
            seat: the new seat
        """
        assert ctx.deps.flight is not None, "the handoff sets the flight"
        ctx.deps.confirmation, ctx.deps.seat = confirmation, seat
        return f"seat {seat} on {ctx.deps.flight}"

    async def to_seats(ctx: CallContext[Booking]) -> Handoff:
        """Hand over to the agent that can change seats."""
        ctx.deps.flight = "FLT-123"
        return Handoff("seats", {"message": "The customer wants another seat."})

    @flow.task(system="You answer questions.", tools=[faq], handoffs=["triage"], history=True)
    async def questions(message: str) -> str:
        """{{message}}"""

    @flow.task(system="You change seats.", tools=[update_seat], handoffs=["triage"], history=True)
    async def seats(message: str) -> str:
        """{{message}}"""

    @flow.task(system="You find out who can help.", tools=[to_seats], handoffs=[questions], history=True)
    async def triage(message: str) -> str:
        """{{message}}"""

    agents = {"triage": triage, "questions": questions, "seats": seats}
    session, booking = Session(), Booking()
    script.on("triage", calls("transfer_to_questions", message="bags"), calls("to_seats"))
    script.on(
        "questions", calls("faq_lookup", question="Which bag?"), told, calls("transfer_to_triage", message="a seat")
    )
    script.on("seats", calls("update_seat", confirmation="ABC", seat="12A"), told, "You are welcome.")
    chat: list[tuple[str | None, str]] = []
    handed: list[str] = []
    flow.subscribe(lambda event: handed.append(event.name) if isinstance(event, TaskStarted) else None)
    for message in ("How many bags?", "Another seat, please.", "Thanks!"):
        agent = agents[session.agent or "triage"]
        result = await flow.run(agent(message), session=session, deps=booking)
        chat.append((session.agent, result.value))
    assert chat == [
        ("questions", "One bag, under 50 pounds."),
        ("seats", "seat 12A on FLT-123"),
        ("seats", "You are welcome."),
    ]
    assert handed == ["triage", "questions", "questions", "triage", "seats", "seats"]
    assert booking == Booking("12A", "ABC", "FLT-123")


async def test_a_handoff_in_the_middle_of_a_tool_loop(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK and Swarm, ``transfer_to_x`` after other tools: the next agent goes on with the same messages, tool results too,
    with its own tools, and the first is not asked again."""

    async def look_up(order: int) -> str:
        """Look an order up."""
        return f"order {order} was charged twice"

    async def refund(order: int) -> str:
        """Pay an order back."""
        return f"order {order} is paid back"

    @flow.task(tools=[refund])
    async def billing(problem: str) -> str:
        """{{problem}}"""

    @flow.task(tools=[look_up], handoffs=[billing])
    async def triage(message: str) -> str:
        """{{message}}"""

    script.on("triage", calls("look_up", order=7), calls("transfer_to_billing", problem="charged twice"))
    script.on("billing", calls("refund", order=7), told)
    assert await triage("You took my money twice!") == "order 7 is paid back"
    (first, _) = script.requests("billing")
    results = [part.text for message in first.messages for part in message.parts if hasattr(part, "call_id")]
    assert "order 7 was charged twice" in results
    assert offered(first) == ["refund"] and len(script.requests("triage")) == 2


async def test_a_filter_of_the_messages_at_a_handoff(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, handoffs/message_filter.py: the Spanish agent gets the conversation without tool calls and without its first two
    messages."""

    def random_number(most: int) -> int:
        """A random number."""
        return 42

    def without_tools_and_the_first_two(messages: Sequence[Message]) -> Sequence[Message]:
        texts = [
            replace(each, parts=tuple([p for p in each.parts if isinstance(p, TextPart)])) for each in messages[2:]
        ]
        return [each for each in texts if each.parts]

    @flow.task(system="Be concise.", tools=[random_number], history=True)
    async def assist(message: str) -> str:
        """{{message}}"""

    @flow.task(system="You only speak Spanish.", history=True)
    async def spanish(message: str) -> str:
        """{{message}}"""

    @flow.task(handoffs=[Handoff(spanish, keep=without_tools_and_the_first_two)], history=True)
    async def second(message: str) -> str:
        """{{message}}"""

    session = Session()
    script.on("assist", "Hello, Sora.", calls("random_number", most=100), "It is 42.")
    script.on("second", "About 8 million.", calls("transfer_to_spanish", message="¿Dónde vivo?"))
    script.on("spanish", "Vives en Nueva York.")
    for agent, message in [
        (assist, "Hi, I am Sora."),
        (assist, "A random number, please."),
        (second, "I live in New York. How many people does it have?"),
        (second, "Por favor habla en español. ¿Dónde vivo?"),
    ]:
        result = await flow.run(agent(message), session=session)
    assert result.value == "Vives en Nueva York."
    said = [(message.role, message.text) for message in script.requests("spanish")[0].messages]
    assert said == [
        ("user", "A random number, please."),
        ("assistant", "It is 42."),
        ("user", "I live in New York. How many people does it have?"),
        ("assistant", "About 8 million."),
        ("user", "Por favor habla en español. ¿Dónde vivo?\n\n¿Dónde vivo?"),
    ]
