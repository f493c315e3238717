"""What going on would do is said without doing it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.messages import ModelRequest
from agentflow.durable.plan import RunPlan, cost_of
from agentflow.events import Event
from tests.durable.test_generations import ASK, TOLD, done
from tests.durable.world import Flow, World, interrupted


class Number(BaseModel):
    """The answer of a typed task."""

    value: int


async def planned(flow: Flow, run_id: str = "r", **options: Any) -> RunPlan:
    """A plan, made within seconds, of which no observer is told."""
    events: list[Event] = []
    async with flow() as opened, asyncio.timeout(20):
        opened.subscribe(events.append)
        plan = await opened.plan(run_id, **options)
    assert not events
    return plan


def names(effects: Any) -> list[str]:
    return [f"{each.path} {each.name}" for each in effects]


async def test_a_plan_says_what_is_reused_and_what_runs(world: World, flow: Flow, tmp_path: Path) -> None:
    """All branches are followed, past what runs; nothing is carried out, and nothing stored."""
    text = f"""{ASK}
    (list (content (ask (q "one"))) (pmap (lambda (i) (content (ask (q i)))) '("x" "y" "z")) (content (look (at "a"))))"""
    await done(flow, text)
    world.done.clear()
    with sqlite3.connect(tmp_path / "runs.db") as db:
        before = db.execute("select * from af_run").fetchall(), db.execute("select * from af_effect").fetchall()
    same = await planned(flow, program=text + " ")
    assert same.complete and not same.runs and not same.unused and len(same.reused) == 5
    usage, cost = cost_of(same.reused)
    assert usage.requests == 4 and cost is None
    plan = await planned(flow, program=text.replace('"y"', '"new" "y"').replace("(log", ""))
    assert names(plan.reused) == ["0/0.0 ask", "0/1.0/0.0 ask", "0/1.2/0.0 ask", "0/1.3/0.0 ask", "0/2.0 look"]
    assert [each.recorded_at for each in plan.reused][2:] == ["0/1.1/0.0", "0/1.2/0.0", "0/2.0"]
    assert names(plan.runs) == ["0/1.1/0.0 ask"] and plan.runs[0].usage is not None
    assert plan.runs[0].span is not None and plan.runs[0].span.text.startswith("(ask")
    assert not plan.complete and not plan.may_run and not plan.unused
    assert world.done == {}
    with sqlite3.connect(tmp_path / "runs.db") as db:
        assert before == (
            db.execute("select * from af_run").fetchall(),
            db.execute("select * from af_effect").fetchall(),
        )


async def test_a_plan_is_what_happens(world: World, flow: Flow) -> None:
    """What the plan reuses is reused, and what it runs is run: with history, overrides and forks."""
    text = f"""{ASK} {TOLD}
    (parallel (list (told (q "one")) (told (q "two"))) (content (ask (q "three"))) (content (look (at "a"))))"""
    await done(flow, text)
    for options in (
        {"program": text.replace('"one"', '"first"')},
        {"program": text.replace('"two"', '"second"')},
        {"overrides": {"ask": {"model": "big"}}},
        {"at": "0/0.0/0.0"},
    ):
        plan = await planned(flow, **options)
        world.done.clear()
        async with flow() as opened:
            at = options.pop("at", None)
            handle = await (opened.fork("r", at, **options) if at else opened.resume("r", **options))
            await handle.result()
            assert len(plan.reused) <= handle.replayed <= len(plan.reused) + len(plan.may_run)
            assert len(plan.runs) <= sum(world.done.values()) <= len(plan.runs) + len(plan.may_run)
            assert len(plan.runs) >= 1 and handle.replayed + sum(world.done.values()) == 4 == len(plan.effects)
        again = await planned(flow, run_id=handle.run_id)
        assert again.complete and not again.runs and len(again.reused) == 4


async def test_the_plan_of_an_interrupted_run(world: World, flow: Flow) -> None:
    """Without a change it says how far the records go, and where the run goes on; log lines are not said again."""
    text = '(begin (look (at "a")) (log-message "said") (try (look (at "b")) (finally (look (at "tidy")))) (look (at "c")))'
    await interrupted(world, flow, text, "b")
    plan = await planned(flow)
    assert names(plan.reused) == ["0/0.0 look"] and names(plan.runs) == ["0/1.0 look"] and not plan.complete
    assert world.done == {"a": 1}


@pytest.mark.parametrize(
    ("change", "reused", "runs", "may_run"),
    [
        ("(set x 1)", "abcde", "", ""),
        ("a", "c", "a", "bde"),
        ("b", "ac", "b", "de"),
        ("c", "ab", "c", "de"),
        ("d", "abc", "d", "e"),
        ("e", "abcd", "e", ""),
    ],
)
async def test_a_plan_goes_on_past_what_runs_with_the_old_values(
    world: World, flow: Flow, change: str, reused: str, runs: str, may_run: str
) -> None:
    """What reads a value that will be another one may run; what reads none is reused, also after it; what runs, runs."""
    text = """(let* ((a (content (look (at "a"))))
                    (b (content (look (at (format "b {}" a)))))
                    (c (content (look (at "c"))))
                    (d (content (look (at (format "d {} {}" b c))))))
               (content (look (at (format "e {}" d)))))"""
    await done(flow, text)
    world.done.clear()
    plan = await planned(flow, program=f" {text.replace(chr(34) + change, chr(34) + 'new ' + change)}")
    letters = ["abcde"[int(each.path[-3])] for each in plan.effects]
    by_action = {action: "" for action in ("reused", "run", "may run")}
    for letter, each in zip(letters, plan.effects, strict=True):
        by_action[each.action] += letter
    assert by_action == {"reused": reused, "run": runs, "may run": may_run}
    assert plan.complete is not bool(runs) and plan.about == 0.0 and not world.done


async def test_a_plan_says_what_the_rest_costs(tmp_path: Path) -> None:
    """By what the same tasks cost before: those that run, and those that may; unknown for a task that never ran."""

    def reply(request: ModelRequest) -> dict[str, Any]:
        return {"text": '{"value": 7}' if "first" in request.messages[0].text else "so", "cost_usd": 0.25}

    async with AgentFlow(provider=ScriptedProvider(reply), durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def count(text: str) -> Number:
            """first {{text}}"""
            raise NotImplementedError

        @flow.task
        async def explain(number: int) -> str:
            """Explain {{number}}"""
            raise NotImplementedError

        @flow.workflow
        async def answer(text: str) -> list[str]:
            number = (await count(text)).value
            return list(await asyncio.gather(*[explain(number + each) for each in range(3)]))

        await (await flow.start(answer("x"), run_id="r")).result()
        plan = await flow.plan("r", overrides={"count": {"instructions": "first, and well, {{text}}"}})
        assert ([each.name for each in plan.runs], len(plan.may_run), plan.about) == (["count"], 3, 1.0)
        plan = await flow.plan("r", overrides={"explain": {"model": "scripted:other"}})
        assert (len(plan.reused), len(plan.runs) + len(plan.may_run), plan.about) == (1, 3, 0.75)
        other = "(list (explain (number 7)) (shorten (number 7)) (explain (number 8)))"
        await flow.define('(defatom shorten (params (number integer)) (instructions "Shorten {{number}}"))')
        plan = await flow.plan("r", program=other)
        assert (names(plan.reused), names(plan.runs)) == (["0/0.0 explain"], ["0/1.0 shorten"])
        assert plan.about is None and not plan.may_run, "nothing says what follows a task that never ran"
