"""A saved report is read again, and is the baseline of a later evaluation."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from agentflow import AgentFlow, ConfigurationError, Limits, ScriptedProvider
from agentflow.evals import BEFORE, contains, cost, exact, judge, read_report
from tests.evals.test_report_page import hostile

CASES = [{"question": f"q{number}", "expected": f"q{number}", "name": f"case {number}"} for number in range(6)]


class Model:
    """Repeats the question, until it is told to answer otherwise; a judge prefers the better answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.says = ""

    def __call__(self, request: Any) -> Any:
        text = request.messages[-1].text
        self.asked.append(text)
        if "Criterion:" in text:
            said = json.dumps({"reason": "r", "score": "A" if "<A>\nbetter" in text else "B"})
        else:
            said = self.says or text
        return {"text": said, "cost_usd": 0.01, "usage": {"input_tokens": 5, "output_tokens": 5}}


@asynccontextmanager
async def shop(tmp_path: Path, model: Model, name: str = "runs.db") -> AsyncGenerator[tuple[AgentFlow, Any]]:
    """A flow with one task; another database is another machine."""
    async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/{name}") as flow:

        @flow.task
        async def reply(question: str) -> str:
            """Say {{question}}"""
            raise NotImplementedError

        yield flow, reply


def odd(flow: AgentFlow) -> Any:
    """A workflow that fails."""

    @flow.workflow
    async def trouble(question: str) -> str:
        raise ValueError(f"no {question}")

    return trouble


async def test_a_report_that_is_read_says_what_the_saved_one_said(tmp_path: Path) -> None:
    """In text, JSON lines and page: figures, partial ends, failures, missing scores and what differed first."""
    model = Model()
    async with shop(tmp_path, model) as (flow, reply):
        variants = {
            "say": {"reply": {"instructions": "Speak {{question}}"}},
            "odd": odd(flow),
        }
        scorers = [exact(), contains(), cost]
        whole = await flow.evaluate(reply, CASES, variants=variants, scorers=scorers, repeat=2, primary=["exact"])
        short = await flow.evaluate(
            reply, CASES, variants=variants, scorers=scorers, repeat=3, limits=Limits(tokens=60)
        )
        assert whole.failures("odd") and short.partial
        for report in (whole, short, hostile()):
            report.save(tmp_path / "report.jsonl")
            again = read_report(tmp_path / "report.jsonl")
            assert (str(again), again.to_jsonl(), again.partial) == (str(report), report.to_jsonl(), report.partial)
            assert again.to_junit().count("<testcase") == report.to_junit().count("<testcase")


async def test_a_saved_report_is_the_baseline_of_a_later_program(tmp_path: Path) -> None:
    """On another machine, by the names and inputs of cases; its samples cost nothing, and are not test cases of this evaluation.

    A case that is new, or has other inputs than then, counts in the means, and in no difference.
    """
    model = Model()
    async with shop(tmp_path, model) as (flow, reply):
        await flow.evaluate(reply, CASES, scorers=[contains()])
        saved = await flow.evaluate(reply, CASES, scorers=[contains()], repeat=2)
        saved.save(tmp_path / "main.jsonl")
    model.says, model.asked = "otherwise", []
    later = [
        *CASES[1:],
        {"question": "changed", "expected": "changed", "name": "case 0"},
        {"question": "new", "name": "case 9"},
    ]
    async with shop(tmp_path, model, "other.db") as (flow, reply):
        report = await flow.evaluate(reply, later, scorers=[contains()], baseline=tmp_path / "main.jsonl")
        assert (report.variants, report.baseline, len(model.asked)) == ((BEFORE, "base"), BEFORE, 7)
        difference = report["base"].difference("contains")
        assert (difference.mean, difference.count, report["base"].score("contains").count) == (-1.0, 5, 6)
        assert (report[BEFORE].paid_usd, report[BEFORE].calls_paid, report[BEFORE].latency_p95_s) == (0, 0, None)
        assert report[BEFORE].cost_usd == pytest.approx(0.1) and len(report.worst("base", "contains")) == 5
        told = str(report)
        assert "2 cases are not in the saved report" in told and "before gave 'Say q1'; base gave 'otherwise'" in told
        assert "7 cases, 7 model calls, 0 reused" in told
        suites = [each.get("name") for each in ElementTree.fromstring(report.to_junit())]
        assert suites == ["base"] and report.below({"contains": 0.5}) == ["contains of base is 0, below 0.5"]
        report.save(tmp_path / "next.jsonl")
        model.says = ""
        chained = await flow.evaluate(
            reply, later[:2], scorers=[contains()], baseline=read_report(tmp_path / "next.jsonl")
        )
        assert chained["base"].difference("contains").mean == 0.0, "the program of that report counts, not its baseline"


async def test_judges_compare_with_the_saved_answers(tmp_path: Path) -> None:
    """A judge of two answers has the one that was saved beside the new one, in both orders."""
    model = Model()
    async with shop(tmp_path, model) as (flow, reply):
        await flow.evaluate(reply, CASES[:2], scorers=[contains()])
        saved = await flow.evaluate(reply, CASES[:2])
    model.says, model.asked = "better", []
    async with shop(tmp_path, model, "other.db") as (flow, reply):
        report = await flow.evaluate(reply, CASES[:2], scorers=[judge("Which?", pairwise=True)], baseline=saved)
        asked = [each for each in model.asked if "Criterion:" in each]
        assert len(asked) == 4 and all(["Say q" in each and "better" in each for each in asked])
        assert report.judging_calls == 4 and report["base"].score("judge").mean == 1.0


async def test_what_is_no_baseline_is_told(tmp_path: Path) -> None:
    """A file that is none, a report of other cases, a variant of its name, and its path as a text, before anything is paid."""
    model = Model()
    (tmp_path / "bad.jsonl").write_text('{"question": "q"}\n')
    async with shop(tmp_path, model) as (flow, reply):
        saved = await flow.evaluate(reply, CASES[:1])
        model.asked.clear()
        wrong: list[tuple[dict[str, Any], str, str]] = [
            ({"baseline": tmp_path / "none.jsonl"}, "evals/report", "report.save"),
            ({"baseline": tmp_path / "bad.jsonl"}, "evals/report", "report.save"),
            ({"baseline": "main.jsonl"}, "evals/variant", "Path('main.jsonl')"),
            ({"baseline": saved, "variants": {"before": {}}}, "evals/variant", "another name"),
            ({"baseline": saved, "cases": [{"question": "other"}]}, "evals/report", "name the cases"),
        ]
        for options, code, said in wrong:
            with pytest.raises(ConfigurationError) as caught:
                await flow.evaluate(reply, options.pop("cases", CASES), **options)
            assert caught.value.code == code and said in str(caught.value.hint), caught.value.hint
        assert not model.asked
