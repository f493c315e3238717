"""Forty workflows and more written twice, as a program and in Python: equal values, paths, events (less places) and usage."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, LimitExceeded, Limits, ScriptedProvider, Usage
from agentflow.core.events.events import DeltaBase
from agentflow.errors import AgentflowError
from agentflow.events import Event, FinishedBase, ProgramLoaded, RunFinished

Written = Callable[[AgentFlow], Awaitable[Any]]


def answer(request: Any) -> Any:
    """A model that repeats what it is asked, is out of order for ``fail``, and writes a program where it should."""
    text = request.messages[-1].parts[0].text
    if "seven doubled" in text:
        return "(value-of (double (n seven)))"
    return {"error": "out of order"} if "fail" in text else text


def flow_of(root: Path, **options: Any) -> AgentFlow:
    """A flow with the task ``echo`` and the tools ``double`` and ``broken``."""
    flow = AgentFlow(provider=ScriptedProvider(answer), root=str(root), **options)

    async def echo(text: str) -> str:
        """{{text}}"""

    async def double(n: int) -> int:
        """Twice ``n``."""
        await asyncio.sleep(0)
        return 2 * n

    async def broken() -> int:
        """Broken."""
        raise ValueError("broken")

    flow.echo = flow.task(echo)  # type: ignore[attr-defined]
    flow.tool(double)
    flow.tool(broken)
    return flow


def echo(flow: Any, text: str) -> Awaitable[str]:
    return flow.echo(text)


def double(flow: AgentFlow, n: int) -> Awaitable[int]:
    return flow.call_tool("double", n=n)


E, D = '(value-of (echo (text "{}")))', "(value-of (double (n {})))"


async def caught(work: Awaitable[Any]) -> Any:
    """What ``work`` gives, or the code of its error."""
    try:
        return await work
    except AgentflowError as error:
        return error.code


async def chain(flow: AgentFlow, n: int) -> int:
    """One tool call after the other."""
    for _ in range(3):
        n = await double(flow, n)
    return n


async def both(flow: AgentFlow, text: str) -> list[Any]:
    """A task and a tool."""
    return [await echo(flow, text), await double(flow, 1)]


async def slow(flow: AgentFlow, text: str) -> str:
    """A task after a while."""
    await flow.sleep(5)
    return await echo(flow, text)


async def later(flow: AgentFlow, text: str) -> str:
    """A task when the others have begun."""
    await flow.sleep(0.02)
    return await echo(flow, text)


async def listed(work: Awaitable[Any]) -> list[Any]:
    return list(await work)


CHAIN = "(define (chain n k) (if (= k 0) n (chain (value-of (double (n n))) (- k 1)))) "
SLOW = '(begin (sleep 5) (value-of (echo (text "slow"))))'
CASES: dict[str, tuple[str, Written]] = {
    "a tool": (D.format(2), lambda f: double(f, 2)),
    "a task": (E.format("a"), lambda f: echo(f, "a")),
    "a task, then a tool": (f"(list {E.format('a')} {D.format(1)})", lambda f: both(f, "a")),
    "a chain": (CHAIN + "(chain 1 3)", lambda f: chain(f, 1)),
    "a failing task": (f"(try {E.format('fail')} (catch (e) (get-field e 'code)))", lambda f: caught(echo(f, "fail"))),
    "a failing tool": ("(try (value-of (broken)) (catch (e) (get-field e 'code)))", lambda f: caught(f.call_tool("broken"))),
    "an unknown tool's arguments": (
        "(try (value-of (double (n \"x\"))) (catch (e) (get-field e 'code)))", lambda f: caught(f.call_tool("double", n="x"))
    ),
    "a sleep": ("(sleep 0)", lambda f: none_as_list(f.sleep(0))),
    "a clock": ("(> (now) 1)", lambda f: above(f.now(), 1)),
    "a number": ("(random 1)", lambda f: f.random(1)),
    "a uuid": ("(string-length (uuid))", lambda f: length(f.uuid())),
    "a look-up": ('(length (get_context (query "cats")))', lambda f: length(f.context("cats"))),
    "solve": (
        '(value-of (solve "seven doubled" (inputs (dict "seven" 7)) (allow double)))',
        lambda f: f.solve("seven doubled", allow=["double"], inputs={"seven": 7}),
    ),
    "solve in vain": (
        "(try (value-of (solve \"seven doubled\" (allow echo) (max-rounds 2))) (catch (e) (get-field e 'code)))",
        lambda f: caught(f.solve("seven doubled", allow=["echo"], max_rounds=2)),
    ),
    "solve in a map": (
        '(pmap (lambda (n) (value-of (solve "seven doubled" (inputs (dict "seven" n)) (allow double)))) (list 1 2))',
        lambda f: f.map(lambda n: f.solve("seven doubled", allow=["double"], inputs={"seven": n}), [1, 2]),
    ),
    "parallel": (f"(parallel {E.format('a')} {D.format(1)})", lambda f: listed(f.parallel(echo(f, "a"), double(f, 1)))),
    "parallel of chains": (
        CHAIN + "(parallel (chain 1 3) (chain 2 3))", lambda f: listed(f.parallel(chain(f, 1), chain(f, 2)))
    ),
    "parallel of nothing long": (f"(parallel {D.format(1)})", lambda f: listed(f.parallel(double(f, 1)))),
    "parallel in parallel": (
        f"(parallel (parallel {E.format('a')} {E.format('b')}) {E.format('c')})",
        lambda f: listed(f.parallel(listed(f.parallel(echo(f, "a"), echo(f, "b"))), echo(f, "c"))),
    ),
    "parallel with a failure": (
        f"(try (parallel (begin (sleep 0.02) {E.format('fail')}) {SLOW}) (catch (e) (get-field e 'code)))",
        lambda f: caught(f.parallel(later(f, "fail"), slow(f, "slow"))),
    ),
    "map": ('(pmap (lambda (t) (value-of (echo (text t)))) (list "a" "b" "c"))', lambda f: f.map(f.echo, "abc")),  # type: ignore[attr-defined]
    "map of tools": ("(pmap (lambda (n) (value-of (double (n n)))) (list 1 2 3))", lambda f: f.map(lambda n: double(f, n), [1, 2, 3])),
    "map with a limit": (
        "(pmap (lambda (n) (value-of (double (n n)))) (list 1 2 3 4) 2)",
        lambda f: f.map(lambda n: double(f, n), [1, 2, 3, 4], limit=2),
    ),
    "map of nothing": ("(pmap (lambda (n) n) (list))", lambda f: f.map(lambda n: double(f, n), [])),
    "map of chains": (CHAIN + "(pmap (lambda (n) (chain n 3)) (list 1 2))", lambda f: f.map(lambda n: chain(f, n), [1, 2])),
    "map in map": (
        "(pmap (lambda (n) (pmap (lambda (m) (value-of (double (n m)))) (list n n))) (list 1 2))",
        lambda f: f.map(lambda n: f.map(lambda m: double(f, m), [n, n]), [1, 2]),
    ),
    "map with a failure": (
        "(try (pmap (lambda (t) (value-of (echo (text t)))) (list \"fail\")) (catch (e) (get-field e 'code)))",
        lambda f: caught(f.map(f.echo, ["fail"])),  # type: ignore[attr-defined]
    ),
    "map, then a tool": (
        "(list (pmap (lambda (n) (value-of (double (n n)))) (list 1 2)) (value-of (double (n 3))))",
        lambda f: after(f.map(lambda n: double(f, n), [1, 2]), f, 3),
    ),
    "race": (f"(race {SLOW} {E.format('quick')})", lambda f: f.race(slow(f, "slow"), echo(f, "quick"))),
    "race with a failure": (f"(race {E.format('fail')} {E.format('b')})", lambda f: f.race(echo(f, "fail"), echo(f, "b"))),
    "race that all lose": (
        f"(try (race {E.format('fail')} {E.format('fail')}) (catch (e) (get-field e 'code)))",
        lambda f: caught(f.race(echo(f, "fail"), echo(f, "fail"))),
    ),
    "race of one": (f"(race {D.format(4)})", lambda f: f.race(double(f, 4))),
    "race in map": (
        f"(pmap (lambda (n) (race {SLOW} (value-of (double (n n))))) (list 1 2))",
        lambda f: f.map(lambda n: f.race(slow(f, "slow"), double(f, n)), [1, 2]),
    ),
    "time-out in time": (f"(timeout 5 {E.format('a')})", lambda f: f.timeout(5, echo(f, "a"))),
    "time-out too late": (
        "(try (timeout 0.01 (sleep 5)) (catch (e) (get-field e 'code)))", lambda f: caught(f.timeout(0.01, f.sleep(5)))
    ),
    "time-out, then a tool": (
        f"(list (timeout 5 {D.format(1)}) {D.format(3)})", lambda f: after(f.timeout(5, double(f, 1)), f, 3)
    ),
    "time-out of branches": (
        f"(timeout 5 (parallel {D.format(1)} {D.format(2)}))",
        lambda f: listed(f.timeout(5, f.parallel(double(f, 1), double(f, 2)))),
    ),
    "time-out in a time-out": (f"(timeout 5 (timeout 4 {D.format(1)}))", lambda f: f.timeout(5, f.timeout(4, double(f, 1)))),
    "retry of what works": (f"(retry 3 {E.format('a')})", lambda f: f.retry(3, lambda: echo(f, "a"))),
    "retry of what never works": (
        f"(try (retry 2 {E.format('fail')}) (catch (e) (get-field e 'code)))",
        lambda f: caught(f.retry(2, lambda: echo(f, "fail"))),
    ),
    "retry, then a tool": (f"(list (retry 3 {D.format(1)}) {D.format(3)})", lambda f: after(f.retry(3, lambda: double(f, 1)), f, 3)),
    "retry in a time-out": (f"(timeout 5 (retry 2 {D.format(1)}))", lambda f: f.timeout(5, f.retry(2, lambda: double(f, 1)))),
    "retry in a race": (
        f"(race {SLOW} (retry 2 {D.format(1)}))",
        lambda f: f.race(slow(f, "slow"), f.retry(2, lambda: double(f, 1))),
    ),
}  # fmt: skip


async def none_as_list(work: Awaitable[None]) -> list[Any]:
    await work
    return []


async def above(work: Awaitable[float], least: float) -> bool:
    return await work > least


async def length(work: Awaitable[Any]) -> int:
    return len(await work)


async def after(work: Awaitable[Any], flow: AgentFlow, n: int) -> list[Any]:
    return [await work, await double(flow, n)]


def without_places(events: list[Event]) -> Counter[Any]:
    """What was published: kinds and paths, with outcomes. Pieces of streamed text and texts of programs, of which Python has one for each
    function, are not counted."""
    return Counter(
        (type(e).__name__, e.path, getattr(e, "outcome", None), getattr(e, "name", None) if e.path != "0" else None)
        for e in events
        if not isinstance(e, DeltaBase | ProgramLoaded)
    )


def test_there_are_as_many_as_said() -> None:
    """Each workflow is another one."""
    assert len(CASES) == len({text for text, _ in CASES.values()}) == 43


@pytest.mark.parametrize("name", CASES)
async def test_written_twice(tmp_path: Path, name: str) -> None:
    """The program and the Python workflow give the same, at the same paths, for the same tokens."""
    (tmp_path / "cats.md").write_text("All about cats.")
    text, written = CASES[name]
    seen: tuple[list[Event], list[Event]] = ([], [])
    async with flow_of(tmp_path) as flow:

        async def python() -> Any:
            """The workflow in Python."""
            return await written(flow)

        workflow = flow.workflow(python)
        results: list[tuple[Any, Usage]] = []
        for events, work in zip(seen, (text, workflow()), strict=True):
            unsubscribe = flow.subscribe(events.append)
            result = await flow.run(work)  # type: ignore[call-overload]
            results.append((result.value, result.usage))
            unsubscribe()
    assert results[0] == results[1]
    assert without_places(seen[0]) == without_places(seen[1])


@pytest.mark.parametrize(
    "name", ["parallel of chains", "map in map", "race in map", "retry in a race", "time-out of branches"]
)
async def test_cancelled_at_every_await(tmp_path: Path, name: str) -> None:
    """Wherever a workflow is cancelled, it ends at once, with an end for each beginning, and leaves no task."""
    cancelled = 0
    async with flow_of(tmp_path) as flow:

        async def python() -> Any:
            """The workflow in Python."""
            return await CASES[name][1](flow)

        workflow = flow.workflow(python)
        for steps in range(1, 200):
            seen: list[Event] = []
            unsubscribe = flow.subscribe(seen.append)
            task = asyncio.create_task(flow.run(workflow()))
            for _ in range(steps):
                await asyncio.sleep(0)
            if task.done():
                unsubscribe()
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            cancelled += 1
            unsubscribe()
            started = sorted(e.seq for e in seen if type(e).__name__.endswith("Started"))
            assert sorted(e.started for e in seen if isinstance(e, FinishedBase)) == started
            assert asyncio.all_tasks() == {asyncio.current_task()}
    assert cancelled > 3


@pytest.mark.slow
@pytest.mark.parametrize("limits", [Limits(model_calls=300), Limits(tokens=4_000), Limits(effects=400)])
async def test_a_thousand_branches_under_one_budget(tmp_path: Path, limits: Limits) -> None:
    """A thousand branches share the run's budget: it is never exceeded, and its end is theirs."""
    async with flow_of(tmp_path) as flow:

        @flow.workflow
        async def wide(count: int) -> list[str]:
            """Many branches."""
            return await flow.map(flow.echo, [f"text {n}" for n in range(count)])  # type: ignore[attr-defined]

        ends: list[RunFinished] = []
        flow.subscribe(lambda event: ends.append(event) if isinstance(event, RunFinished) else None)
        with pytest.raises(LimitExceeded) as met:
            await flow.run(wide(1_000), limits=limits)
        assert len(await wide(1_000)) == 1_000
    spent, whole = ends
    assert spent.usage is not None and whole.usage is not None and whole.usage.requests == 1_000
    assert met.value.usage == spent.usage and spent.usage.requests < 1_000
    assert spent.usage.requests <= (limits.model_calls or 1_000) and spent.effects <= (limits.effects or 1_000)
    assert spent.usage.total_tokens <= (limits.tokens or 10**9)
