"""Ports of examples about dependencies: a run's own data in tools, system prompts and checks, references, and options of one call."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ValidationError, ValidationInfo, field_validator

from agentflow import AgentFlow, CallContext, Retry, ScriptedProvider
from agentflow.testing import Script
from tests.ports.replies import calls, offered, told

# -- a bank's support -----------------------------------------------------------------------------------------------


class Support(BaseModel):
    """What the bank's agent answers."""

    advice: str
    block_card: bool
    risk: int


@dataclass
class Bank:
    """The dependencies of the bank's agent: the customer on the line and the database."""

    customer: int
    database: sqlite3.Connection

    def row(self, column: Literal["name", "balance"]) -> Any:
        """A column of the customer."""
        found = self.database.execute(f"SELECT {column} FROM customers WHERE id = ?", (self.customer,)).fetchone()
        if found is None:
            raise LookupError("no such customer")
        return found[0]


async def test_a_banks_support(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, bank_support.py: typed dependencies in a tool and in the instructions, and a structured answer."""

    async def who_is_it(ctx: CallContext[Bank]) -> str:
        return f"You work for a bank: help the customer, and judge the risk. The customer is {ctx.deps.row('name')}."

    async def customer_balance(ctx: CallContext[Bank]) -> str:
        """The customer's balance."""
        return f"${ctx.deps.row('balance'):.2f}"

    @flow.task(system=who_is_it, tools=[customer_balance])
    async def support(question: str) -> Support:
        """{{question}}"""

    script.on(
        "support",
        calls("customer_balance"),
        lambda request: Support(advice=f"You have {told(request)}.", block_card=False, risk=1).model_dump_json(),
        Support(advice="We block your card.", block_card=True, risk=8).model_dump_json(),
    )
    with sqlite3.connect(":memory:", check_same_thread=False) as database:
        database.execute("CREATE TABLE customers (id, name, balance)")
        database.execute("INSERT INTO customers VALUES (123, 'John', 123.45)")
        deps = Bank(123, database)
        balance = await flow.run(support("What is my balance?"), deps=deps)
        lost = await flow.run(support("I lost my card!"), deps=deps)
    assert balance.value == Support(advice="You have $123.45.", block_card=False, risk=1)
    assert lost.value.block_card and lost.value.risk == 8
    assert (script.requests("support")[0].system or "").endswith("The customer is John.")


@dataclass
class Style:
    """Dependencies of a chat."""

    style: Literal["haiku", "pirate", "robot"]


async def test_instructions_from_the_context_of_a_run(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, basic/dynamic_system_prompt.py: a function of the run's context writes the system prompt; runs at once differ."""
    styles = {"haiku": "Only respond in haikus.", "pirate": "Respond as a pirate.", "robot": "Say beep."}

    @flow.task(system=lambda ctx: styles[ctx.deps.style])
    async def chat(message: str) -> str:
        """{{message}}"""

    script.on("chat", lambda request: request.system or "")
    said = await asyncio.gather(*[flow.run(chat("Tell me a joke."), deps=Style(style)) for style in ("haiku", "robot")])
    assert [each.value for each in said] == ["Only respond in haikus.", "Say beep."]


# -- tools that share the state of a run ----------------------------------------------------------------------------


@dataclass
class Analysis:
    """The dependencies of the analyst: tables that tools made, by the reference that the model knows."""

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])

    def store(self, table: list[dict[str, Any]]) -> str:
        """Keep a table; gives its reference."""
        reference = f"Out[{len(self.tables) + 1}]"
        self.tables[reference] = table
        return reference

    def get(self, reference: str) -> list[dict[str, Any]]:
        """The table of a reference."""
        if reference not in self.tables:
            raise Retry(f"{reference} is not a reference; look at the messages before, and try again")
        return self.tables[reference]


REVIEWS = {"train": [{"text": "great", "label": 1}, {"text": "bad", "label": 0}, {"text": "poor", "label": 0}]}


async def test_a_data_analyst(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, data_analyst.py: tools keep tables in the dependencies and give the model references; a wrong reference or split is
    told, and the model tries again."""

    def load_dataset(path: str, ctx: CallContext[Analysis], split: str = "train") -> str:
        """Load a split of a dataset.

        Args:
            path: the name of the dataset
            split: which part of it
        """
        if split not in REVIEWS:
            raise Retry(f"{split} is no split of {path}; there are {', '.join(REVIEWS)}")
        return f"loaded as {ctx.deps.store(REVIEWS[split])}"

    def select(dataset: str, label: int, ctx: CallContext[Analysis]) -> str:
        """Select rows by label."""
        rows = [row for row in ctx.deps.get(dataset) if row["label"] == label]
        return f"the result is {ctx.deps.store(rows)}"

    def display(name: str, ctx: CallContext[Analysis]) -> str:
        """Show at most five rows."""
        return "; ".join([row["text"] for row in ctx.deps.get(name)[:5]])

    @flow.task(system="You are a data analyst.", tools=[load_dataset, select, display])
    async def analyse(request: str) -> str:
        """{{request}}"""

    script.on(
        "analyse",
        calls("load_dataset", path="reviews", split="all"),
        calls("load_dataset", path="reviews"),
        calls("select", dataset="Out[7]", label=0),
        calls("select", dataset="Out[1]", label=0),
        calls("display", name="Out[2]"),
        lambda request: f"Negative: {told(request)}",
    )
    deps = Analysis()
    assert (await flow.run(analyse("Which are negative?"), deps=deps)).value == "Negative: bad; poor"
    requests = script.requests("analyse")
    assert told(requests[1]) == "all is no split of reviews; there are train"
    assert told(requests[3]).startswith("Out[7] is not a reference")
    assert [len(table) for table in deps.tables.values()] == [3, 2]


@dataclass
class Client:
    """A connection that is shared by the agents of a run."""

    key: str
    sent: list[str] = field(default_factory=list[str])

    async def get(self, query: str) -> str:
        """What the service gives."""
        self.sent.append(f"{self.key} {query}")
        return "Why did the scarecrow win?; I told a joke to a wall."


async def test_an_agent_that_delegates_shares_its_dependencies_and_usage(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, multi-agent-applications.md, agent_delegation_deps.py: a tool runs another agent, which has the same client, and the
    usage of the run is that of both."""

    async def get_jokes(count: int, ctx: CallContext[Client]) -> str:
        """Get jokes."""
        return await ctx.deps.get(f"count={count}")

    @flow.task(tools=[get_jokes])
    async def generate(count: int) -> list[str]:
        """Get {{count}} jokes with your tool, and list them."""

    async def joke_factory(count: int) -> list[str]:
        """Make jokes."""
        return await generate(count)

    @flow.task(system="Choose the best joke.", tools=[joke_factory])
    async def select(wish: str) -> str:
        """{{wish}}"""

    script.on("select", calls("joke_factory", count=2), "I told a joke to a wall.")
    script.on("generate", calls("get_jokes", count=2), '["Why did the scarecrow win?", "I told a joke to a wall."]')
    client = Client("foobar")
    result = await flow.run(select("Tell me a joke."), deps=client)
    assert result.value == "I told a joke to a wall." and client.sent == ["foobar count=2"]
    assert result.usage.requests == 4


async def test_dependencies_that_are_opened_and_closed_with_the_run() -> None:
    """ADK's and Pydantic AI's lifespans, ``async with client``: the flow opens the connection of each run, and closes it after the run."""
    log: list[str] = []

    @asynccontextmanager
    async def client(labels: dict[str, str]) -> AsyncIterator[Client]:
        log.append(f"open for {labels['user']}")
        yield Client(labels["user"])
        log.append("closed")

    async def find(query: str, ctx: CallContext[Client]) -> str:
        """Find something."""
        await ctx.deps.get(query)
        return ctx.deps.sent[-1]

    async with AgentFlow(provider=ScriptedProvider([calls("find", query="tea"), told]), deps=client) as flow:
        result = await flow.run(flow.ask("Find tea.", tools=[find]), labels={"user": "ada"})
    assert result.value == "ada tea" and log == ["open for ada", "closed"]


# -- the answer's check knows the run -------------------------------------------------------------------------------


class Amount(BaseModel):
    """An answer whose validation depends on a context of pydantic."""

    cents: int

    @field_validator("cents")
    @classmethod
    def in_reach(cls, value: int, info: ValidationInfo) -> int:
        """No more than the context allows, where there is one."""
        if info.context is not None and value > info.context:
            raise ValueError(f"more than {info.context}")
        return value


async def test_a_validation_context_of_the_run(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, output.md, ``validation_context=lambda ctx: ctx.deps.most``: the answer is validated with a context from the
    dependencies, and what that refuses goes back to the model."""

    def with_context(amount: Amount, ctx: CallContext[int]) -> Amount:
        try:
            return Amount.model_validate(amount.model_dump(), context=ctx.deps)
        except ValidationError as error:
            raise Retry(str(error)) from None

    @flow.task(check=with_context)
    async def offer(product: str) -> Amount:
        """Offer a price for {{product}}."""

    script.on("offer", '{"cents": 900}', '{"cents": 400}')
    assert (await flow.run(offer("tea"), deps=500)).value == Amount(cents=400)
    assert "more than 500" in script.requests("offer")[1].messages[-1].text


# -- options of one call --------------------------------------------------------------------------------------------


async def test_settings_of_one_call(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, ``agent.run(model=, model_settings=, timeout)``: model, settings and time of one call, and the agent is as before."""

    @flow.task(model="openai:gpt-5", settings={"temperature": 1})
    async def write(subject: str) -> str:
        """Write about {{subject}}."""

    script.on("write", "one", "two")
    careful = write.with_options(
        model="anthropic:claude-sonnet-5-5", settings={"temperature": 0}, max_output_tokens=100, timeout_s=30
    )
    assert [await careful("tea"), await write("tea")] == ["one", "two"]
    first, second = script.requests("write")
    assert (first.settings["temperature"], first.max_output_tokens) == (0, 100)
    assert second.settings["temperature"] == 1 and second.model != first.model


def test_an_agent_that_is_called_from_code_that_is_not_async(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, ``agent.run_sync``: a script or a web handler that is not async gets the answer, and dependencies go in."""

    async def whose(ctx: CallContext[str]) -> str:
        """Whose it is."""
        return ctx.deps

    @flow.task(tools=[whose])
    async def answer(question: str) -> str:
        """{{question}}"""

    script.on("answer", calls("whose"), told)
    assert asyncio.run(flow.run(answer("Whose is it?"), deps="Ada's")).value == "Ada's"
    assert offered(script.requests("answer")[0]) == ["whose"]
