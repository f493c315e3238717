"""An evaluation pays for what a variant changes and for nothing else, and leaves everything else as it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ConfigurationError, Limits, ScriptedProvider
from agentflow.errors import JournalError
from agentflow.evals import Case, calls, contains, cost, exact, judge, read_cases, tool_called
from agentflow.evals.sample import Sample

CASES = [{"question": f"q{number}", "expected": f"q{number}"} for number in range(6)]
YES = json.dumps({"reason": "it is", "score": True})


PAID: list[int] = []


async def pay(euros: int) -> str:
    """Pay."""
    PAID.append(euros)
    return f"paid {euros}"


def constant() -> float:
    """A rate that is always the same."""
    return 1.0


class Model:
    """A model that repeats what it is asked, for a cent, and counts its calls; a judge says yes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.provider = ScriptedProvider(self.reply)

    def reply(self, request: Any) -> Any:
        text = request.messages[-1].text
        self.asked.append(text)
        said = YES if text.startswith("Judge") else f"<{text}>"
        return {"text": said, "cost_usd": 0.01, "usage": {"input_tokens": 5, "output_tokens": 5}}

    def since(self) -> int:
        """The number of calls since it was asked last."""
        count = len(self.asked)
        self.asked.clear()
        return count


@asynccontextmanager
async def shop(tmp_path: Path, model: Model, **options: Any) -> AsyncGenerator[tuple[AgentFlow, Any]]:
    """A flow with a workflow of two tasks in a row."""
    async with AgentFlow(provider=model.provider, durable=f"sqlite:///{tmp_path}/runs.db", **options) as flow:

        @flow.task
        async def draft(question: str) -> str:
            """Draft: {{question}}"""
            raise NotImplementedError

        @flow.task
        async def polish(text: str) -> str:
            """Polish: {{text}}"""
            raise NotImplementedError

        @flow.workflow
        async def answer(question: str) -> str:
            return await polish(await draft(question))

        yield flow, answer


# -- what is paid ------------------------------------------------------------------------------------------------------


async def test_only_what_a_variant_changes_is_paid_for(tmp_path: Path) -> None:
    """A changed last prompt, a changed first one, a new scorer, a new case, and the same again."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):
        report = await flow.evaluate(answer, CASES, scorers=[contains()])
        assert (model.since(), report["base"].calls_paid) == (12, 12)
        last = {"short": {"polish": {"instructions": "Shorten: {{text}}"}}}
        report = await flow.evaluate(answer, CASES, variants=last, scorers=[contains()])
        assert (model.since(), report["short"].calls_paid, report["short"].calls_reused) == (6, 6, 6)
        await flow.evaluate(answer, CASES, variants={"other": {"draft": {"instructions": "Sketch: {{question}}"}}})
        assert model.since() == 12
        report = await flow.evaluate(answer, CASES, variants=last, scorers=[exact(), judge("Is it polite?")])
        assert (model.since(), report["short"].score("judge").mean) == (12, 1.0)  # the judge alone: six cases, twice
        await flow.evaluate(answer, [*CASES, {"question": "new"}], variants=last)
        assert model.since() == 3
        report = await flow.evaluate(answer, CASES, variants=last, scorers=[exact(), judge("Is it polite?")])
        assert (model.since(), report["base"].paid_usd, report["base"].cost_usd) == (0, 0.0, 0.12)


async def test_variants_share_their_common_beginning_and_draws_are_drawn(tmp_path: Path) -> None:
    """Also when they are carried out at the same time; each draw is paid once, the unchanged prefix once for each draw."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):
        variants = {name: {"polish": {"instructions": f"{name}: {{{{text}}}}"}} for name in ("one", "two")}
        report = await flow.evaluate(answer, CASES[:2], variants=variants, repeat=3, scorers=[contains()])
        assert model.since() == 2 * 3 * (1 + 3)
        assert {len(each) for each in report["one"].scores("contains").values()} == {3}
        await flow.evaluate(answer, CASES[:2], variants=variants, repeat=4, scorers=[contains()])
        assert model.since() == 2 * (1 + 3), "one more draw"
        await flow.evaluate(answer, CASES[:2], variants={"again": {}})
        assert model.since() == 2 * 2, "the same again is drawn anew"
        await flow.evaluate(answer, CASES[:2], variants={"mini": {"*": {"model": "scripted:mini"}}})
        assert model.since() == 2 * 2, "another model for all tasks"


async def test_an_edited_tool_or_check_answers_anew(tmp_path: Path) -> None:
    """The key of an answer has the code of the host's functions that its task calls."""
    model = Model()

    def judging(accepted: str) -> Any:
        def check(value: str, ctx: CallContext) -> str:
            return value if accepted == "all" else value + "!"

        def loose(value: str, ctx: CallContext) -> str:
            return value

        def strict(value: str, ctx: CallContext) -> str:
            return value.strip()

        return {"closure": check, "loose": loose, "strict": strict}[accepted]

    for accepted, paid in (("loose", 1), ("loose", 0), ("strict", 1), ("closure", 1), ("closure", 1)):
        async with AgentFlow(provider=model.provider, durable=f"sqlite:///{tmp_path}/runs.db") as flow:

            @flow.task(check=judging(accepted))
            async def answer(question: str) -> str:
                """Answer: {{question}}"""
                raise NotImplementedError

            await flow.evaluate(answer, [{"question": "q"}])
            assert model.since() == paid, (
                f"{accepted}: a closure may hold anything, so its task is carried out each time"
            )


async def test_a_tool_of_the_flow_that_holds_values_is_asked_each_time(tmp_path: Path) -> None:
    """One that a task names is looked up: a closure may answer otherwise tomorrow, a function of a module may not."""
    model = Model()
    rate = [1.1]

    def exchange() -> float:
        """The rate of today."""
        return rate[0]

    for tool, paid in ((exchange, (1, 1)), (constant, (1, 0))):
        async with AgentFlow(provider=model.provider, durable=f"sqlite:///{tmp_path}/{tool.__name__}.db") as flow:
            flow.tool(tool, read_only=True)

            @flow.task(tools=[tool.__name__])
            async def convert(question: str) -> str:
                """Convert: {{question}}"""
                raise NotImplementedError

            for expected in paid:
                await flow.evaluate(convert, CASES[:1])
                assert model.since() == expected


async def test_tasks_that_may_read_dependencies_are_carried_out_each_time(tmp_path: Path) -> None:
    """What a function of ``ctx`` reads of them is not part of a key; a task without such functions is kept all the same."""
    model = Model()

    def system(ctx: CallContext[str]) -> str:
        return f"You serve {ctx.deps}."

    async with shop(tmp_path, model) as (flow, answer):

        @flow.task(system=system)
        async def greet(question: str) -> str:
            """Greet: {{question}}"""
            raise NotImplementedError

        @flow.workflow
        async def both(question: str) -> str:
            return await greet(question) + await answer(question)

        for user, paid in (("Ada", 3), ("Bob", 1), ("Bob", 1)):
            report = await flow.evaluate(both, CASES[:1], deps=user)
            assert (model.since(), report.failures()) == (paid, [])


# -- recorded runs -----------------------------------------------------------------------------------------------------


def rows_of(path: Path) -> list[Any]:
    """Every row of the tables of runs and effects."""
    import sqlite3

    with sqlite3.connect(path) as database:
        return [
            database.execute(f"select * from {table} order by 1, 2").fetchall() for table in ("af_run", "af_effect")
        ]


async def test_recorded_runs_are_cases_and_stay_as_they_are(tmp_path: Path) -> None:
    """Ended, failed and parked ones: not a byte of their rows changes, and what a variant leaves alone answers from them."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):

        @flow.workflow
        async def asking(question: str) -> str:
            text = await answer(question)
            return text if await flow.ask_human("good?", bool) else ""

        @flow.workflow
        async def failing(question: str) -> str:
            raise ValueError(await answer(question))

        for name, workflow in (("done", answer), ("parked", asking), ("failed", failing)):
            run = await flow.start(workflow(name), run_id=name, labels={"kind": "test"})
            await run.wait()
        model.since()
        before = rows_of(tmp_path / "runs.db")
        assert {each.run_id for each in await flow.cases(kind="test")} == {"done", "failed"}
        variants = {"short": {"polish": {"instructions": "Shorten: {{text}}"}}}
        cases = [Case(run_id=name) for name in ("done", "parked", "failed")]
        report = await flow.evaluate(None, cases, variants=variants, scorers=[calls])
        assert model.since() == 3, "the last prompt of each"
        told = {(each.case.run_id, each.variant): each for each in report.samples}
        assert told["done", "base"].value == "<Polish: <Draft: done>>"
        assert told["done", "short"].value == "<Shorten: <Draft: done>>"
        assert [told["parked", name].status for name in ("base", "short")] == ["blocked", "blocked"]
        assert "good?" in told["parked", "short"].reason
        assert [told["failed", name].status for name in ("base", "short")] == ["failed", "failed"]
        assert rows_of(tmp_path / "runs.db") == before
        report = await flow.evaluate(None, cases[:2], variants=variants, answer=lambda question: True)
        told = {(each.case.run_id, each.variant): each for each in report.samples}
        assert (told["parked", "short"].value, model.since()) == ("<Shorten: <Draft: parked>>", 0)


# -- side effects ------------------------------------------------------------------------------------------------------


async def test_only_tools_that_may_be_repeated_are_carried_out(tmp_path: Path) -> None:
    """Others are answered from the records of the case, or end the sample with their name; one may be allowed by name."""
    paid = PAID
    paid.clear()

    async def prices() -> int:
        """What it costs."""
        return 20

    calling = {"tool_calls": [{"name": "pay", "arguments": {"euros": 20}}]}

    def reply(request: Any) -> Any:
        return calling if len(request.messages) == 1 else "thanks"

    async with AgentFlow(provider=ScriptedProvider(reply), durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        flow.tool(prices, read_only=True)

        @flow.task(tools=[pay])
        async def settle(bill: str) -> str:
            """Settle: {{bill}}"""
            raise NotImplementedError

        @flow.workflow
        async def billing(bill: str) -> str:
            return f"{await flow.call_tool('prices')}: {await settle(bill)}"

        report = await flow.evaluate(billing, [{"bill": "b"}], scorers=[contains("thanks")])
        (sample,) = report.samples
        assert (sample.status, paid) == ("blocked", [])
        assert "'pay'" in sample.reason and "evals/blocked" in sample.reason and not sample.scores
        used = [tool_called("pay", euros=20), tool_called("prices")]
        report = await flow.evaluate(billing, [{"bill": "b"}], scorers=used, live_tools=["pay"])
        assert (report.samples[0].value, paid) == ("20: thanks", [20])
        assert report.samples[0].scores == {"tool_called_pay": 1.0, "tool_called_prices": 1.0}
        report = await flow.evaluate(billing, [{"bill": "b"}], scorers=used)
        assert (report.samples[0].scores["tool_called_pay"], paid) == (1.0, [20]), "reused, and its tool calls known"
        await (await flow.start(billing("c"), run_id="real")).result()
        assert paid == [20, 20]
        changed = {"gently": {"settle": {"instructions": "Settle gently: {{bill}}"}}}
        scorers = [tool_called("pay"), tool_called("prices", currency="EUR"), tool_called("refund")]
        report = await flow.evaluate(None, [Case(run_id="real")], variants=changed, scorers=scorers)
        assert (report["gently"].samples[0].value, paid) == ("20: thanks", [20, 20]), "answered from the record"
        known = {"tool_called_pay": 1.0, "tool_called_refund": 0.0}
        assert [each.scores for each in report.samples] == [known, known], "of recorded calls only the names are there"


# -- money -------------------------------------------------------------------------------------------------------------


async def test_a_limit_ends_it_with_whole_pairs_and_a_higher_one_goes_on(tmp_path: Path) -> None:
    """It is never passed by concurrent calls, what was paid is not paid again, and the partial report compares pairs."""
    model = Model()
    variants = {"short": {"polish": {"instructions": "Shorten: {{text}}"}}}
    async with shop(tmp_path, model) as (flow, answer):
        report = await flow.evaluate(
            answer, CASES, variants=variants, scorers=[contains()], limits=Limits(tokens=100), concurrency=3
        )
        paid = model.since()
        assert report.partial and 0 < paid <= 10, "ten calls of ten tokens each"
        assert report.stopped is not None and report.run_id in report.stopped.message
        pairs = [set(report[name].scores("contains")) for name in report.variants]
        assert pairs[0] == pairs[1] and len(pairs[0]) < 6
        assert "A limit ended it" in str(report)
        report = await flow.evaluate(
            answer, CASES, variants=variants, scorers=[contains()], limits=Limits(tokens=1_000), run_id=report.run_id
        )
        assert not report.partial and paid + model.since() == 18
        assert len(report["short"].scores("contains")) == 6


# -- scores ------------------------------------------------------------------------------------------------------------


async def test_tasks_and_functions_score_and_what_fails_to_is_counted(tmp_path: Path) -> None:
    """A task takes its parameters by name; a dict gives several scores; None does not apply; an exception is a missing score."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):

        @flow.task
        async def rated(value: str, expected: str) -> str:
            """Rate {{value}} beside {{expected}}"""
            raise NotImplementedError

        @flow.workflow
        async def rating(value: str, expected: str) -> float:
            return float(len(await rated(value, expected)))

        async def slow(case: Case, run: Sample) -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"long": len(run.value) > 5, "length": len(run.value), "none": None}

        def broken(case: Case, run: Sample) -> float:
            raise ValueError("no such thing")

        def odd(case: Case, run: Sample) -> Any:
            return "good"

        report = await flow.evaluate(answer, CASES[:2], scorers=[rating, slow, broken, odd, cost])
        sample = report.samples[0]
        assert set(sample.scores) == {"rating", "long", "length", "cost"} and sample.passing == {"long"}
        assert sample.missing["broken"] == "ValueError: no such thing" and "'good'" in sample.missing["odd"]
        assert "2 x broken: ValueError" in str(report)
        assert sample.scores["cost"] == 0.02, "as if nothing had been reused, and without the scorers"


@dataclass
class Longer:
    """An evaluator as pydantic-evals has them: a class with ``evaluate`` of a context, which gives values, reasons and labels."""

    least: int

    def evaluate(self, ctx: Any) -> Any:
        """Whether it is long enough, with a reason; a label is not a score."""
        assert (ctx.inputs, ctx.metadata, ctx.expected_output) == (
            "q0",
            {"kind": "x"},
            "q0",
        ) and ctx.duration is not None
        return {
            "longer": SimpleNamespace(value=len(ctx.output) > self.least, reason="counted"),
            "size": 3,
            "label": "short",
        }


class Same:
    """An evaluator as autoevals has them: ``eval_async`` of the output, the expected one and the input gives a score."""

    def __call__(self, output: str, expected: str | None = None, **kwargs: Any) -> Any:
        raise AssertionError("it would hold the loop")

    async def eval_async(self, output: str, expected: str | None = None, **kwargs: Any) -> Any:
        """How much of the expected text is there, from 0 to 1."""
        assert kwargs == {"input": "q0"} and expected is not None
        return SimpleNamespace(name="Same", score=0.5 if expected in output else 0.0, metadata={}, error=None)


async def test_evaluators_of_other_libraries_are_scorers(tmp_path: Path) -> None:
    """Those of pydantic-evals and of autoevals, by their methods; their names are those of the scores."""
    async with shop(tmp_path, Model()) as (flow, answer):
        cases = [{"inputs": {"question": "q0"}, "expected": "q0", "metadata": {"kind": "x"}}]
        report = await flow.evaluate(answer, cases, scorers=[Longer(5), Same()])
        assert report.samples[0].scores == {"longer": 1.0, "size": 3.0, "Same": 0.5}
        assert report.passing == {"longer"} and not report.samples[0].missing


async def test_a_judge_compares_pairs_in_both_orders(tmp_path: Path) -> None:
    """A judge that always prefers the first of two prefers none."""
    seen: list[str] = []

    def reply(request: Any) -> Any:
        text = request.messages[-1].text
        if "Which of the two" not in text:
            return f"<{text}>"
        seen.append(text)
        better = "A" if "biased" in text else "A" if text.index("Shorten") < text.index("Polish") else "B"
        return {"text": json.dumps({"reason": "so", "score": better})}

    model = Model()
    model.provider = ScriptedProvider(reply)
    async with shop(tmp_path, model) as (flow, answer):
        variants = {"short": {"polish": {"instructions": "Shorten: {{text}}"}}}
        scorers = [judge("shorter", pairwise=True, name="fair"), judge("biased", pairwise=True, name="biased")]
        report = await flow.evaluate(answer, CASES[:2], variants=variants, scorers=scorers)
        assert len(seen) == 2 * 2 * 2
        means = {(name, score): report[name].score(score).mean for name in report.variants for score in report.names}
        assert means == {
            ("base", "fair"): 0.5,
            ("short", "fair"): 1.0,
            ("base", "biased"): 0.5,
            ("short", "biased"): 0.5,
        }


async def test_a_failed_sample_counts_as_a_fail_and_stays_in_its_pair(tmp_path: Path) -> None:
    """It does not fall out of the mean, and a workflow that takes other inputs is an error of that case."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):

        @flow.workflow
        async def fussy(question: str) -> str:
            if question == "q0":
                raise ValueError("not this one")
            return await answer(question)

        cases = read_cases([*CASES[:3], {"topic": "t", "name": "other"}])
        report = await flow.evaluate(fussy, cases, scorers=[contains("q"), calls])
        assert report["base"].scores("contains") == {"1": [0.0], "2": [1.0], "3": [1.0], "other": [0.0]}
        assert {each.case.name for each in report.failures()} == {"1", "other"}
        assert "topic" in next(each.reason for each in report.failures() if each.case.name == "other")


# -- what users try first ------------------------------------------------------------------------------------------------


async def test_wrong_forms_say_what_to_write(tmp_path: Path) -> None:
    """Before a model is called."""
    model = Model()
    async with shop(tmp_path, model) as (flow, answer):
        wrong: list[tuple[dict[str, Any], str, str]] = [
            ({"scorers": [exact]}, "evals/scorer", "exact()"),
            ({"scorers": ["exact"]}, "evals/scorer", "exact()"),
            ({"scorers": [len]}, "evals/scorer", "def polite(case, run)"),
            ({"variants": {"base": {}}}, "evals/variant", "another name"),
            ({"variants": {"short": {"polish": "Shorten: {{text}}"}}}, "evals/variant", "'model'"),
            ({"variants": [answer]}, "evals/variant", "'short'"),
            ({"variants": {"short": 3}}, "evals/variant", "workflow"),
            ({"repeat": 0}, "config/option", "repeat=3"),
            ({"baseline": "bse"}, "evals/variant", "base"),
        ]
        for options, code, said in wrong:
            with pytest.raises(ConfigurationError) as caught:
                await flow.evaluate(answer, CASES, **options)
            assert caught.value.code == code and said in str(caught.value.hint), caught.value.hint
        with pytest.raises(JournalError) as unknown:
            await flow.evaluate(answer, CASES, variants={"short": {"polsh": {"model": "m"}}})
        assert unknown.value.code == "durable/override" and "polish" in str(unknown.value.hint)
        with pytest.raises(ConfigurationError) as empty:
            await flow.evaluate(answer, [])
        assert empty.value.code == "evals/cases"
        with pytest.raises(ConfigurationError) as alone:
            await flow.evaluate(None, CASES)
        assert alone.value.code == "evals/cases" and "no program" in alone.value.message
        assert model.since() == 0
    async with AgentFlow(provider=model.provider) as plain:
        with pytest.raises(ConfigurationError) as stored:
            await plain.evaluate("(+ 1 2)", [{"x": 1}])
        assert stored.value.code == "config/durable"
