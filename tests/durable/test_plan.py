"""What going on would do is said without doing it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from agentflow.durable.plan import RunPlan, cost_of
from agentflow.events import Event
from tests.durable.test_generations import ASK, TOLD, done
from tests.durable.world import Flow, World, interrupted


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
    """Branches are followed as far as records go; nothing is carried out, and nothing stored."""
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
    assert names(plan.reused) == ["0/0.0 ask", "0/1.0/0.0 ask", "0/1.2/0.0 ask", "0/1.3/0.0 ask"]
    assert [each.recorded_at for each in plan.reused][2:] == ["0/1.1/0.0", "0/1.2/0.0"]
    assert names(plan.runs) == ["0/1.1/0.0 ask"] and plan.runs[0].usage is not None
    assert plan.runs[0].span is not None and plan.runs[0].span.text.startswith("(ask")
    assert not plan.complete and names(plan.unused) == ["0/2.0 look"]
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
            assert handle.replayed >= len(plan.reused) and len(world.done) >= len(plan.runs) >= 1
            assert handle.replayed + sum(world.done.values()) == 4
        again = await planned(flow, run_id=handle.run_id)
        assert again.complete and not again.runs and len(again.reused) == 4


async def test_the_plan_of_an_interrupted_run(world: World, flow: Flow) -> None:
    """Without a change it says how far the records go, and where the run goes on; log lines are not said again."""
    text = '(begin (look (at "a")) (log-message "said") (try (look (at "b")) (finally (look (at "tidy")))) (look (at "c")))'
    await interrupted(world, flow, text, "b")
    plan = await planned(flow)
    assert names(plan.reused) == ["0/0.0 look"] and names(plan.runs) == ["0/1.0 look"] and not plan.complete
    assert world.done == {"a": 1}
