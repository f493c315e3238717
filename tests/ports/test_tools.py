"""Ports of examples about tools: what they take, whose they are, agents as tools, tools that prompt, and tools that come and go."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from agentflow import AgentFlow, CallContext, Limits, ScriptedProvider, external, tool
from agentflow.errors import LimitExceeded
from agentflow.events import WaitStarted
from agentflow.testing import Script
from tests.ports.replies import both, calls, offered, told

# -- what a tool takes ----------------------------------------------------------------------------------------------


class Weather(BaseModel):
    """What the weather tool gives."""

    city: str
    range_c: str


async def test_a_tool_whose_parameters_are_annotated(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, basic/tools.py: a plain text in ``Annotated`` describes a parameter, ``Field`` too, and the tool gives a class."""

    def get_weather(
        city: Annotated[str, "The city to look up"], days: Annotated[int, Field(description="How many days", ge=1)] = 1
    ) -> Weather:
        """Look the weather up."""
        return Weather(city=city, range_c=f"14 to {19 + days}")

    script.on("ask", calls("get_weather", city="Tokyo"), told)
    said = await flow.ask("What is the weather in Tokyo?", tools=[get_weather])
    assert Weather.model_validate_json(said) == Weather(city="Tokyo", range_c="14 to 20")
    properties = script.requests("ask")[0].tools[0].input_schema["properties"]
    assert properties["city"]["description"] == "The city to look up"
    assert properties["days"] == {"description": "How many days", "minimum": 1, "type": "integer", "default": 1}


async def test_a_field_as_the_default_of_a_parameter(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, function tools: ``n: int = Field(3, description=...)`` has the default 3 where the model leaves it out."""

    async def roll(dice: int = Field(3, description="How many dice", le=6)) -> list[int]:
        """Roll dice."""
        return [6] * dice

    script.on("ask", calls("roll"), told, calls("roll", dice=9), told)
    assert await flow.ask("Roll.", tools=[roll]) == "[6, 6, 6]"
    assert "less than or equal to 6" in await flow.ask("Roll nine.", tools=[roll])
    assert script.requests("ask")[0].tools[0].input_schema["properties"]["dice"]["default"] == 3


# -- whose tool it is -----------------------------------------------------------------------------------------------


async def test_a_tool_that_belongs_to_one_run(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, a tool that closes over one user's data: closures and bound methods of one name, each for its own run, at once."""

    @dataclass
    class Cart:
        items: list[str] = field(default_factory=list)

        async def add(self, item: str) -> str:
            """Put an item into the cart."""
            self.items.append(item)
            return f"{len(self.items)} items"

    @flow.task
    async def shop(wish: str) -> str:
        """{{wish}}"""

    def model(request: Any) -> Any:
        return told(request) or calls("add", item=request.messages[0].text)

    script.on("shop", model)
    carts = [Cart(), Cart(["bread"])]
    said = await asyncio.gather(
        *[shop.with_options(tools=[cart.add])(wish) for cart, wish in zip(carts, ["milk", "jam"], strict=True)]
    )
    assert said == ["1 items", "2 items"]
    assert [cart.items for cart in carts] == [["milk"], ["bread", "jam"]]


async def test_a_partial_is_a_tool_of_one_call(flow: AgentFlow, script: Script) -> None:
    """LangGraph, ``functools.partial(save, user=...)`` for a tool: the model neither sees nor chooses what is bound, and an approval holds."""

    @tool(approval=True)
    async def save(user: str, text: str) -> str:
        """Save a note."""
        return f"{user}: {text}"

    script.on("ask", lambda request: told(request) or calls("save", text="buy milk"))
    for bound in (functools.partial(save, "ada"), functools.partial(save, user="ada")):
        said = await flow.run(flow.ask("Note it.", tools=[bound]), approve=lambda request: True)
        assert said.value == "ada: buy milk"
        assert "did not run" in await flow.ask("Note it.", tools=[bound])
    assert [list(each.tools[0].input_schema["properties"]) for each in script.requests("ask")] == [["text"]] * 8


async def test_a_tool_of_one_task_is_that_tasks_alone(flow: AgentFlow, script: Script) -> None:
    """All frameworks, ``Agent(tools=[...])``: neither another agent of the application nor a later prompt is offered it."""

    async def refund(order: int) -> str:
        """Pay an order back."""
        return f"order {order} is paid back"

    @flow.task(tools=[refund])
    async def billing(question: str) -> str:
        """{{question}}"""

    @flow.task
    async def greet(name: str) -> str:
        """Greet {{name}}."""

    script.on("billing", calls("refund", order=1), told)
    script.on("greet", "Hello, Ada.")
    assert await billing("My money, please.") == "order 1 is paid back"
    assert await greet("Ada") == "Hello, Ada."
    assert [offered(each) for each in script.requests()] == [["refund"], ["refund"], []]


# -- agents as tools ------------------------------------------------------------------------------------------------


async def test_agents_as_tools(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, agent_patterns/agents_as_tools.py: an orchestrator calls translators, and another agent reads what came of it."""

    @flow.task(description="Translate the user's message to Spanish", system="You translate to Spanish.")
    async def to_spanish(message: str) -> str:
        """{{message}}"""

    @flow.task(description="Translate the user's message to French", system="You translate to French.")
    async def to_french(message: str) -> str:
        """{{message}}"""

    @flow.task(system="You use your tools to translate.", tools=[to_spanish, to_french], history=True)
    async def orchestrate(message: str) -> str:
        """{{message}}"""

    @flow.task(system="You correct translations and put them together.", history=True)
    async def synthesize() -> str:
        """Give the final response."""

    @flow.workflow
    async def translate(message: str) -> str:
        await orchestrate(message)
        return await synthesize()

    script.on("orchestrate", both(calls("to_spanish", message="Hello"), calls("to_french", message="Hello")), told)
    script.on("to_spanish", "Hola")
    script.on("to_french", "Salut")
    script.on("synthesize", lambda request: request.messages[-2].text.replace("\n", ", "))
    assert await translate("Translate 'Hello' to Spanish and French.") == "Hola, Salut"
    assert script.requests("to_french")[0].system == "You translate to French."
    (tools, *_) = [request.tools for request in script.requests("orchestrate")]
    assert [each.description for each in tools] == [
        f"Translate the user's message to {x}" for x in ("Spanish", "French")
    ]


@dataclass
class Customer:
    """The dependencies of some ports: who is on the line, and what that customer may use."""

    name: str = "Ada"
    languages: tuple[str, ...] = ("spanish",)


async def test_agents_as_tools_that_are_enabled_per_run(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, agents_as_tools_conditional.py: ``is_enabled`` by the run's context, an agent that needs a yes, and whose own
    tool needs one too."""

    @tool(approval=True)
    async def user_name(ctx: CallContext[Customer]) -> str:
        """The name of the user."""
        return ctx.deps.name

    @flow.task(description="Respond in Spanish", tools=[user_name], tool_choice="required")
    async def spanish(question: str) -> str:
        """Answer in Spanish, with the user's name: {{question}}"""

    @flow.task(description="Respond in French")
    async def french(question: str) -> str:
        """Answer in French: {{question}}"""

    @tool(approval=True)
    async def respond_spanish(question: str) -> str:
        """Respond in Spanish."""
        return await spanish(question)

    def enabled(ctx: CallContext[Customer]) -> list[Any]:
        return [respond_spanish, *([french] if "french" in ctx.deps.languages else [])]

    @flow.task(tools=enabled)
    async def orchestrate(question: str) -> str:
        """{{question}}"""

    asked: list[str] = []

    def approve(request: Any) -> bool:
        asked.append(request.tool)
        return True

    script.on("spanish", calls("user_name"), lambda request: f"Hola, {told(request)}")
    script.on("orchestrate", calls("respond_spanish", question="How are you?"), told, "only Spanish here")
    result = await flow.run(orchestrate("In Spanish, please."), deps=Customer(), approve=approve)
    assert result.value == "Hola, Ada" and asked == ["respond_spanish", "user_name"]
    await flow.run(orchestrate("And in French?"), deps=Customer(languages=("spanish", "french")))
    requests = script.requests("orchestrate")
    assert offered(requests[0]) == ["respond_spanish"] and offered(requests[-1]) == ["respond_spanish", "french"]


async def test_an_agent_as_a_tool_with_structured_input(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, agents_as_tools_structured.py: the caller's model reads what the agent is for and what each field is."""

    @flow.task(description="Translate text between languages. Give the text and both languages.")
    async def translate(
        text: Annotated[str, "Text to translate"],
        source: Annotated[str, "Its language"],
        target: Annotated[str, "The language to translate to"],
    ) -> str:
        """Translate from {{source}} to {{target}}: {{text}}"""

    script.on("ask", calls("translate", text="Hola", source="Spanish", target="French"), told)
    script.on("translate", "Salut")
    assert await flow.ask("Translate 'Hola' from Spanish to French.", tools=[translate]) == "Salut"
    (shown,) = script.requests("ask")[0].tools
    assert shown.description == "Translate text between languages. Give the text and both languages."
    assert shown.input_schema["properties"]["target"] == {
        "type": "string",
        "description": "The language to translate to",
    }
    assert script.prompt("translate") == "Translate from Spanish to French: Hola"


async def test_an_agent_as_a_tool_keeps_its_own_tools(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, ``agent.as_tool()``: the inner agent has the tools of its declaration, which its caller is not offered."""

    async def read_page(address: str) -> str:
        """Read a page of the web."""
        return f"the text of {address}"

    @flow.task(description="Research a question", tools=[read_page])
    async def research(question: str) -> str:
        """{{question}}"""

    @flow.task(tools=[research])
    async def write(subject: str) -> str:
        """Write about {{subject}}."""

    script.on("write", calls("research", question="What is new?"), told)
    script.on("research", calls("read_page", address="example.org"), told)
    assert await write("the web") == "the text of example.org"
    assert [offered(each) for each in script.requests("write")] == [["research"]] * 2
    assert [offered(each) for each in script.requests("research")] == [["read_page"]] * 2


async def test_two_agents_of_one_name_are_each_a_tool_of_their_caller(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, two agents called ``helper`` in two modules, each ``as_tool()``: each caller's model calls the one it was given."""

    def desk(language: str) -> Any:
        @flow.task(system=f"You speak {language}.")
        async def helper(question: str) -> str:
            """{{question}}"""

        return helper

    norwegian, danish = desk("Norwegian"), desk("Danish")
    script.on("ask", lambda request: told(request) or calls("helper", question="?"))
    script.on("helper", lambda request: "hei" if "Norwegian" in (request.system or "") else "hej")
    assert [await flow.ask("Help.", tools=[each]) for each in (norwegian, danish)] == ["hei", "hej"]


async def test_an_agent_is_a_tool_in_a_program(flow: AgentFlow, script: Script) -> None:
    """A task of the host in the ``tools`` of a ``defatom``: the program's task may call it, with its own tools behind it."""

    async def look_up(invoice: str) -> str:
        """Look an invoice up."""
        return f"{invoice} is paid"

    @flow.task(tools=[look_up])
    async def billing(question: str) -> str:
        """{{question}}"""

    script.on("triage", calls("billing", question="Is inv_1 paid?"), told)
    script.on("billing", calls("look_up", invoice="inv_1"), told)
    program = """
    (defatom triage (params (q string)) (instructions "{{q}}") (tools billing))
    (value-of (triage (q "Is my invoice paid?")))
    """
    assert (await flow.run(program)).value == "inv_1 is paid"


# -- tools that prompt ----------------------------------------------------------------------------------------------


async def test_a_tool_that_asks_a_model(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, tools docs, a function tool that runs an agent: it prompts, calls tasks and tools, in one run and budget."""

    async def count(text: str) -> int:
        """Count words."""
        return len(text.split())

    @flow.task
    async def shorten(text: str) -> str:
        """Shorten: {{text}}"""

    async def summary(topic: str, ctx: CallContext) -> str:
        """A summary of a topic, in few words."""
        text = await flow.ask(f"Write about {topic}.", tools=[count])
        return f"{await shorten(text)} ({await ctx.call(count, text)} words before)"

    @flow.task(tools=[summary])
    async def answer(question: str) -> str:
        """{{question}}"""

    script.on("answer", calls("summary", topic="tea"), told)
    script.on("ask", calls("count", text="tea is hot"), "tea is hot")
    script.on("shorten", "hot tea")
    result = await flow.run(answer("What is tea?"), limits=Limits(turns=5))
    assert result.value == "hot tea (3 words before)" and result.usage.requests == 5


async def test_a_tool_that_prompts_with_itself_ends(flow: AgentFlow, script: Script) -> None:
    """A tool whose prompt offers the tool again, as an agent that is its own tool in the Agents SDK: it goes as deep as the run allows."""

    async def divide(problem: str) -> str:
        """Divide a problem."""
        return await flow.ask(f"Solve a part of {problem}", tools=[divide])

    script.on("ask", lambda request: told(request) or calls("divide", problem="x"))
    with pytest.raises(LimitExceeded, match="6 deep, and 5 is allowed"):
        await flow.ask("Solve it.", tools=[divide])
    assert len(script.prompts("ask")) == 1 + 5


async def test_a_tool_of_one_application_uses_another(flow: AgentFlow, script: Script) -> None:
    """A tool that runs an agent of another application, as with two ``Runner``s: the other flow's model, tools and settings hold there."""
    async with AgentFlow(provider=ScriptedProvider([calls("stock", item="tea"), told])) as warehouse:

        @warehouse.tool
        async def stock(item: str) -> str:
            """How much there is."""
            return f"7 boxes of {item}"

        async def ask_warehouse(question: str) -> str:
            """Ask the warehouse."""
            return await warehouse.ask(question, tools=[stock])

        script.on("ask", calls("ask_warehouse", question="Any tea?"), told)
        assert await flow.ask("Is there tea?", tools=[ask_warehouse]) == "7 boxes of tea"


# -- tools that come and go -----------------------------------------------------------------------------------------


async def test_tools_that_are_offered_by_the_dependencies(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, tools-advanced.md, ``prepare=only_if_42``: a tool is offered in runs whose dependencies allow it."""

    async def hitchhiker(answer: str, ctx: CallContext[int]) -> str:
        """Answer a hitchhiker."""
        return f"{ctx.deps} {answer}"

    @flow.task(tools=lambda ctx: [hitchhiker] if ctx.deps == 42 else [])
    async def travel(question: str) -> str:
        """{{question}}"""

    script.on("travel", "no tools", calls("hitchhiker", answer="a"), told)
    assert (await flow.run(travel("?"), deps=41)).value == "no tools"
    assert (await flow.run(travel("?"), deps=42)).value == "42 a"


@dataclass
class Toggle:
    """Dependencies that choose a set of tools."""

    active: str = "weather"


async def temperature(city: str) -> float:
    """The temperature of a city."""
    return 21.0


async def time_of_day() -> str:
    """The time of day."""
    return "12:00"


async def test_a_set_of_tools_that_changes_from_step_to_step(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, toolsets.md, ``@agent.toolset``: a tool toggles the set, and the next request of the same run has the other one."""

    async def toggle(ctx: CallContext[Toggle]) -> str:
        """Change between weather and time."""
        ctx.deps.active = "time" if ctx.deps.active == "weather" else "weather"
        return ctx.deps.active

    def tools(ctx: CallContext[Toggle]) -> list[Callable[..., Any]]:
        return [toggle, temperature if ctx.deps.active == "weather" else time_of_day]

    @flow.task(tools=tools)
    async def assist(wish: str) -> str:
        """{{wish}}"""

    script.on("assist", calls("toggle"), calls("time_of_day"), told)
    assert (await flow.run(assist("What time is it?"), deps=Toggle())).value == "12:00"
    assert [offered(each) for each in script.requests()] == [
        ["toggle", "temperature"],
        *[["toggle", "time_of_day"]] * 2,
    ]


async def test_one_agent_shared_by_users_with_tools_of_their_own(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, a toolset per user (``DynamicToolset``): what an agent may call is what the user of the run has connected."""

    @dataclass
    class User:
        connected: dict[str, Callable[..., Any]]

    async def read_mail() -> str:
        """Read mail."""
        return "one mail"

    async def read_calendar() -> str:
        """Read the calendar."""
        return "no appointments"

    @flow.task(tools=lambda ctx: list(ctx.deps.connected.values()))
    async def assist(wish: str) -> str:
        """{{wish}}"""

    script.on("assist", lambda request: told(request) or calls(request.tools[0].name))
    users = [User({"mail": read_mail}), User({"calendar": read_calendar})]
    results = await asyncio.gather(*[flow.run(assist("What is new?"), deps=user) for user in users])
    assert [result.value for result in results] == ["one mail", "no appointments"]


async def test_tools_that_are_searched_and_loaded_during_the_run(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, tools/tool_search.py: deferred tools are not sent; a search loads those that fit, and the others stay out."""

    @tool(defer_loading=True)
    def shipping_eta(tracking_number: Annotated[str, "The number of the shipment"]) -> str:
        """Look up when a shipment arrives, by its tracking number."""
        return {"ZX-123": "Friday at 14:00"}.get(tracking_number, "unknown")

    @tool(defer_loading=True)
    def credit_balance(customer: Annotated[str, "The customer's number"]) -> str:
        """Look up the shipping credit of a customer."""
        return "125 EUR"

    @flow.task(system="You help with shipments.", tools=[shipping_eta, credit_balance])
    async def shipping(question: str) -> str:
        """{{question}}"""

    script.on(
        "shipping",
        calls("search_tools", query="when does a shipment arrive, by tracking number"),
        calls("shipping_eta", tracking_number="ZX-123"),
        told,
    )
    assert await shipping("When does ZX-123 arrive?") == "Friday at 14:00"
    assert offered(script.requests("shipping")[0]) == ["search_tools"]
    assert "shipping_eta" in offered(script.requests("shipping")[2])


# -- tools that somebody else carries out ---------------------------------------------------------------------------


class Greeting(BaseModel):
    """What the greeter answers."""

    text: str
    language: str


async def test_a_tool_that_the_front_end_carries_out(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, toolsets.md, ``ExternalToolset``: a request brings tools of its own; their calls go to the front end with name and
    arguments, and the agent, which has tools of the back end too, goes on with the result."""

    def user_name() -> str:
        """The name of the user."""
        return "David"

    @flow.task(tools=[user_name])
    async def greet(wish: str) -> Greeting:
        """{{wish}}"""

    async def handle(wish: str, front_end: list[dict[str, Any]], carry_out: Callable[..., Any]) -> Greeting:
        tools = [external(each["name"], each["parameters"], description=each["description"]) for each in front_end]
        asked = greet.with_options(tools=[user_name, *tools])
        async with flow.stream(asked(wish), approval_ttl=60) as run:
            async for event in run.of(WaitStarted):
                call = event.external
                await flow.send(event.run_id, event.key, carry_out(call["name"], **call["arguments"]))
            return await run.value()

    script.on(
        "greet",
        both(calls("user_name"), calls("preferred_language", default="en-US")),
        lambda request: json.dumps(dict(zip(("text", "language"), told(request).split("\n"), strict=True))),
    )
    description = {
        "name": "preferred_language",
        "parameters": {"type": "object", "properties": {"default": {"type": "string"}}},
        "description": "The language of the user's browser",
    }
    greeting = await handle("Greet me.", [description], lambda name, default: "es-MX")
    assert greeting == Greeting(text="David", language="es-MX")


async def test_a_tool_whose_result_comes_later_from_elsewhere(script: Script, tmp_path: Any) -> None:
    """Pydantic AI, deferred-tools.md, ``CallDeferred``: work is handed to somebody, the run is not a process's while it waits, and another
    process gives the result days later."""

    def app() -> AgentFlow:
        flow = AgentFlow(durable=f"sqlite:///{tmp_path}/runs.db")
        compute = external(
            "compute", {"question": "string"}, description="Have it computed.", returns={"type": "integer"}
        )

        @flow.task(name="answer", tools=[compute])
        async def answer(question: str) -> str:
            """{{question}}"""

        return flow

    script.on("answer", calls("compute", question="everything"), lambda request: f"The answer is {told(request)}.")
    flow = app()
    with script.answers(flow):
        async with flow:
            run = await flow.start('(content (answer (question "What is the answer?")))', run_id="deep-thought")
            assert await run.wait() == "waiting"
            (question,) = await flow.questions("deep-thought")
            assert question.external and question.external.arguments == {"question": "everything"}
    flow = app()
    with script.answers(flow):
        async with flow:
            (question,) = await flow.questions("deep-thought")
            await flow.send("deep-thought", question.key, 42)
            result = await (await flow.resume("deep-thought")).result()
    assert result.value == "The answer is 42."
