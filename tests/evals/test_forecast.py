"""A forecast says what an evaluation will reuse and run, and what that costs, without a call."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, CallContext, ConfigurationError, Limits, Price, ScriptedProvider
from agentflow.evals import Case, Forecast, contains, cost, judge
from agentflow.evals.evaluation import Plan
from agentflow.evals.options import EvaluationOptions
from tests.evals.random_evaluations import CAP, WINDOW, PricedModel, RandomEvaluation, faults
from tests.evals.test_evaluate import CASES, Model, shop

LAST = {"short": {"polish": {"instructions": "Shorten: {{text}}"}}}
FIRST = {"sketch": {"draft": {"instructions": "Sketch: {{question}}"}}}


def everything(path: Path) -> list[Any]:
    """All rows of all tables."""
    if not path.exists():
        return []
    with sqlite3.connect(path) as database:
        tables = [
            name for (name,) in database.execute("select name from sqlite_master where type = 'table' order by 1")
        ]
        return [(table, database.execute(f"select * from {table}").fetchall()) for table in tables]


def numbers(forecast: Forecast, name: str) -> tuple[int, int, int]:
    """The calls that are reused, run, and may run."""
    part = forecast[name]
    return part.reused, part.runs, part.may_run


async def test_a_forecast_before_the_first_evaluation_says_what_it_does_not_know(tmp_path: Path) -> None:
    """The first call of each sample runs; what follows it depends on an answer that nobody has."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):
        await flow.runs()  # which creates the tables
        before = everything(tmp_path / "runs.db")
        forecast = await flow.evaluate(answer, CASES, variants=FIRST, scorers=[contains()], forecast=True)
        assert (model.since(), everything(tmp_path / "runs.db")) == (0, before)
        assert numbers(forecast, "base") == numbers(forecast, "sketch") == (0, 6, 0)
        assert (forecast.all.ended, forecast.all.about, forecast.all.at_most) == (12, None, None)
        assert "12 samples have a call without an earlier answer" in str(forecast)


@pytest.mark.parametrize(
    ("variants", "name", "expected", "about"),
    [
        ({}, "base", (12, 0, 0), 0.0),
        (LAST, "short", (6, 6, 0), 0.06),
        (FIRST, "sketch", (0, 6, 6), 0.12),
        ({"mini": {"*": {"model": "scripted:mini"}}}, "mini", (0, 6, 6), 0.12),
        ({"again": {}}, "again", (0, 6, 6), 0.12),
    ],
    ids=["same again", "last prompt", "first prompt", "another model", "drawn anew"],
)
async def test_a_forecast_is_what_happens(
    tmp_path: Path, variants: dict[str, Any], name: str, expected: tuple[int, int, int], about: float
) -> None:
    """For cases whose base was evaluated before, and for recorded runs."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):
        await flow.evaluate(answer, CASES)
        for each in CASES:
            await (await flow.start(answer(each["question"]), run_id=each["question"])).result()
        recorded = [Case(run_id=each["question"]) for each in CASES]
        for program, cases in ((answer, CASES), (None, recorded)):
            model.since()
            before = everything(tmp_path / "runs.db")
            forecast = await flow.evaluate(program, cases, variants=variants, scorers=[cost], forecast=True)
            assert (model.since(), everything(tmp_path / "runs.db")) == (0, before)
            reused, runs, may_run = numbers(forecast, name)
            if cases is CASES:
                assert ((reused, runs, may_run), forecast[name].about) == (expected, pytest.approx(about))
                assert numbers(forecast, "base") == (12, 0, 0) and forecast["base"].at_most == 0.0
            report = await flow.evaluate(program, cases, variants=variants, scorers=[cost])
            paid = model.since()
            assert runs <= report[name].calls_paid <= runs + may_run
            assert forecast.all.runs <= paid <= forecast.all.runs + forecast.all.may_run
            assert forecast.all.reused + forecast.all.runs + forecast.all.may_run == sum(
                [each.usage.requests for each in report.samples]
            )
            again = await flow.evaluate(program, cases, variants=variants, forecast=True)
            assert again.free and again.all.at_most == 0.0


async def test_shared_calls_count_once_and_repeats_have_their_price(tmp_path: Path) -> None:
    """A call that two variants share is made once; each draw is its own call, and what the later draws cost is told."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):
        await flow.evaluate(answer, CASES[:2])
        variants = {name: {"polish": {"instructions": f"{name}: {{{{text}}}}"}} for name in ("one", "two")}
        model.since()
        forecast = await flow.evaluate(answer, CASES[:2], variants=variants, repeat=3, forecast=True)
        assert numbers(forecast, "base") == (4, 4, 4), "two more draws of each call"
        assert numbers(forecast, "one") == (2 + 4, 2, 4), "the drafts of the base"
        assert forecast.repeats == pytest.approx(0.01 * (8 + 4 + 4))
        assert "Draws 2 to 3: about $0.1600 of it" in str(forecast)
        await flow.evaluate(answer, CASES[:2], variants=variants, repeat=3)
        assert model.since() == forecast.all.runs + forecast.all.may_run


async def test_a_call_that_depends_on_two_changes_may_run_twice(tmp_path: Path) -> None:
    """Two variants with other first prompts have two answers to polish, although both have the same old one."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):
        await flow.evaluate(answer, CASES[:2])
        model.since()
        variants = {name: {"draft": {"instructions": f"{name}: {{{{question}}}}"}} for name in ("one", "two")}
        forecast = await flow.evaluate(answer, CASES[:2], variants=variants, forecast=True)
        assert numbers(forecast, "one") == numbers(forecast, "two") == (0, 2, 2)
        await flow.evaluate(answer, CASES[:2], variants=variants)
        assert model.since() == forecast.all.runs + forecast.all.may_run


async def test_the_calls_of_judges_are_a_part_of_it(tmp_path: Path) -> None:
    """Their kept verdicts are reused where the answer is certain; elsewhere each may be asked, at what they cost before."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):
        await flow.evaluate(answer, CASES, scorers=[judge("Is it polite?")])
        model.since()
        polite = [judge("Is it polite?")]
        forecast = await flow.evaluate(answer, CASES, scorers=polite, forecast=True)
        assert (forecast.free, forecast.judges.reused, forecast.judges.about) == (True, 6, 0.0)
        forecast = await flow.evaluate(answer, CASES, variants=LAST, scorers=polite, forecast=True)
        assert (forecast.judges.reused, forecast.judges.may_run) == (6, 6)
        assert forecast.judges.about == pytest.approx(0.06) and forecast.all.about == pytest.approx(0.12)
        forecast = await flow.evaluate(answer, CASES, scorers=[judge("Is it short?")], forecast=True)
        assert (forecast.judges.runs, forecast.judges.about) == (6, None), "this judge has never judged"
        await flow.evaluate(answer, CASES, scorers=[judge("Is it short?")])
        assert model.since() == 6


async def test_the_limit_is_the_most_where_there_is_no_bound(tmp_path: Path) -> None:
    """A workflow of Python has no static bound: the words say where it stops."""
    async with shop(tmp_path, Model()) as (flow, answer):
        forecast = await flow.evaluate(answer, CASES, limits=Limits(usd=2), forecast=True)
        assert forecast.all.at_most == 2 and forecast["base"].at_most is None
        assert "no bound: stops at the limit" in str(forecast)
        forecast = await flow.evaluate(answer, CASES, forecast=True)
        assert forecast.all.at_most is None and "no bound" in str(forecast)


def test_the_options_are_those_of_the_plan() -> None:
    """Each option of ``flow.evaluate`` is a field of the plan, and each field but the program and the cases an option."""
    assert set(EvaluationOptions.__annotations__) == {each.name for each in fields(Plan)} - {"program", "cases"}


async def test_what_an_evaluation_refuses_a_forecast_refuses(tmp_path: Path) -> None:
    """With the same errors, before a call."""
    async with shop(tmp_path, Model()) as (flow, answer):
        with pytest.raises(ConfigurationError, match="variants have names"):
            await flow.evaluate(answer, CASES, variants=["short"], forecast=True)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="no option 'repeats'") as caught:
            await flow.evaluate(answer, CASES, repeats=3, forecast=True)  # type: ignore[call-arg]
        assert "repeat" in (caught.value.hint or "")
        forecast = await flow.evaluate(answer, CASES, variants={"short": {}}, forecast=True)
        with pytest.raises(ConfigurationError, match="has no variant 'shrt'") as misspelt:
            forecast["shrt"]
        assert "short" in (misspelt.value.hint or "")


class Tariff(BaseModel):
    """A typed answer."""

    euros: int


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "carried out each time"])
async def test_recorded_runs_with_tools_concurrent_tasks_and_typed_answers(tmp_path: Path, kept: bool) -> None:
    """Tools answer from the records and are not called; tasks of asyncio are branches; an old typed value leads on; a task that may not be
    kept is carried out each time, and the forecast says so."""
    called: list[str] = []
    bonus = [1]

    def reply(request: Any) -> Any:
        text = request.messages[-1].text
        called.append(text)
        return {"text": '{"euros": 3}' if "Tariff" in text else f"<{text}>", "cost_usd": 0.01}

    def closure(value: str, ctx: CallContext) -> str:
        return value * bonus[0]

    async with AgentFlow(provider=ScriptedProvider(reply), durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        async def zone(city: str) -> str:
            """The zone of a city."""
            called.append(city)
            return "A"

        flow.tool(zone, read_only=True)

        @flow.task(tools=[])
        async def tariff(zone: str) -> Tariff:
            """Tariff {{zone}}"""
            raise NotImplementedError

        @flow.task(tools=[], **({} if kept else {"check": closure}))
        async def letter(name: str, euros: int) -> str:
            """Write {{name}} {{euros}}"""
            raise NotImplementedError

        @flow.workflow
        async def inform(city: str) -> list[str]:
            euros = (await tariff(await flow.call_tool("zone", city=city))).euros
            return list(await asyncio.gather(*[letter(name, euros) for name in ("Ada", "Bob")]))

        await (await flow.start(inform("Ulm"), run_id="r")).result()
        called.clear()
        variants = {
            "rate": {"tariff": {"instructions": "The Tariff of {{zone}}"}},
            "kind": {"letter": {"instructions": "Write kindly {{name}} {{euros}}"}},
        }
        forecast = await flow.evaluate(None, [Case(run_id="r")], variants=variants, forecast=True)
        assert (numbers(forecast, "base"), numbers(forecast, "rate"), called) == ((3, 0, 0), (0, 1, 2), [])
        reused, runs, may_run = numbers(forecast, "kind")
        assert (reused, runs + may_run, runs >= 1) == (1, 2, True) and forecast["kind"].about == pytest.approx(0.02)
        await flow.evaluate(None, [Case(run_id="r")], variants=variants)
        assert len(called) == 3, "one tariff, of the same euros, and two kind letters"
        again = await flow.evaluate(None, [Case(run_id="r")], variants=variants, forecast=True)
        assert again.free is kept


async def test_a_task_and_a_text_have_a_static_bound(tmp_path: Path) -> None:
    """At the longest input and answer that the model takes; what is reused for certain leaves it at 0."""
    provider = PricedModel(0)
    prices = {"priced:*": Price(input=1.0, output=10.0)}
    async with AgentFlow(provider=provider, durable=f"sqlite:///{tmp_path}/runs.db", prices=prices) as flow:

        @flow.task(tools=[], max_output_tokens=CAP)
        async def reply(question: str) -> str:
            """Reply to {{question}}"""
            raise NotImplementedError

        one = (WINDOW * 1.0 + CAP * 10.0) / 1e6
        cases = [{"question": "a"}, {"question": "b"}]
        text = '(list (reply (question question)) (reply (question "again")))'
        forecast = await flow.evaluate(reply, cases, variants={"text": text}, forecast=True)
        assert (forecast["base"].at_most, forecast["text"].at_most) == (pytest.approx(2 * one), pytest.approx(4 * one))
        assert f"${6 * one:.4f}" in str(forecast)
        low = await flow.evaluate(reply, cases, limits=Limits(usd=one), forecast=True)
        assert low.all.at_most == pytest.approx(one), "the limit is lower"
        await flow.evaluate(reply, cases)
        assert (await flow.evaluate(reply, cases, forecast=True)).all.at_most == 0.0


async def test_a_tool_without_a_record_ends_the_forecast_of_its_sample(tmp_path: Path) -> None:
    """It is not called, also if it only reads; a report counts such samples."""
    called: list[int] = []

    async def look() -> str:
        """Look."""
        called.append(1)
        return "seen"

    async with AgentFlow(provider=Model().provider, durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        flow.tool(look, read_only=True)

        @flow.task(tools=[])
        async def reply(text: str) -> str:
            """Reply to {{text}}"""
            raise NotImplementedError

        @flow.workflow
        async def answer(question: str) -> str:
            return await reply(question + await flow.call_tool("look"))

        await flow.evaluate(answer, CASES[:1])
        called.clear()
        forecast = await flow.evaluate(answer, CASES[:1], forecast=True)
        assert (forecast.all.ended, forecast.all.about, called) == (1, None, [])


_PROGRAMS = int(os.environ.get("AGENTFLOW_FORECAST_PROGRAMS", "60"))


@pytest.mark.parametrize("part", range(6))
async def test_what_a_forecast_bounds_is_never_passed(tmp_path: Path, part: int) -> None:
    """In random programs, with random variants, repeats, judges, limits and kept results; and what is certain is so.

    ``AGENTFLOW_FORECAST_PROGRAMS=1000`` takes more programs.
    """
    bounded = 0
    for seed in range(part, _PROGRAMS, 6):
        evaluation = RandomEvaluation(seed)
        async with evaluation.flow(tmp_path / f"{seed}.db") as flow:
            forecast, report = await evaluation.evaluated(flow)
        assert not faults(evaluation, forecast, report), f"seed {seed}: {evaluation.program}\n{forecast}\n{report}"
        bounded += forecast.all.at_most is not None and forecast.all.runs > 0
    assert bounded, "some have a bound, and run something"
