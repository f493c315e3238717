"""A run has dependencies: given with ``deps=``, or made for each run by the flow, and read by tools, checks and workflows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from agentflow import AgentFlow, AgentflowError, CallContext, ConfigurationError, ScriptedProvider
from agentflow.core.data.errors import JournalError
from agentflow.core.data.messages import ToolResultPart

USER: ContextVar[str] = ContextVar("USER", default="nobody")


@dataclass
class Bank:
    """The dependencies of these tests: the accounts of one customer."""

    customer: str
    cents: int = 0


class Other:
    """Dependencies of another class."""


async def balance(ctx: CallContext[Bank]) -> str:
    """The balance of the customer."""
    return f"{ctx.deps.customer} has {ctx.deps.cents}"


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def echoing(*names: str) -> ScriptedProvider:
    """A model that calls each tool, then repeats the result of the last."""
    return ScriptedProvider([*[calling(name) for name in names], lambda request: results(request)[-1]])


def results(request: Any) -> list[str]:
    """The texts of the tool results in the last message of a request."""
    return [part.text for part in request.messages[-1].parts if isinstance(part, ToolResultPart)]


ASKING = '(list (content (balance)) (ask-human "on?") (content (balance)))'
"""A program that calls the tool, waits for a person, and calls it again."""

# -- given to a run -------------------------------------------------------------------------------------------------


async def test_a_tool_reads_the_deps_of_its_run() -> None:
    """``flow.run(call, deps=x)``: the tool that declares ``CallContext[Bank]`` finds x in ``ctx.deps``; the model sees no such parameter."""
    model = echoing("balance")
    async with AgentFlow(provider=model) as flow:

        @flow.task(tools=[balance])
        async def support(question: str) -> str:
            """Answer {{question}}."""

        assert (await flow.run(support("How much?"), deps=Bank("ada", 5))).value == "ada has 5"
    assert model.requests[0].tools[0].input_schema.get("properties") == {}


async def test_each_door_takes_deps(tmp_path: Path) -> None:
    """``ask``, ``stream``, ``start`` and ``solve`` take ``deps=`` as ``run`` does."""
    bank = Bank("ada", 5)
    async with AgentFlow(
        provider=ScriptedProvider(lambda request: results(request)[-1] if results(request) else calling("balance")),
        durable=f"sqlite:///{tmp_path}/runs.db",
    ) as flow:

        @flow.task(tools=[balance])
        async def support(question: str) -> str:
            """Answer {{question}}."""

        assert await flow.ask("How much?", tools=[balance], deps=bank) == "ada has 5"
        async with flow.stream(support("x"), deps=bank) as run:
            assert await run.value() == "ada has 5"
        assert (await (await flow.start(support("x"), deps=bank)).result()).value == "ada has 5"
    async with AgentFlow(provider=ScriptedProvider(["(balance)"]), tools=[balance]) as flow:
        assert await flow.solve("the balance", allow=["balance"], deps=bank) == "ada has 5"


async def test_runs_side_by_side_have_their_own() -> None:
    """A hundred runs of one flow at once: each tool sees the deps of its own run, and no other."""
    async with AgentFlow(
        provider=ScriptedProvider(lambda request: results(request)[-1] if results(request) else calling("balance"))
    ) as flow:

        @flow.task(tools=[balance])
        async def support(question: str) -> str:
            """Answer {{question}}."""

        runs = [flow.run(support("x"), deps=Bank(str(n), n)) for n in range(100)]
        values = [each.value for each in await asyncio.gather(*runs)]
    assert values == [f"{n} has {n}" for n in range(100)]


async def test_workflows_branches_and_nested_runs_inherit_them() -> None:
    """``flow.deps()`` in a workflow, its branches and a run within it gives the run's; a nested run may have its own."""
    async with AgentFlow(provider=ScriptedProvider(lambda request: "ok")) as flow:

        @flow.workflow
        async def inner() -> str:
            return flow.deps(Bank).customer

        @flow.workflow
        async def outer() -> list[str]:
            branches = await flow.map(lambda _: inner(), range(2))
            alone = await flow.run(inner())
            other = await flow.run(inner(), deps=Bank("bob"))
            return [flow.deps().customer, *branches, alone.value, other.value, await inner()]

        value = (await flow.run(outer(), deps=Bank("ada"))).value
    assert value == ["ada", "ada", "ada", "ada", "bob", "ada"]


async def test_a_question_in_a_workflow_may_have_its_own() -> None:
    """``flow.ask(..., deps=other)`` within a run: its tools read these, and the run has its own again afterwards."""
    async with AgentFlow(
        provider=ScriptedProvider(lambda request: results(request)[-1] if results(request) else calling("balance"))
    ) as flow:

        @flow.workflow
        async def both() -> list[str]:
            own = await flow.ask("x", tools=[balance])
            other = await flow.ask("x", tools=[balance], deps=Bank("bob", 1))
            return [own, other, flow.deps(Bank).customer]

        assert (await flow.run(both(), deps=Bank("ada", 2))).value == ["ada has 2", "bob has 1", "ada"]


async def test_programs_call_tools_with_the_deps_of_their_run() -> None:
    """A tool that a program calls reads them too, on both surfaces."""
    async with AgentFlow(tools=[balance]) as flow:
        assert (await flow.run("(balance)", deps=Bank("ada", 1))).value.content == "ada has 1"
        assert (await flow.run("balance()", deps=Bank("ada", 1), surface="python")).value == "ada has 1"


async def test_a_system_prompt_may_be_a_function_of_the_call() -> None:
    """``system=`` as a function of ``ctx``, async or plain, gives the system prompt of each call after the flow's own."""
    model = ScriptedProvider(lambda request: request.system)

    async def greeting(ctx: CallContext[Bank]) -> str:
        return f"The customer is {ctx.deps.customer}."

    async with AgentFlow(provider=model, system="Be brief.") as flow:

        @flow.task(system=greeting)
        async def support(question: str) -> str:
            """Answer {{question}}."""

        assert (await flow.run(support("x"), deps=Bank("ada"))).value == "Be brief.\n\nThe customer is ada."
        assert await flow.ask("x", system=lambda ctx: f"For {ctx.deps.customer}", deps=Bank("bob")) == (
            "Be brief.\n\nFor bob"
        )


# -- made by the flow -----------------------------------------------------------------------------------------------


async def test_the_flow_makes_deps_for_each_run() -> None:
    """``AgentFlow(deps=function)``: called for each run with those of its facts that it names; ``deps=`` of a run wins."""

    def make(run_id: str, labels: Any) -> Bank:
        return Bank(f"{run_id} of {labels['user']}")

    async with AgentFlow(deps=make) as flow:

        @flow.workflow
        async def who() -> str:
            return flow.deps(Bank).customer

        assert (await flow.run(who(), run_id="r1", labels={"user": "ada"})).value == "r1 of ada"
        assert (await flow.run(who(), deps=Bank("bob"))).value == "bob"


@pytest.mark.parametrize("kind", ["async context manager", "context manager", "coroutine", "object to be entered"])
async def test_deps_are_entered_and_released_around_a_run(kind: str) -> None:
    """Context managers, plain and async, are entered when the run begins and released when its work has ended, also after a failure."""
    log: list[str] = []

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Bank]:
        log.append("open")
        try:
            yield Bank("ada")
        finally:
            await asyncio.sleep(0)
            log.append("closed")

    @contextmanager
    def plain() -> Generator[Bank]:
        log.append("open")
        yield Bank("ada")
        log.append("closed")

    async def awaited() -> Bank:
        log.extend(["open", "closed"])
        return Bank("ada")

    class Session:
        customer = "ada"

        async def __aenter__(self) -> Session:
            log.append("open")
            return self

        async def __aexit__(self, *_: object) -> None:
            log.append("closed")

    factory: Any = {
        "async context manager": opened,
        "context manager": plain,
        "coroutine": awaited,
        "object to be entered": Session,
    }[kind]
    async with AgentFlow(deps=factory) as flow:

        @flow.workflow
        async def who() -> str:
            return flow.deps().customer

        assert (await flow.run(who())).value == "ada"
        assert log == ["open", "closed"]
        if kind == "async context manager":
            log.clear()
            with pytest.raises(AgentflowError):
                await flow.run("(+ 1 nil)")
            assert log == ["open", "closed"]


async def test_a_run_fails_with_the_error_of_its_deps() -> None:
    """What the function raises is the error of the run, which has its Finished event; an exit is contained."""
    events: list[str] = []

    def broken() -> Bank:
        raise ConnectionError("no database")

    def leaving() -> Bank:
        raise SystemExit(3)

    async with AgentFlow(deps=broken) as flow:
        flow.subscribe(lambda event: events.append(type(event).__name__))
        with pytest.raises(ConnectionError, match="no database"):
            await flow.run("1")
    assert events[0] == "RunStarted" and events[-1] == "RunFinished"
    async with AgentFlow(deps=leaving) as flow:
        with pytest.raises(AgentflowError, match=r"sys\.exit"):
            await flow.run("1")
        assert (await flow.run("1", deps=1)).value == 1


async def test_an_error_of_the_release_fails_a_run_that_succeeded() -> None:
    """A commit that fails when the deps are released is not lost: the run fails. It never hides the run's own failure."""

    @asynccontextmanager
    async def committing() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            raise OSError("commit failed")

    async with AgentFlow(deps=committing) as flow:
        with pytest.raises(OSError, match="commit failed"):
            await flow.run("1")

        @flow.workflow
        async def failing() -> None:
            raise ValueError("own failure")

        with pytest.raises(ValueError, match="own failure"):
            await flow.run(failing())


# -- durable runs ---------------------------------------------------------------------------------------------------


async def test_deps_are_made_again_when_a_run_is_resumed(tmp_path: Path) -> None:
    """A durable run that waited and is continued by another flow has deps made by that flow, with the same run id."""
    seen: list[str] = []

    def app() -> AgentFlow:
        def make(run_id: str) -> Bank:
            seen.append(run_id)
            return Bank(run_id)

        return AgentFlow(tools=[balance], deps=make, durable=f"sqlite:///{tmp_path}/runs.db")

    async with app() as flow:
        await (await flow.start(ASKING, run_id="r")).wait()
    async with app() as flow:
        await flow.send("r", (await flow.questions("r"))[0].key, "yes")
        value = (await (await flow.resume("r")).result()).value
    assert value == ["r has 0", "yes", "r has 0"]
    assert set(seen) == {"r"} and len(seen) >= 2


async def test_a_run_that_was_given_deps_is_not_resumed_without(tmp_path: Path) -> None:
    """They are never stored: resuming without them is ``durable/deps`` before any code runs, and works with them."""
    url = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(tools=[balance], durable=url) as flow:
        await (await flow.start(ASKING, run_id="r", deps=Bank("ada", 1))).wait()
    async with AgentFlow(tools=[balance], durable=url) as flow:
        with pytest.raises(JournalError, match="started with deps=") as error:
            await flow.resume("r")
        assert error.value.code == "durable/deps"
        run = await flow.resume("r", deps=Bank("ada", 2))
        await run.wait()
        await flow.send("r", (await flow.questions("r"))[0].key, "yes")
        assert (await run.result()).value == ["ada has 1", "yes", "ada has 2"]


async def test_a_run_without_its_deps_can_be_cancelled(tmp_path: Path) -> None:
    """Cancelling needs no dependencies: the run ends without clean-up."""
    url = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(tools=[balance], durable=url) as flow:
        await (await flow.start('(ask-human "on?")', run_id="r", deps=1)).wait()
    async with AgentFlow(tools=[balance], durable=url) as flow:
        await flow.cancel("r")
        run = await flow.find_run("r")
    assert run is not None and run.status == "cancelled"


# -- context variables ----------------------------------------------------------------------------------------------


async def test_context_variables_of_the_caller_are_seen_everywhere(tmp_path: Path) -> None:
    """A context variable that the caller set is seen in async and plain tools, branches, threads and durable runs of this process."""

    async def here() -> str:
        """Say who."""
        return USER.get()

    def in_thread() -> str:
        """Say who, in a thread."""
        return USER.get()

    async with AgentFlow(
        provider=echoing("in_thread"), tools=[here, in_thread], durable=f"sqlite:///{tmp_path}/runs.db"
    ) as flow:

        @flow.workflow
        async def everywhere() -> list[str]:
            named = await flow.map(lambda name: flow.call_tool(name), ["here", "in_thread"])
            return [USER.get(), *named, await asyncio.to_thread(USER.get), await flow.step(in_thread)]

        USER.set("ada")
        assert (await flow.run(everywhere())).value == ["ada"] * 5
        assert [each.content for each in (await flow.run("(parallel (here) (in_thread))")).value] == ["ada"] * 2
        assert await flow.ask("x", tools=[in_thread]) == "ada"
        run = await flow.start(everywhere())
        assert (await run.result()).value == ["ada"] * 5


# -- the wrong ones that a user tries first -------------------------------------------------------------------------


async def test_deps_of_another_class_are_an_error_before_the_model_is_asked() -> None:
    """A tool declares ``CallContext[Bank]`` and the run has none, or others: ``config/deps`` says both, and nothing is paid."""
    model = echoing("balance")
    async with AgentFlow(provider=model) as flow:
        for wrong in (None, Other()):
            with pytest.raises(ConfigurationError, match=r"CallContext\[Bank\]") as error:
                await flow.ask("x", tools=[balance], deps=wrong)
            assert error.value.code == "config/deps"
            assert "deps=Bank(" in (error.value.hint or "")
    assert not model.requests


async def test_deps_of_the_flow_are_a_function() -> None:
    """``AgentFlow(deps=Bank())`` would be one object for all runs: the error says to write a function; so does one that
    needs something that no run has."""
    for wrong in (Bank("ada"), lambda user: user):
        with pytest.raises(ConfigurationError, match="deps=") as error:
            AgentFlow(deps=cast(Any, wrong))
        assert error.value.code == "config/deps"
        assert "def deps(run_id)" in (error.value.hint or "")


async def test_deps_are_no_option_of_a_task() -> None:
    """``@flow.task(deps=...)`` and ``deps_type=`` say where dependencies belong."""
    async with AgentFlow() as flow:
        for name in ("deps", "deps_type"):
            with pytest.raises(ConfigurationError, match="has no option") as error:
                flow.task(**cast(Any, {name: Bank}))(balance)
            assert "flow.run(call, deps=" in (error.value.hint or "")


async def test_reuse_of_a_task_whose_tools_read_deps_needs_a_key(tmp_path: Path) -> None:
    """Equal calls of two users may be answered differently: ``reuse=`` is refused without ``reuse_key=``."""
    async with AgentFlow(durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        for options in ({"tools": [balance]}, {"system": lambda ctx: "x"}):
            with pytest.raises(ConfigurationError, match="dependencies of a run") as error:
                flow.ask("x", reuse="1d", **cast(Any, options))
            assert error.value.code == "config/reuse-key"


@pytest.mark.parametrize("where", ["system", "ask", "tool", "check", "body", "method", "around"])
async def test_what_is_reused_is_that_of_the_key(where: str, tmp_path: Path) -> None:
    """``reuse_key=`` says for whom a result holds, whatever made the key necessary: no user is given what another was told."""
    model = ScriptedProvider(lambda request: f"{request.system} {request.messages[-1].text}")

    async def guard(request: Any, run: Any, ctx: CallContext) -> Any:
        return (await run(request)).with_text(ctx.deps.customer)

    class Desk:
        def __init__(self, name: str) -> None:
            self.name = name

        async def say(self, question: str) -> str:
            return f"{self.name} asks"

    async with AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        async def told(name: str, **key: Any) -> str:
            bank, reuse = Bank(name, 1), {"reuse": "1d", **key}
            options: dict[str, Any] = {
                "system": {"system": lambda ctx: f"For {ctx.deps.customer}"},
                "tool": {"tools": [balance], "check": lambda value, ctx: ctx.deps.customer},
                "check": {"check": lambda value, ctx: ctx.deps.customer},
                "around": {"around_model": [guard]},
            }.get(where, {})
            if where == "ask":
                return await flow.ask("x", system=lambda ctx: ctx.deps.customer, deps=bank, **reuse)
            if where == "method":
                return await flow.task(**reuse)(Desk(name).say)("x")

            async def say(question: str) -> str:
                """{{question}}"""

            async def body(question: str) -> str:
                return f"{name} asks"

            task = flow.task(**options, **reuse)(body if where == "body" else say)
            return (await flow.run(task("x"), deps=bank)).value

        with pytest.raises(ConfigurationError) as error:
            await told("ada")
        assert error.value.code == "config/reuse-key"
        answers = [await told(name, reuse_key=name) for name in ("ada", "bob", "ada", "bob")]
        assert ["ada" in answers[0], "bob" in answers[1], "ada" in answers[1]] == [True, True, False]
        assert answers[2:] == answers[:2] and len(model.requests) == 2


async def test_flow_deps_outside_of_a_run_says_so() -> None:
    """``flow.deps()`` has no meaning outside of a run."""
    async with AgentFlow() as flow:
        with pytest.raises(ConfigurationError, match="outside of a run"):
            flow.deps()


@pytest.mark.parametrize("when", ["made", "entered", "left"])
async def test_deps_that_begin_a_run_of_their_flow_need_deps_for_it(when: str) -> None:
    """``flow.ask`` in the function ``deps=`` of the same flow would make dependencies for the question, without end: it is
    ``config/deps``, and works with ``deps=`` of its own, or in another flow."""
    own: list[Any] = [None]

    async def ask() -> str:
        return await flow.ask("Who is it?", **({} if own[0] is None else {"deps": own[0]}))

    @asynccontextmanager
    async def entering() -> Any:
        name = await ask() if when == "entered" else "ada"
        yield Bank(name)
        if when == "left":
            await ask()

    async def making() -> Any:
        return Bank(await ask())

    flow = AgentFlow(provider=ScriptedProvider(lambda request: "ada"), deps=making if when == "made" else entering)
    async with flow:

        @flow.workflow
        async def who() -> str:
            """The customer."""
            return flow.deps(Bank).customer

        for _ in range(2):
            with pytest.raises(ConfigurationError, match="same flow") as error:
                await flow.run(who())
            assert error.value.code == "config/deps" and "deps=" in (error.value.hint or "")
        own[0] = {}
        assert (await flow.run(who())).value == "ada"


@pytest.mark.parametrize("option", ["tools", "check", "system"])
async def test_a_type_that_the_module_does_not_know_is_told(option: str) -> None:
    """A class of dependencies that a function has defined, or that is imported under TYPE_CHECKING: the error names it and what to do."""

    class Local:
        pass

    def chosen(ctx: CallContext[Local]) -> Any:
        raise AssertionError

    def checked(value: str, ctx: CallContext[Local]) -> str:
        raise AssertionError

    async with AgentFlow() as flow:
        with pytest.raises(ConfigurationError, match="Local") as error:
            await flow.ask("x", **cast(Any, {option: checked if option == "check" else chosen}))
    assert "import or define them there" in (error.value.hint or "")
