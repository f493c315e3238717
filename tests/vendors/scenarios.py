"""What users do, as scenarios that run over every vendor: loops of tools, conversations, output, media, caches, limits.

Each asserts that the run ended as it was meant; that every request met its vendor's rules is asserted of all of them.
"""

from __future__ import annotations

import asyncio
import enum
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

from agentflow import CallContext, Retry, Session, tool
from agentflow.events import TextDelta
from agentflow.media import DocumentPart, ImagePart, TextPart
from agentflow.providers.fallback import FallbackProvider
from tests.support.vendors import VENDORS
from tests.vendors.world import (
    ONCE,
    PNG,
    ByModel,
    Halting,
    Scenario,
    World,
    broken,
    calls,
    halved,
    look,
    picture,
    silent,
)

SEES = tuple(name for name, vendor in VENDORS.items() if vendor.pictures)
THINKS = tuple(name for name, vendor in VENDORS.items() if vendor.thinks)
REPLAYS = ("openai", "azure", "anthropic", "bedrock", "gemini", "openrouter", "deepseek")
"""Vendors that want back what they thought, within a turn."""


async def tool_loop(world: World) -> None:
    """One call and its result."""
    world.say(calls("Oslo"), "done")
    assert await world.ask(world.flow(), "How?", tools=[look]) == "done"


async def streamed(world: World) -> None:
    """The same, as somebody watches."""
    world.say(calls("Oslo", thinking="hm"), "done")
    flow = world.flow()
    async with flow.stream(flow.ask("How?", tools=[look], system="Be brief.")) as stream:
        assert await stream.value() == "done"


async def parallel_calls(world: World) -> None:
    """Three calls at once, one of which fails; then two more of the same tool."""
    world.say(calls("Oslo", ("broken", {"place": "x"}), "Rome"), calls("Oslo", "Oslo"), "done")
    assert await world.ask(world.flow(), "How?", tools=[look, broken]) == "done"


async def conversation(world: World) -> None:
    """Three questions in one session, with calls in each."""
    flow = world.flow(system="Be brief.")
    for place in ("Oslo", "Rome", "Bern"):
        world.say(calls(place), f"{place} is fine")
        assert await world.ask(flow, f"And {place}?", tools=[look]) == f"{place} is fine"


async def thinking(world: World) -> None:
    """Thinking before calls, twice in a turn, and a conversation that goes on without tools."""
    flow = world.flow()
    world.say(
        calls("Oslo", "Rome", thinking="first"),
        calls("Bern", thinking="then", text="Look again."),
        {"text": "done", "thinking": "last"},
    )
    assert await world.ask(flow, "How?", tools=[look]) == "done"
    if world.first in REPLAYS:
        assert world.thoughts_came_back(), "what the model thought did not come back to it"
    world.say("fine")
    assert await world.ask(flow, "And now?") == "fine"


async def thinking_budget(world: World) -> None:
    """A budget of thinking, without a limit of one's own, over a loop of tools."""
    settings = {"thinking": {"type": "enabled", "budget_tokens": 16_000}}
    world.say(calls("Oslo", thinking="first"), {"text": "done", "thinking": "last"}, "fine")
    flow = world.flow()
    assert await world.ask(flow, "How?", tools=[look], settings=settings) == "done"
    assert await world.ask(flow, "And now?", settings=settings) == "fine"


class Place(BaseModel):
    """A place, with all that is usual."""

    name: str
    kind: Literal["city", "village"] = "city"
    people: Annotated[int, Field(ge=0)]
    rivers: list[str] = []
    mayor: str | None = None


async def output(world: World) -> None:
    """A pydantic model as the answer, with defaults, bounds and options."""
    meant = Place(name="Oslo", people=700_000, rivers=["Akerselva"])
    world.say(meant.model_dump_json())
    assert await world.ask(world.flow(), "Which?", output=Place) == meant


async def output_after_tools(world: World) -> None:
    """The same at the end of a loop of tools, and again in the conversation."""
    meant = Place(name="Oslo", people=700_000)
    flow = world.flow()
    for _ in range(2):
        world.say(calls("Oslo"), meant.model_dump_json())
        assert await world.ask(flow, "Which?", output=Place, tools=[look]) == meant


class Car(BaseModel):
    """A car."""

    kind: Literal["car"]
    seats: int


class Bike(BaseModel):
    """A bike."""

    kind: Literal["bike"]
    gears: int


class Choice(BaseModel):
    """One or the other."""

    vehicle: Annotated[Car | Bike, Field(discriminator="kind")]


class Colour(enum.Enum):
    """Colours."""

    RED = "red"
    BLUE = "blue"


class Loose(BaseModel):
    """What subsets of JSON Schema leave out."""

    words: dict[str, int]
    data: Any
    rest: list[Any]


class Exact(BaseModel):
    """Formats, patterns and bounds."""

    price: Decimal
    day: date
    pair: tuple[int, str]
    tags: set[str]
    short: Annotated[str, Field(max_length=5, pattern=r"^[a-z]+$")]
    colour: Colour


class Tree(BaseModel):
    """A definition that refers to itself."""

    name: str
    children: list[Tree] = []


def _output(kind: Any, text: str) -> Any:
    """An answer of a kind; where the schema that is asked for wraps it, so does the model."""

    def model(asked: Any) -> str:
        properties = ((asked.output or {}).get("schema") or {}).get("properties") or {}
        return f'{{"value": {text}}}' if list(properties) == ["value"] else text

    async def play(world: World) -> None:
        world.vendors.script = model
        value = await world.ask(world.flow(), "Which?", output=kind)
        assert value == TypeAdapter(kind).validate_json(text)

    return play


@tool
async def connect_port(
    port: tuple[str, int], price: Decimal, extra: dict[str, Any] | None = None, anything: Any = None
) -> str:
    """Connect to a port."""
    return "bound"


@tool
async def nothing() -> str:
    """Take no arguments."""
    return "nothing"


UNION = {"type": "object", "properties": {"text": {"type": "string"}, "url": {"type": "string", "format": "uri"}},
         "anyOf": [{"required": ["text"]}, {"required": ["url"]}]}  # fmt: skip
NAMES = {"type": "object", "properties": {"filter[id]": {"type": "string"}, "user name": {"type": ["string", "null"]}, "$top": {"type": "integer"}},
         "required": ["filter[id]"]}  # fmt: skip
OLD = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "definitions": {"A": {"type": "string", "pattern": "\\d+"}},
       "properties": {"a": {"$ref": "#/definitions/A"}, "kind": {"const": "x"}, "number": {"type": "number", "exclusiveMinimum": 0}}}  # fmt: skip


def _registered(name: str, schema: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """A tool of a server of others, with its own schema: the request is taken, and the tool gets what was meant."""

    async def play(world: World) -> None:
        flow = world.flow()
        given: list[dict[str, Any]] = []

        def take(arguments: dict[str, Any]) -> str:
            given.append(arguments)
            return "ok"

        flow.handler.register_tool({"name": name, "description": "Do it.", "input_schema": schema}, take)
        called = {"name": name, "arguments": arguments}

        def model(asked: Any) -> Any:
            if any(step.kind == "result" for step in asked.steps):
                return "done"
            tool_ = next(tool_ for _, tool_ in asked.tools if tool_["name"] != "look")
            renamed = dict(zip(arguments, asked.schema_of(tool_).get("properties") or {}, strict=False))
            return {
                "tool_calls": [
                    {"name": tool_["name"], "arguments": {renamed.get(k, k): v for k, v in called["arguments"].items()}}
                ]
            }

        world.vendors.script = model
        assert await world.ask(flow, "Go", tools=[name, look]) == "done"
        assert given == [arguments]

    return play


async def tool_schemas(world: World) -> None:
    """Tools in Python whose types subsets of JSON Schema leave out."""
    world.say(calls(("connect_port", {"port": ["a", 8], "price": "12.5"}), ("nothing", {})), "done")
    assert await world.ask(world.flow(), "Go", tools=[connect_port, nothing]) == "done"


async def tool_descriptions(world: World) -> None:
    """A description of 3,000 characters, as servers of others write them: the model reads all of it."""
    flow = world.flow()
    flow.handler.register_tool(
        {"name": "long", "description": "word " * 600 + "END", "input_schema": {"type": "object", "properties": {}}},
        lambda arguments: "ok",
    )
    world.say(calls(("long", {})), "done")
    assert await world.ask(flow, "Go", tools=["long"]) == "done"
    assert str(world.vendors.asked[0].body).count("word") == 600 and "END" in str(world.vendors.asked[0].body)


async def broken_arguments(world: World) -> None:
    """Arguments that are not JSON, then right ones; the conversation goes on."""
    flow = world.flow()
    if world.vendor().dialect == "anthropic":
        world.say({"text": "Hm."}, calls("Oslo"), "done")
        assert await world.ask(flow, "Hello") == "Hm."
    else:
        world.say({"tool_calls": [{"name": "look", "arguments": '{"place": "Os'}]}, calls("Oslo"), "done")
    assert await world.ask(flow, "How?", tools=[look]) == "done"
    world.say("fine")
    assert await world.ask(flow, "And now?") == "fine"


async def unknown_tools(world: World) -> None:
    """Names of tools as models write them, and of tools that there are not."""
    world.say(
        calls(("functions.look", {"place": "x"}), ("look<|channel|>commentary", {"place": "x"})),
        calls(("nobody at all", {})),
        "done",
    )
    assert await world.ask(world.flow(), "How?", tools=[look]) == "done"


async def blank_texts(world: World) -> None:
    """Line feeds before a call, a blank result, a blank answer, and a conversation that goes on."""
    flow = world.flow()
    world.say(calls(("silent", {"place": "x"}), text="\n\n"), "\n")
    await world.ask(flow, "How?", tools=[silent])
    world.say("fine")
    assert await world.ask(flow, "And now?", tools=[silent]) == "fine"
    world.say("well")
    assert await world.ask(flow, [TextPart("What"), TextPart(" \n "), TextPart("")]) == "well"


async def characters(world: World) -> None:
    """Halves of characters in a prompt and in a result, beside whole ones."""
    world.say(calls(("halved", {"place": "x"})), "done \U0001f600")
    assert await world.ask(world.flow(), "cut \ude00 and \U0001f600", tools=[halved]) == "done \U0001f600"


async def cache_marks(world: World) -> None:
    """A cached prompt over a long loop, with parts that ask for a mark."""
    flow = world.flow(prompt_cache="1h", system="Be brief. " * 20)
    parts = [TextPart(f"part {n}", cache=True) for n in range(6)]
    world.say(*[calls("Oslo", "Rome", thinking="hm")] * 6, "done")
    assert await world.ask(flow, parts, tools=[look]) == "done"
    world.say("fine")
    assert await world.ask(flow, [TextPart("x", cache=True), TextPart("", cache=True)], tools=[look]) == "fine"


async def limits(world: World) -> None:
    """A limit of the answer, a temperature, an effort; streamed and not."""
    flow = world.flow()
    for effort in (None, "low", "high", "none"):
        world.say("fine")
        more = {"effort": effort} if effort else {}
        assert await world.ask(flow, "How?", max_output_tokens=200, **more) == "fine"
    world.say("fine")
    await world.ask(flow, "How?", max_output_tokens=5)


async def forced_tools(world: World) -> None:
    """Tools in one question, none in the next."""
    flow = world.flow()
    world.say(calls("Oslo"), "done", "fine", "well")
    assert await world.ask(flow, "How?", tools=[look]) == "done"
    assert await world.ask(flow, "And now?", tools=[]) == "fine"
    assert await world.ask(flow, "And now?") == "well"


async def media(world: World) -> None:
    """A picture in the prompt, in a conversation that goes on."""
    flow = world.flow()
    world.say("a dot", "still")
    assert await world.ask(flow, ["What is it?", ImagePart("image/png", PNG)]) == "a dot"
    assert await world.ask(flow, "And now?") == "still"


async def media_of_tools(world: World) -> None:
    """A picture as a tool's result, beside the result of another."""
    flow = world.flow()
    world.say(calls(("picture", {"place": "x"}), "Oslo"), "a dot", "still")
    assert await world.ask(flow, "What is it?", tools=[picture, look]) == "a dot"
    assert PNG in str(world.vendors.asked[-1].body), "the model was not shown the picture"
    assert await world.ask(flow, "And now?") == "still"


async def documents(world: World) -> None:
    """A document in the prompt."""
    world.say("short")
    part = DocumentPart("application/pdf", "JVBERi0xLjQKJSVFT0Y=", name="a.pdf")
    assert await world.ask(world.flow(), ["Read", part]) == "short"


async def compaction(world: World) -> None:
    """A conversation with calls whose older turns are summed up."""
    flow = world.flow()
    for n in range(4):
        world.vendors.script = lambda asked: (
            "in short" if "summar" in str(asked.body).lower() and not asked.tools else
            "fine" if asked.messages[-1].get("role") in ("tool",) or any(s.kind == "result" and s.at >= asked.turn for s in asked.steps) else
            calls("Oslo", thinking="hm")
        )  # fmt: skip
        history = {
            "use_session_history": True,
            "record_in_session_history": True,
            "compact_after_tokens": 100,
            "compact_keep_turns": 1,
        }
        assert await world.ask(flow, f"Question {n} " + "word " * 100, tools=[look], history=history) == "fine"
    assert world.session.compaction is not None


async def turns_run_out(world: World) -> None:
    """A loop that is stopped by its bound, in a conversation that goes on."""
    flow = world.flow()
    world.say(*[calls("Oslo", thinking="hm")] * 3)
    try:
        await world.ask(flow, "How?", tools=[look], max_turns=2)
    except Exception as error:
        assert "turns" in str(error), error
    world.say("fine")
    assert await world.ask(flow, "And now?", tools=[look]) == "fine"


async def interrupted(world: World) -> None:
    """A durable run that is ended while a tool works goes on in another flow, also with a second vendor's model."""
    begun, held = asyncio.Event(), asyncio.Event()

    async def wait(place: str) -> str:
        """Wait."""
        if not held.is_set():
            begun.set()
            await asyncio.Event().wait()
        return f"waited at {place}"

    program = '(defatom ask (params) (instructions "How?") (tools (wait look))) (value-of (ask))'
    options = {"durable": f"sqlite:///{world.root}/runs.db"}
    world.say(calls("Rome", thinking="first"), calls(("wait", {"place": "Oslo"}), "Rome", thinking="then"), "done")
    first = world.flow(**options)
    for each in (wait, look):
        first.tool(each)
    ended = asyncio.ensure_future((await first.start(program, run_id="r")).result())
    waiting = asyncio.ensure_future(begun.wait())
    await asyncio.wait([ended, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert not ended.done(), ended.exception()
    await first.aclose()
    await asyncio.wait([ended])
    assert ended.exception() is not None, "the run was to be interrupted"
    held.set()
    again = world.flow(**options)
    for each in (wait, look):
        again.tool(each)
    handle = await again.resume("r")
    assert (await handle.result()).value == "done"


async def stopped(world: World) -> None:
    """A turn that is stopped while a tool works, and one in the middle of its text, are kept; a model goes on from there."""
    begun = asyncio.Event()

    async def wait(place: str) -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    world.session.keep_partial = True
    flow = world.flow()
    world.say(
        calls("Rome", thinking="first"), calls("Oslo", ("wait", {"place": "Oslo"}), thinking="then", text="I look.")
    )
    asking = asyncio.create_task(world.ask(flow, "How?", tools=[look, wait]))
    await begun.wait()
    asking.cancel()
    await asyncio.wait([asking])
    assert world.session.messages[-1].interrupted, "the turn was to be kept"
    world.say({"text": "It is so that", "thinking": "hm"})
    halting = world.flow(provider=Halting(world.vendors.adapter(world.first, retry=ONCE)))
    async with halting.stream(halting.ask("Why?", session=world.session)) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    *_, last = world.session.messages
    assert last.interrupted and last.parts[0].text and last.parts[0].text in "It is so that", last
    world.say(calls("Bern", thinking="again"), "fine")
    assert await world.ask(world.flow(world.second), "And now?", tools=[look]) == "fine"
    assert "[interrupted]" in str(world.vendors.asked[-1].body)


# --- two vendors in one conversation --------------------------------------------------------------------------------


async def moved(world: World) -> None:
    """A session begun at one vendor, with thinking and calls, goes on at another, and comes back."""
    one, two = world.flow(world.first), world.flow(world.second)
    world.say(
        calls("Oslo", "Rome", thinking="first", text="I look."),
        calls("Bern", thinking="more"),
        {"text": "done", "thinking": "last"},
    )
    assert await world.ask(one, "How?", tools=[look]) == "done"
    world.say(calls("Oslo", thinking="hm"), "fine")
    assert await world.ask(two, "And now?", tools=[look]) == "fine"
    world.say(calls("Bern", thinking="again"), "well")
    assert await world.ask(one, "And again?", tools=[look]) == "well"
    world.session = Session.from_json(world.session.to_json())
    world.say("stored")
    assert await world.ask(two, "At last?") == "stored"


async def fallback(world: World) -> None:
    """The first vendor fails within a loop of tools, the second goes on; later the first is there again."""
    first, second = world.vendor(world.first), world.vendor(world.second)
    routes = [(world.vendors.adapter(each.name, retry=ONCE), each.model) for each in (first, second)]
    flow = world.flow(provider=FallbackProvider(routes))

    def model(asked: Any) -> Any:
        results = sum(step.kind == "result" and step.at >= asked.turn for step in asked.steps)
        if results == 0:
            world.vendors.down.add(world.first)
            return calls("Oslo", thinking="first")
        return calls("Rome", thinking="more") if results == 1 else "done"

    world.vendors.script = model
    assert await world.ask(flow, "How?", tools=[look]) == "done"
    assert world.vendors.of(world.second), "the second vendor was not asked"
    world.vendors.down.clear()
    world.vendors.script = lambda asked: "fine"
    assert await world.ask(flow, "And now?", tools=[look]) == "fine"
    assert world.vendors.asked[-1].vendor.name == world.first


async def two_tasks(world: World) -> None:
    """Two tasks of one workflow, each at its own vendor, in one conversation."""
    first, second = world.vendor(world.first), world.vendor(world.second)
    adapters = {f"{each.name}!": world.vendors.adapter(each.name) for each in (first, second)}
    flow = world.flow(provider=ByModel(adapters))

    @flow.task(tools=[look], model=f"{first.name}!", history=True)
    async def find(city: str) -> str:
        """How warm is it in {{city}}?"""
        raise NotImplementedError

    @flow.task(model=f"{second.name}!", tools=[look], history=True)
    async def tell(text: str) -> str:
        """Say it nicely: {{text}}"""
        raise NotImplementedError

    @flow.workflow
    async def both(city: str) -> str:
        return await tell(await find(city))

    world.say(calls("Oslo", "Rome", thinking="first"), "seven", calls("Oslo", thinking="hm"), "nice")
    result = await flow.run(both("Oslo"), session=world.session)
    assert result.value == "nice"


async def handed_over(world: World) -> None:
    """A conversation is handed to a task without tools, whose next question is asked in it."""
    flow = world.flow()

    @flow.task(system="You are billing.", history=True)
    async def billing(problem: str) -> str:
        """The problem: {{problem}}"""
        raise NotImplementedError

    world.say(calls(("transfer_to_billing", {"problem": "x"}), thinking="hm"), "I am billing", "fine")
    assert await world.ask(flow, "Help!", tools=[look], handoffs=[billing]) == "I am billing"
    assert (await flow.run(billing("more"), session=world.session)).value == "fine"


async def handed_between(world: World) -> None:
    """A task at one vendor hands the conversation to one at another, which has tools of its own."""
    first, second = world.vendor(world.first), world.vendor(world.second)
    adapters = {f"{each.name}!": world.vendors.adapter(each.name) for each in (first, second)}
    flow = world.flow(provider=ByModel(adapters))

    @flow.task(model=f"{second.name}!", tools=[look], history=True)
    async def billing(problem: str) -> str:
        """The problem: {{problem}}"""
        raise NotImplementedError

    @flow.task(model=f"{first.name}!", handoffs=[billing], history=True)
    async def desk(question: str) -> str:
        """{{question}}"""
        raise NotImplementedError

    world.say(calls(("transfer_to_billing", {"problem": "x"}), thinking="hm"), calls("Oslo", thinking="hm"), "done")
    assert (await flow.run(desk("Help!"), session=world.session)).value == "done"


async def ended_by_a_tool(world: World) -> None:
    """A tool that must be called ends the task; the conversation goes on."""
    world.say(calls(("submit", {"answer": "42"}), "Oslo"), "fine")
    flow = world.flow()
    assert await world.ask(flow, "How much?", tools=[submit, look], tool_choice="required") == "42"
    assert await world.ask(flow, "And now?", tools=[look]) == "fine"


async def refused_by_a_check(world: World) -> None:
    """A check has an answer repaired after a tool was called; the conversation goes on."""

    def warm(text: str, ctx: CallContext) -> str:
        if "cold" in text:
            raise Retry("say it nicely")
        return text

    world.say(calls("Oslo", thinking="hm"), "cold", "mild", "fine")
    flow = world.flow()
    assert await world.ask(flow, "How warm?", tools=[look], check=warm) == "mild"
    assert await world.ask(flow, "And now?") == "fine"


async def tools_change(world: World) -> None:
    """Other tools in each turn, and one that was found by searching."""
    turns: list[int] = []

    def chosen(ctx: CallContext) -> list[Any]:
        turns.append(1)
        return [look, late] if len(turns) == 1 else [broken, late]

    natively = world.first == "anthropic"
    search = calls("Oslo") if natively else calls("Oslo", ("search_tools", {"query": "send a letter"}))
    late_call = {**calls(("late", {})), "found": ["late"]} if natively else calls(("late", {}))
    world.say(search, late_call, "done", "fine")
    flow = world.flow()
    assert await world.ask(flow, "How?", tools=chosen) == "done"
    assert await world.ask(flow, "And now?") == "fine"


async def tools_are_found(world: World) -> None:
    """Tools that are all deferred, which the vendor's own search finds; the conversation goes on with them, and with another model without
    that search."""
    model = {"openai": "gpt-5.4", "anthropic": "claude-sonnet-5-5"}[world.first]
    older = {"openai": "gpt-5.2", "anthropic": "claude-sonnet-4"}[world.first]
    flow = world.flow(system="x" * 2_000)

    @flow.task(name="mailer", model=model, tools=[late, late_too], history=True)
    async def mailer(wish: str) -> str:
        """{{wish}}"""
        raise NotImplementedError

    @flow.task(name="clerk", model=older, tools=[late, late_too], history=True)
    async def clerk(wish: str) -> str:
        """{{wish}}"""
        raise NotImplementedError

    world.say({**calls(("late", {})), "found": ["late"]}, "sent it", calls(("late", {})), "again", "no more")
    assert (await flow.run(mailer("Write."), session=world.session)).value == "sent it"
    assert (await flow.run(mailer("Again!"), session=world.session)).value == "again"
    first = world.vendors.of(world.first)[0].body["tools"]
    assert [bool(tool.get("defer_loading")) for tool in first] == [True, True, False]
    assert "tool_search" in first[-1]["type"] and "search_tools" not in str(first)
    assert (await flow.run(clerk("And?"), session=world.session)).value == "no more"
    last = world.vendors.of(world.first)[-1].body["tools"]
    assert [tool["name"] for tool in last] == ["search_tools"]


@tool(ends=True)
async def submit(answer: str) -> str:
    """Submit the answer."""
    return answer


@tool(defer_loading=True)
async def late() -> str:
    """Send a letter."""
    return "sent"


@tool(defer_loading=True)
async def late_too() -> str:
    """Send a parcel."""
    return "sent"


SINGLE = (
    Scenario("tool loop", tool_loop),
    Scenario("streamed", streamed),
    Scenario("parallel calls", parallel_calls),
    Scenario("conversation", conversation),
    Scenario("thinking", thinking, THINKS),
    Scenario("thinking budget", thinking_budget, ("anthropic", "bedrock")),
    Scenario("output", output),
    Scenario("output after tools", output_after_tools),
    Scenario("output: a list", _output(list[int], "[1, 2]")),
    Scenario("output: one of two kinds", _output(Choice, '{"vehicle": {"kind": "car", "seats": 4}}')),
    Scenario("output: open objects and anything", _output(Loose, '{"words": {"a": 1}, "data": [1], "rest": [1, "a"]}')),
    Scenario("output: formats, patterns, sets", _output(Exact, '{"price": "12.5", "day": "2026-11-28", "pair": [1, "a"], "tags": ["b"], "short": "abc", "colour": "red"}')),
    Scenario("output: a tree", _output(Tree, '{"name": "a", "children": [{"name": "b", "children": []}]}')),
    Scenario("schemas of tools", tool_schemas),
    Scenario("a tool with a union at the top", _registered("attach", UNION, {"text": "x"})),
    Scenario("a tool with odd names of parameters", _registered("list_items", NAMES, {"filter[id]": "x"})),
    Scenario("a tool with an old schema", _registered("old", OLD, {"a": "1"})),
    Scenario("a tool with an odd name", _registered("server:do/it.now \u00fcber " + "x" * 60, {"type": "object", "properties": {}}, {})),
    Scenario("a tool with a long description", tool_descriptions),
    Scenario("broken arguments", broken_arguments),
    Scenario("names of tools that there are not", unknown_tools),
    Scenario("blank texts", blank_texts),
    Scenario("halves of characters", characters),
    Scenario("cache marks", cache_marks),
    Scenario("limits and efforts", limits),
    Scenario("tools, then none", forced_tools),
    Scenario("a picture", media, SEES),
    Scenario("a picture of a tool", media_of_tools, SEES),
    Scenario("a document", documents, ("openai", "openai-chat", "anthropic")),
    Scenario("compaction", compaction),
    Scenario("turns run out", turns_run_out),
    Scenario("interrupted", interrupted),
    Scenario("stopped", stopped),
    Scenario("handed over", handed_over),
    Scenario("ended by a tool", ended_by_a_tool),
    Scenario("refused by a check", refused_by_a_check),
    Scenario("tools that change", tools_change),
    Scenario("tools that the vendor finds", tools_are_found, ("openai", "anthropic")),
)  # fmt: skip
PAIRED = (
    Scenario("moved", moved, pair=True),
    Scenario("fallback", fallback, pair=True),
    Scenario("stopped, and continued elsewhere", stopped, pair=True),
    Scenario("two tasks", two_tasks, pair=True),
    Scenario("handed to another vendor", handed_between, pair=True),
)
SCENARIOS = (*SINGLE, *PAIRED)
