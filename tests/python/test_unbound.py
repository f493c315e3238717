"""Tasks and workflows that are declared without a flow: each flow that runs them has its own models and tools for them."""

from __future__ import annotations

import asyncio
import gc
import inspect
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agentflow
from agentflow import AgentFlow, CallContext, Handoff, Retry, ScriptedProvider, Session, TaskResult, ToolCall, tool
from agentflow.errors import ConfigurationError, DataError, JournalError, SexpEvaluationError


def echoing(name: str = "") -> ScriptedProvider:
    """A model that gives back the last text it was sent, after its name."""
    return ScriptedProvider(lambda request: name + request.messages[-1].text)


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


@agentflow.task(system="You review code.")
async def review(path: str) -> str:
    """Review {{path}}."""


@agentflow.workflow
async def audit(paths: list[str]) -> list[str]:
    """Review files."""
    return [await review(path) for path in paths]


async def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


@agentflow.task(tools=[weather])
async def advise(question: str) -> str:
    """{{question}}"""


@agentflow.task(history=True)
async def billing(problem: str) -> str:
    """Billing: {{problem}}"""


@agentflow.task(handoffs=[billing], history=True)
async def triage(question: str) -> str:
    """{{question}}"""


async def test_a_task_without_a_flow_runs_in_the_flow_that_calls_it() -> None:
    """``flow.run(review("a.py"))``, awaited in a workflow, in its branches, in a tool: with that flow's model, two flows at once."""
    first, second = echoing("1 "), echoing("2 ")
    async with AgentFlow(provider=first) as one, AgentFlow(provider=second) as two:

        @two.workflow
        async def both() -> list[str]:
            """Review in this flow and in the other."""
            here = await two.map(review, ["a", "b"])
            return [*here, *await two.parallel(review("c"), review("d")), (await one.run(review("e"))).value]

        async def look(path: str) -> str:
            """Look at a file."""
            return await review(path)

        results = await asyncio.gather(one.run(audit(["x", "y"])), two.run(both()))
        assert results[0].value == ["1 Review x.", "1 Review y."]
        assert results[1].value == [f"2 Review {name}." for name in "abcd"] + ["1 Review e."]
        assert all(["You review code." in request.system for request in [*first.requests, *second.requests]])
        assert await one.map(review, ["z"]) == ["1 Review z."], "a run of its own"
        async with two.stream(review("s")) as run:
            assert await run.value() == "2 Review s."
        second.__init__([calls("look", path="t"), "2 inner", "2 done"])  # type: ignore[misc]
        assert await two.ask("Look.", tools=[look]) == "2 done"
        assert second.requests[1].messages[-1].text == "Review t."


async def test_a_flow_reads_the_tools_of_a_task_against_its_own() -> None:
    """A function in ``tools=`` that the flow has with an approval is that tool there, and needs the approval there alone."""
    script = [calls("weather", city="Oslo"), "done"]
    asked: list[str] = []

    def no(request: Any) -> bool:
        asked.append(request.tool)
        return False

    async with AgentFlow(provider=ScriptedProvider(script), approve=no) as careful:
        careful.tool(weather, approval=True)
        assert (await careful.run(advise("x"))).value == "done" and len(asked) == 1
    model = ScriptedProvider(script)
    async with AgentFlow(provider=model, approve=no) as free:
        assert (await free.run(advise("x"))).value == "done" and len(asked) == 1
        assert "rain in Oslo" in str(model.requests[1].messages[-1].parts)


async def test_tasks_without_a_flow_are_tools_and_receive_handoffs() -> None:
    """In ``tools=``, in ``handoffs=`` and in what a tool returns they are tasks of the flow in whose run they stand."""

    async def give_away() -> Handoff:
        """Hand over."""
        return Handoff(billing, {"problem": "late"})

    script = [calls("review", path="a"), "reviewed", calls("audit", paths=["b"]), "b is fine", "all done"]
    model = ScriptedProvider(script)
    async with AgentFlow(provider=model) as flow:
        assert await flow.ask("x", tools=[review, audit]) == "all done"
        assert [request.messages[-1].text for request in model.requests][1::2] == ["Review a.", "Review b."]
        assert "You review code." in model.requests[3].system
        for first in (calls("transfer_to_billing", problem="twice"), calls("give_away")):
            model.__init__([first, "paid back"])  # type: ignore[misc]
            session, asker = (
                Session(),
                triage if first["tool_calls"][0]["arguments"] else triage.with_options(tools=[give_away]),
            )
            assert (await flow.run(asker("You charged me!"), session=session)).value == "paid back"
            assert session.agent == "billing"


async def test_options_are_those_of_a_task_of_a_flow() -> None:
    """``with_options``, checks, dependencies and results of other types work as they do with ``@flow.task``."""

    def short(value: str, ctx: CallContext[dict[str, str]]) -> str:
        if len(value) > 3:
            raise Retry(f"{ctx.deps['user']} wants it shorter")
        return value

    model = ScriptedProvider(["too long", "ok"])
    async with AgentFlow(provider=model) as flow:
        strict = review.with_options(check=short, system="Be brief.", name="strict")
        assert (await flow.run(strict("a"), deps={"user": "ada"})).value == "ok"
        assert "Be brief." in model.requests[0].system and "ada wants it shorter" in str(model.requests[1].messages)
        model.__init__(["fine"])  # type: ignore[misc]

        @agentflow.task
        async def whole(topic: str) -> TaskResult:
            return f"All about {topic}"  # type: ignore[return-value]

        result = (await flow.run(whole("cats"))).value
        assert result.content == "fine" and model.requests[0].messages[-1].text == "All about cats"
        assert inspect.signature(review).parameters.keys() == {"path"} and review.__doc__ == "Review {{path}}."


async def test_awaited_outside_of_a_run_it_says_so() -> None:
    """No flow is guessed: ``python/no-flow`` says to write ``flow.run(review(...))``; so it does in a run without a host."""
    for call in (review("a"), audit(["a"])):
        with pytest.raises(ConfigurationError) as error:
            await call
        assert error.value.code == "python/no-flow" and f"flow.run({call.name}(...))" in (error.value.hint or "")
        assert "tests.python.test_unbound" in error.value.message
    async with AgentFlow(provider=echoing()) as flow:
        call = review("a")
        assert (await flow.run(call)).value == "Review a."
        with pytest.raises(Exception, match="has begun already"):
            await flow.run(call)
        flow.tools.add(audit.tool)
        failed = (await flow.run('(audit (paths (list "a")))')).value
        assert failed.error.code == "python/no-flow", "a tool that was made without the flow"
    with pytest.warns(RuntimeWarning, match="never awaited"):
        review("a")
        gc.collect()


async def test_mistakes_are_told_where_the_task_is_declared() -> None:
    """A wrong option, a slot without a parameter, a missing docstring: when it is declared, before there is a flow."""
    with pytest.raises(ConfigurationError, match="instructions") as error:
        agentflow.task(instructions="x")(weather)  # type: ignore[call-overload]
    assert error.value.code == "config/option"
    with pytest.raises(DataError, match="undeclared"):

        @agentflow.task
        async def wrong(path: str) -> str:
            """Look at {{path}} and {{undeclared}}."""

    with pytest.raises(ConfigurationError, match="not an async function"):

        @agentflow.task  # type: ignore[arg-type]
        def plain(path: str) -> str:
            """{{path}}"""

    with pytest.raises(ConfigurationError, match="not a list of tools"):
        agentflow.task(tools=weather)(review.__wrapped__)  # type: ignore[attr-defined]
    async with AgentFlow(provider=echoing()) as flow:
        with pytest.raises(ConfigurationError, match="is a task already") as again:
            flow.task(review)
        assert "AgentFlow(tasks=[" in (again.value.hint or "")


async def test_programs_find_the_tasks_that_a_flow_is_given(tmp_path: Path) -> None:
    """``AgentFlow(tasks=[review, audit, "templates"])``: programs call them by name; without that they are not there."""
    (tmp_path / "say.xml").write_text('<task name="say" params=""><instructions>Say it.</instructions></task>', "utf-8")
    async with AgentFlow(provider=echoing(), tasks=[review, audit, tmp_path]) as flow:
        assert (await flow.run('(value-of (review (path "a")))')).value == "Review a."
        assert (await flow.run('audit(paths=["b"])', surface="python")).value == ["Review b."]
        assert (await flow.run("(value-of (say))")).value == "Say it."
        assert (await flow.run(audit(["c"]))).value == ["Review c."]
    async with AgentFlow(provider=echoing()) as flow:
        with pytest.raises(SexpEvaluationError, match="review"):
            await flow.run('(review (path "a"))')


async def test_a_flow_is_given_tasks_and_nothing_else() -> None:
    """A plain function, one task and no list, a task of another flow, two of one name: ``config/option`` says what to write."""
    async with AgentFlow(provider=echoing()) as other:

        @other.task
        async def theirs(path: str) -> str:
            """{{path}}"""

        twin = review.with_options(system="Be rude.")
        for wrong, hint in (
            ([weather], "@agentflow.task"),
            (review, "tasks=[review]"),
            ([theirs], "@agentflow.task"),
            ([review, twin], "with_options(name="),
        ):
            with pytest.raises(ConfigurationError) as error:
                AgentFlow(provider=echoing(), tasks=wrong)  # type: ignore[arg-type]
            assert error.value.code == "config/option" and hint in (error.value.hint or "")


async def test_a_durable_run_finds_its_task_again(tmp_path: Path) -> None:
    """With ``tasks=[...]`` a run that waits goes on in another flow, as a copy with a name does; without, starting is an error
    that says so, and so is resuming."""

    @agentflow.workflow
    async def shop(what: str) -> str:
        """Ask, then review."""
        return f"{await review(what)} {await ask_human()}"

    async def ask_human() -> bool:
        return await hosts[-1].ask_human("Pay?", bool)

    def flow_with(*tasks: Any) -> AgentFlow:
        hosts.append(AgentFlow(provider=echoing(), durable=f"sqlite:///{tmp_path}/runs.db", tasks=tasks))
        return hosts[-1]

    hosts: list[AgentFlow] = []
    named = review.with_options(name="named", system="x")
    async with flow_with() as flow:
        for call in (shop("a"), review("a")):
            with pytest.raises(ConfigurationError) as error:
                await flow.start(call)
            assert error.value.code == "python/not-durable" and "AgentFlow(tasks=[" in (error.value.hint or "")
    async with flow_with(shop, named) as flow:
        assert (await (await flow.start(named("n"), run_id="n")).result()).value == "Review n."
        await (await flow.start(shop("a"), run_id="r")).wait()
        with pytest.raises(ConfigurationError, match="copy"):
            await flow.start(review.with_options(system="y")("a"))
    async with flow_with(named) as flow:
        with pytest.raises(JournalError) as unknown:
            await flow.resume("r")
        assert unknown.value.code == "durable/unknown-function"
        assert "tasks=[" in (unknown.value.hint or "")
    async with flow_with(shop) as flow:
        await (await flow.resume("r")).wait()
        await flow.send("r", (await flow.questions("r"))[0].key, True)
        run = await flow.resume("r")
        assert (await run.result()).value == "Review a. True"


@agentflow.workflow
async def side_by_side(paths: list[str]) -> list[str]:
    """Review files at once, as asyncio does."""
    async with asyncio.TaskGroup() as group:
        inner = group.create_task(audit(["inner"]))
    return [*await asyncio.gather(*[review(path) for path in paths]), *inner.result()]


async def test_a_workflow_without_a_flow_has_branches_of_asyncio(tmp_path: Path) -> None:
    """``gather`` and a TaskGroup over calls without a flow are branches of the run, in a durable one too, which pays once."""
    expected = ["Review a.", "Review b.", "Review inner."]
    for turn in range(2):
        model = echoing()
        url = f"sqlite:///{tmp_path}/runs.db"
        async with AgentFlow(provider=model, durable=url, tasks=[side_by_side]) as flow:
            assert (await flow.run(side_by_side(["a", "b"]))).value == expected
            assert (await (await flow.start(side_by_side(["a", "b"]), run_id="r")).result()).value == expected
            assert len(model.requests) == (6, 3)[turn]


async def test_a_flow_keeps_no_task_alive() -> None:
    """Copies that a host makes for each request are gone with it, though a flow has bound them."""
    async with AgentFlow(provider=echoing()) as flow:
        copy = review.with_options(system="x")
        assert (await flow.run(copy("a"))).value == "Review a."
        gone = weakref.ref(copy)
        del copy
        gc.collect()
        assert gone() is None


class Support:
    """An agent with a customer."""

    def __init__(self, customer: str) -> None:
        self.customer = customer

    @tool
    async def balance(self, currency: str) -> str:
        """The balance of the customer."""
        return f"{self.customer} has 5 {currency}"

    async def guard(self, call: ToolCall, run: Any, ctx: CallContext) -> TaskResult:
        return replace(await run(call), content=f"guarded for {self.customer}")

    def polite(self, ctx: CallContext) -> str:
        return f"You talk to {self.customer}."

    @agentflow.task
    async def bill(self, problem: str) -> str:
        """Bill: {{problem}}"""

    @agentflow.task(tools=[balance], system=polite, handoffs=[bill])
    async def reply(self, question: str) -> str:
        return f"{self.customer} asks: {question}"

    @agentflow.task(tools=[balance], around_tool=[guard])  # type: ignore[list-item]
    async def guarded(self, question: str) -> str:
        """{{question}}"""

    @agentflow.workflow
    async def handle(self, questions: list[str]) -> list[str]:
        """Answer several questions."""
        return [await self.reply(question) for question in questions]

    async def plain(self, question: str) -> str:
        """{{question}}"""

    async def twice(self, question: str) -> str:
        """Ask twice."""
        return await self.reply(question) + await self.reply(question)


async def test_methods_are_tasks_with_the_tools_of_their_object() -> None:
    """``self`` is not a parameter; the body, the tools, the system function and handoffs that are methods are those of the object."""
    model = ScriptedProvider([calls("balance", currency="EUR"), calls("transfer_to_bill", problem="x"), "done"])
    ada, bob = Support("ada"), Support("bob")
    async with AgentFlow(provider=model) as flow:
        assert (await flow.run(ada.reply("Why?"))).value == "done"
        first, second, third = model.requests
        assert first.messages[-1].text == "ada asks: Why?" and "You talk to ada." in first.system
        assert set(first.tools[0].input_schema["properties"]) == {"currency"}
        assert "ada has 5 EUR" in str(second.messages[-1].parts) and third.messages[-1].text.endswith("Bill: x")
        model.__init__([calls("balance", currency="EUR"), "done"])  # type: ignore[misc]
        assert (await flow.run(bob.guarded("?"))).value == "done"
        assert "guarded for bob" in str(model.requests[1].messages[-1].parts)
        model.__init__(lambda request: request.messages[-1].text)  # type: ignore[misc]
        assert (await flow.run(bob.handle(["a", "b"]))).value == ["bob asks: a", "bob asks: b"]
        assert (await flow.run(Support.handle(bob, ["c"]))).value == ["bob asks: c"]
        assert await flow.map(ada.reply, ["d"]) == ["ada asks: d"]
        assert (await flow.run(ada.reply.with_options(system="x")("e"))).value == "ada asks: e"
        asked = await asyncio.gather(*[flow.run(each.reply("x")) for each in (ada, bob)])
        assert [each.value for each in asked] == ["ada asks: x", "bob asks: x"]


async def test_methods_of_an_object_belong_to_a_flow() -> None:
    """``flow.task(obj.method)``, ``flow.workflow(obj.method)``, ``flow.tool(obj.method)``, ``tools=[obj.method]``; ``@flow.task``
    in a class is a task of that flow on each object."""
    model = echoing()
    ada = Support("ada")
    async with AgentFlow(provider=model) as flow:
        plain, twice = flow.task(ada.plain), flow.workflow(ada.twice)
        assert (await flow.run(plain("x"))).value == "x"
        assert (await flow.run(twice("x"))).value == "ada asks: xada asks: x"
        assert (await flow.run('(value-of (plain (question "y")))')).value == "y"
        flow.tool(ada.balance)
        assert (await flow.run('(balance (currency "EUR"))')).value.content == "ada has 5 EUR"

        class Writer:
            style = "short"

            @flow.task
            async def write(self, topic: str) -> str:
                return f"{self.style}: {topic}"

            @flow.workflow
            async def book(self, topics: list[str]) -> list[str]:
                return await flow.map(self.write, topics)

        assert await Writer().write("cats") == "short: cats"
        assert await Writer().book(["a", "b"]) == ["short: a", "short: b"]
        assert flow.engine.tasks.find_template("write") is None, "programs have no object to call it on"


async def test_a_method_without_an_object_says_so() -> None:
    """Called through its class, or a tool or given to a flow without an object: ``python/method`` or ``config/option``, never a
    parameter ``self`` that a model fills in."""
    async with AgentFlow(provider=echoing()) as flow:
        for wrong in (
            lambda: Support.reply("Why?"),  # type: ignore[arg-type, call-arg]
            lambda: Support.handle(),  # type: ignore[call-arg]
            lambda: flow.tool(Support.balance),
            lambda: flow.ask("x", tools=[Support.balance]),
        ):
            with pytest.raises(ConfigurationError) as error:
                wrong()
            assert error.value.code == "python/method"
        with pytest.raises(ConfigurationError) as given:
            AgentFlow(provider=echoing(), tasks=[Support.reply])
        assert "support.reply" in (given.value.hint or "")


async def test_a_durable_run_finds_the_object_that_a_flow_was_given(tmp_path: Path) -> None:
    """``AgentFlow(tasks=[ada.handle])`` says whose method a stored run means; another object's is ``python/not-durable``, and two
    of one class need names."""
    ada, bob = Support("ada"), Support("bob")
    url = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(provider=echoing(), durable=url, tasks=[ada.handle, ada.reply]) as flow:
        assert (await (await flow.start(ada.reply("x"), run_id="r")).result()).value == "ada asks: x"
        assert (await (await flow.start(ada.handle(["y"]), run_id="h")).result()).value == ["ada asks: y"]
        for call in (bob.reply("x"), ada.bill("x")):
            with pytest.raises(ConfigurationError) as error:
                await flow.start(call)
            assert error.value.code == "python/not-durable"
    with pytest.raises(ConfigurationError, match="the name of another"):
        AgentFlow(provider=echoing(), tasks=[ada.reply, bob.reply])
    theirs = bob.reply.with_options(name="reply-bob")
    async with AgentFlow(provider=echoing(), durable=url, tasks=[ada.reply, theirs]) as flow:
        assert (await (await flow.start(theirs("x"))).result()).value == "bob asks: x"
        assert (await (await flow.resume("r")).result()).value == "ada asks: x"
