"""An evaluation stops when it knows enough, and repeats are reported apart from the cases."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, ScriptedProvider
from agentflow.evals import EvaluationReport, contains, cost, judge

CASES = [{"question": f"q{number}", "expected": f"q{number}"} for number in range(400)]
SHOUT = {"shout": {"reply": {"instructions": "Shout {{question}}"}}}


def model(request: Any) -> Any:
    """Repeats the question; shouted, every eighth is another. A judge says yes of most."""
    text = request.messages[-1].text
    if text.startswith("Judge"):
        return json.dumps({"reason": "it is", "score": "q1" not in text})
    number = int(text.rpartition("q")[2])
    return {"text": "?" if "Shout" in text and number % 8 == 0 else text, "cost_usd": 0.01 * (1 + number % 3)}


@asynccontextmanager
async def shop(tmp_path: Path) -> AsyncGenerator[tuple[AgentFlow, Any]]:
    """A flow with one task."""
    async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def reply(question: str) -> str:
            """Say {{question}}"""
            raise NotImplementedError

        yield flow, reply


def counted(report: EvaluationReport) -> int:
    """The number of cases that count."""
    return len({each.case.name for each in report.complete})


async def test_an_evaluation_stops_when_its_interval_is_narrow(tmp_path: Path) -> None:
    """Before all cases are paid for, not before 30, after the same cases each time; the report says so, and has the
    intervals that hold at any time, in every score.
    """
    async with shop(tmp_path) as (flow, reply):
        report = await flow.evaluate(
            reply, CASES, variants=SHOUT, scorers=[contains(), cost], until=0.15, concurrency=1
        )
        difference = report["shout"].difference("contains")
        assert report.enough and 30 < counted(report) < 200 and not report.partial
        assert difference.high - difference.low <= 0.3 and difference.method == "betting sequence"
        assert report["shout"].difference("cost").method == "asymptotic sequence"
        assert report["base"].calls_paid == counted(report), "the other cases are not paid for"
        told = str(report)
        assert f"until=0.15 was met by {counted(report)} of 400 cases" in told and "contains: betting sequence" in told
        again = await flow.evaluate(reply, CASES, variants=SHOUT, scorers=[contains(), cost], until=0.15, concurrency=1)
        assert (counted(again), again["shout"].calls_paid) == (counted(report), 0)
        other = await flow.evaluate(reply, CASES, variants=SHOUT, scorers=[contains(), cost], until=0.15, seed=1)
        assert {each.case.name for each in other.complete} != {each.case.name for each in report.complete}


async def test_the_primary_scores_decide_when_it_stops(tmp_path: Path) -> None:
    """The first score is the primary one unless others are named; with one variant the mean is; what is not narrow is told."""
    async with shop(tmp_path) as (flow, reply):
        short = CASES[:80]
        scorers = [cost, contains(), judge("Is it one?", name="one")]
        report = await flow.evaluate(reply, short, scorers=scorers, until=0.25, concurrency=1)
        mean = report["base"].score("contains")
        assert report.enough and counted(report) < 80 and mean.high - mean.low <= 0.5
        assert report["base"].score("one").method == "betting sequence"
        report = await flow.evaluate(reply, short, scorers=scorers, until=0.01, primary=["one"])
        assert not report.enough and counted(report) == 80
        assert "until=0.01 was not met by 80 of 80 cases" in str(report)
        report = await flow.evaluate(reply, short[:20], scorers=scorers, until=5.0, primary=["contians"])
        assert not report.enough and "no sample has the primary score 'contians'" in str(report)


@pytest.mark.parametrize("until", [0, -0.1, True, float("nan"), "0.02"])
async def test_what_is_no_width_is_refused(tmp_path: Path, until: Any) -> None:
    """Before anything is paid; so are groups, whose cases do not follow one another at random."""
    async with shop(tmp_path) as (flow, reply):
        with pytest.raises(ConfigurationError) as caught:
            await flow.evaluate(reply, CASES[:2], until=until)
        assert (caught.value.code, "until=0.02" in str(caught.value.hint)) == ("config/option", True)
        with pytest.raises(ConfigurationError):
            await flow.evaluate(reply, [{"inputs": {"question": "q1"}, "group": "a"}], until=0.02)
        with pytest.raises(ConfigurationError) as caught:
            await flow.evaluate(reply, CASES[:2], primary="exact")
        assert "primary=['exact']" in str(caught.value.hint)


async def test_the_intervals_of_primary_scores_hold_together(tmp_path: Path) -> None:
    """Those of two primary scores under two variants are of four; a score that is not primary stands for itself."""
    async with shop(tmp_path) as (flow, reply):
        variants = {**SHOUT, "again": {}}
        scorers = [contains(), judge("Is it one?", name="one"), cost]
        plain = await flow.evaluate(reply, CASES[:40], variants=variants, scorers=scorers)
        named = await flow.evaluate(reply, CASES[:40], variants=variants, scorers=scorers, primary=["contains", "one"])

        def width(report: EvaluationReport, score: str) -> float:
            difference = report["shout"].difference(score)
            return difference.high - difference.low

        assert width(named, "contains") > width(plain, "contains")
        alone = await flow.evaluate(reply, CASES[:40], variants=variants, scorers=scorers, primary=["one"])
        assert width(alone, "contains") < width(plain, "contains") and width(alone, "one") == width(plain, "one")
        assert (
            named.adjusted("contains")["shout"]
            >= plain.adjusted("contains")["shout"]
            > alone.adjusted("contains")["shout"]
        )


async def test_repeats_are_reported_apart(tmp_path: Path) -> None:
    """The share of cases that pass in one of three draws, by the draws of each case, and how much draws of one case differ."""
    drawn: dict[str, int] = {}

    def unsteady(request: Any) -> Any:
        """Answers right in the second draw of each case; q1 always."""
        text = request.messages[-1].text
        drawn[text] = drawn.get(text, 0) + 1
        return "q1" if "q1" in text or drawn[text] == 2 else "?"

    async with AgentFlow(provider=ScriptedProvider(unsteady), durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def reply(question: str) -> str:
            """Say {{question}}"""
            raise NotImplementedError

        cases = [{"question": f"q{number}", "expected": "q1"} for number in range(4)]
        report = await flow.evaluate(reply, cases, scorers=[contains(), cost], repeat=3)
        base = report["base"]
        assert (base.score("contains").mean, base.pass_at("contains").mean) == (pytest.approx(0.5), 1.0)
        assert base.pass_at("contains", 1).mean == pytest.approx(0.5)
        assert base.pass_at("contains", 2).mean == pytest.approx((3 * 2 / 3 + 1) / 4)
        assert base.spread("contains") == pytest.approx((3 / 4 / 3) ** 0.5)
        assert "contains of base: passes in at least one of 3 draws: 1 [" in str(report)
        assert "draws of a case differ by 0.5" in report.to_markdown() and "cost of base" not in str(report)
        for score, k in (("cost", 1), ("contains", 4), ("contains", 0)):
            with pytest.raises(ConfigurationError) as caught:
                base.pass_at(score, k)
            assert caught.value.code == "evals/score"
        once = await flow.evaluate(reply, cases, scorers=[contains()])
        assert "Repeats" not in str(once)
