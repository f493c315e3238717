"""The key of a kept answer: versions, the code of middleware, the tasks below, and what is carried out anew all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ConfigurationError, ScriptedProvider
from agentflow.evals import Case, tool_called
from agentflow.handler.tools import tool_from_function
from tests.evals.test_evaluate import CASES, Model

LOOKED: list[str] = []


async def look(question: str) -> str:
    """Look it up."""
    LOOKED.append(question)
    return f"facts, number {len(LOOKED)}"


async def below(question: str) -> str:
    """Below: {{question}}"""
    raise NotImplementedError


async def above(question: str) -> str:
    """Answer: {{question}}"""
    raise NotImplementedError


async def plain(request: Any, run: Any, ctx: CallContext) -> Any:
    """Middleware that holds nothing."""
    return await run(request)


def holding(version: str = "") -> Any:
    """Middleware that holds a list, with a version or without."""
    seen: list[Any] = []

    async def noting(request: Any, run: Any, ctx: CallContext) -> Any:
        seen.append(request)
        return await run(request)

    if version:
        noting.__version__ = version  # type: ignore[attr-defined]
    return noting


async def evaluated(path: Path, model: Model, *, version: str | None = None, **options: Any) -> int:
    """The calls that one evaluation of one case pays for, in a flow of its own over one database."""
    settings: Any = {} if version is None else {"version": version}
    async with AgentFlow(provider=model.provider, durable=f"sqlite:///{path}/runs.db", **options) as flow:

        @flow.task(**settings)
        async def answer(question: str) -> str:
            """Answer: {{question}}"""
            raise NotImplementedError

        await flow.evaluate(answer, CASES[:1])
    return model.since()


async def test_a_version_of_a_task_is_part_of_its_key(tmp_path: Path) -> None:
    """Another version is another answer, and the one before is still there."""
    model = Model()
    paid = [await evaluated(tmp_path, model, version=each) for each in (None, "1", "1", "2", "1", None)]
    assert paid == [1, 1, 0, 1, 0, 0]


async def test_middleware_of_the_flow_that_holds_values_keeps_nothing(tmp_path: Path) -> None:
    """A closure may change any answer; ``__version__`` says that it does so in one way, and is part of the key."""
    model = Model()
    middleware = [plain, plain, holding(), holding(), holding("1"), holding("1"), holding("2")]
    paid = [await evaluated(tmp_path, model, around_model=[each]) for each in middleware]
    assert paid == [1, 0, 1, 1, 1, 0, 1]


async def test_a_check_with_a_version_may_hold_values(tmp_path: Path) -> None:
    """It is then known by that version, and not carried out each time."""
    model = Model()

    def checking(limit: int) -> Any:
        def check(value: str, ctx: CallContext) -> str:
            return value[:limit]

        check.__version__ = f"at most {limit}"  # type: ignore[attr-defined]
        return check

    for limit, paid in ((5, 1), (5, 0), (9, 1)):
        async with AgentFlow(provider=model.provider, durable=f"sqlite:///{tmp_path}/runs.db") as flow:

            @flow.task(check=checking(limit))
            async def answer(question: str) -> str:
                """Answer: {{question}}"""
                raise NotImplementedError

            report = await flow.evaluate(answer, CASES[:1])
            assert (model.since(), report.samples[0].value) == (paid, "<Answer: q0>"[:limit])


def researching(flow: AgentFlow, *, tools: list[Any]) -> Any:
    """A task that calls its tool ``look`` once, and gives the tool's result."""

    @flow.task(tools=tools)
    async def answer(question: str) -> str:
        """Answer: {{question}}"""
        raise NotImplementedError

    return answer


def calls_look(request: Any) -> Any:
    """A model that calls the tool ``look`` first, and then says what it gave."""
    last = request.messages[-1]
    if len(request.messages) == 1 and request.tools:
        return {"tool_calls": [{"name": request.tools[0].name, "arguments": {"question": "q"}}], "cost_usd": 0.01}
    return {"text": str(last.parts[0]) if request.tools else f"<{last.text}>", "cost_usd": 0.01}


@pytest.mark.parametrize("named", [True, False])
async def test_a_version_of_a_tool_is_part_of_the_key_of_tasks_that_may_call_it(tmp_path: Path, named: bool) -> None:
    """Whether they have it as an object, or name one of the flow; for ``reuse`` of the task and for evaluations."""
    LOOKED.clear()
    provider = ScriptedProvider(calls_look)
    for version, run, evaluated in (("1", 1, 2), ("1", 2, 2), ("2", 3, 4)):
        async with AgentFlow(provider=provider, durable=f"sqlite:///{tmp_path}/runs.db") as flow:
            if named:
                flow.tools.add(agentflow_tool(version))
            answer = researching(flow, tools=["look"] if named else [agentflow_tool(version)])
            await flow.run(answer.with_options(name="again", reuse="1d")("q"))
            assert len(LOOKED) == run
            await flow.evaluate(answer, CASES[:1])
            assert len(LOOKED) == evaluated


def agentflow_tool(version: str) -> Any:
    """The tool ``look`` in a version."""
    return tool_from_function(look, read_only=True, version=version)


async def test_a_variant_changes_the_tasks_below_a_task(tmp_path: Path) -> None:
    """A task that is a tool of another one: the answers of both change; recorded ones do not stand for it either."""
    async with AgentFlow(provider=ScriptedProvider(calls_look), durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        answer = flow.task(tools=[flow.task(below)])(above)
        seek = {"seek": {"below": {"instructions": "Seek: {{question}}"}}}
        report = await flow.evaluate(answer, CASES[:1], variants=seek)
        values = {each.variant: each.value for each in report.samples}
        assert "<Below: q>" in values["base"] and "<Seek: q>" in values["seek"]
        assert (await flow.evaluate(answer, CASES[:1], variants=seek))["seek"].calls_paid == 0
        await (await flow.start(answer("real"), run_id="real")).result()
        report = await flow.evaluate(None, [Case(run_id="real")], variants=seek)
        values = {each.variant: each.value for each in report.samples}
        assert "<Below: q>" in values["base"] and "<Seek: q>" in values["seek"]


async def test_what_is_named_in_rerun_is_carried_out_anew(tmp_path: Path) -> None:
    """With what calls it, once for the whole evaluation, and its new answers are kept; for recorded runs too."""
    LOOKED.clear()
    async with AgentFlow(provider=ScriptedProvider(calls_look), durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        answer = researching(flow, tools=[agentflow_tool("1")])

        @flow.task
        async def polish(text: str) -> str:
            """Polish: {{text}}"""
            raise NotImplementedError

        @flow.workflow
        async def program(question: str) -> str:
            return await polish(await answer(question))

        used, louder = [tool_called("look")], {"louder": {"polish": {"instructions": "Shout: {{text}}"}}}
        report = await flow.evaluate(program, CASES[:1], variants=louder, scorers=used)
        assert (len(LOOKED), report["base"].calls_paid) == (1, 3)
        report = await flow.evaluate(program, CASES[:1], variants=louder, scorers=used, rerun=["look"])
        assert (len(LOOKED), report["base"].calls_paid, report["louder"].calls_paid) == (2, 3, 1)
        assert "number 2" in report["louder"].samples[0].value
        report = await flow.evaluate(program, CASES[:1], variants=louder, scorers=used)
        assert (len(LOOKED), report["louder"].calls_paid) == (2, 0), "the new answers are kept"
        report = await flow.evaluate(program, CASES[:1], rerun=["polish"])
        assert (len(LOOKED), report["base"].calls_paid) == (2, 1)
        await (await flow.start(program("real"), run_id="real")).result()
        assert len(LOOKED) == 3
        report = await flow.evaluate(None, [Case(run_id="real")], rerun=["look"])
        assert (len(LOOKED), "number 4" in report.samples[0].value) == (4, True)
        report = await flow.evaluate(None, [Case(run_id="real")])
        assert (len(LOOKED), "number 3" in report.samples[0].value) == (4, True), "the record itself stays"


async def test_rerun_calls_nothing_that_may_not_be_repeated(tmp_path: Path) -> None:
    """A tool that does not say that it may be ends the sample, although its record could have answered."""
    LOOKED.clear()
    async with AgentFlow(provider=ScriptedProvider(calls_look), durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        answer = researching(flow, tools=[look])
        await (await flow.start(answer("real"), run_id="real")).result()
        report = await flow.evaluate(None, [Case(run_id="real")], rerun=["look"])
        assert (report.samples[0].status, len(LOOKED)) == ("blocked", 1)
        report = await flow.evaluate(None, [Case(run_id="real")], rerun=["look"], live_tools=["look"])
        assert (report.samples[0].status, len(LOOKED)) == ("done", 2)


async def test_a_wrong_rerun_says_what_to_write(tmp_path: Path) -> None:
    """One text, a name that nothing has, and a version that is not text."""
    async with AgentFlow(provider=Model().provider, durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        answer = researching(flow, tools=[agentflow_tool("1")])
        with pytest.raises(ConfigurationError, match="is one text") as wrong:
            await flow.evaluate(answer, CASES[:1], rerun="look")
        assert wrong.value.hint == "rerun=['look']"
        with pytest.raises(ConfigurationError, match="no tool or task here is called 'lok'") as wrong:
            await flow.evaluate(answer, CASES[:1], rerun=["lok"])
        assert (wrong.value.code, wrong.value.hint) == ("evals/rerun", "did you mean 'look'?")
        with pytest.raises(ConfigurationError, match="version=2: must be a text"):
            flow.tool(look, version=2)  # type: ignore[call-overload]
