"""A run ends alone: whatever code of the host raises, its run has an outcome, its neighbours end well, and the flow takes the next."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, tool
from agentflow.core.events import Event, RunStarted
from agentflow.errors import AgentflowError, HostPanic, StrayExit, TaskError


class Panic(BaseException):
    """As pyo3 raises a panic of an extension in Rust: no Exception."""


async def uncancelled() -> None:
    """What a library does that cancels a task of its own and lets the error out."""
    task = asyncio.ensure_future(asyncio.sleep(9))
    task.cancel()
    await task


def raising(kind: str) -> None:
    """Raise from plain code."""
    if kind == "exception":
        raise ValueError("odd")
    if kind == "panic":
        raise Panic("rust")
    if kind == "exit":
        sys.exit(3)
    raise asyncio.CancelledError


async def raises(kind: str) -> None:
    """Raise from async code."""
    await asyncio.sleep(0)
    if kind == "cancelled":
        await uncancelled()
    raising(kind)


KINDS = ("exception", "panic", "exit", "cancelled")
CODES = ("tool", "plain tool", "step", "workflow", "branch", "task body", "approver", "observer", "provider")


def flow_with(code: str, kind: str, where: Path) -> tuple[AgentFlow, Any, Any]:
    """A flow, its workflow in which ``code`` raises, and one beside it that has no part in that."""

    def reply(request: Any) -> Any:
        asked = request.messages[0].text
        if code == "provider" and "go" in asked:
            raising(kind)
        calls = code in ("tool", "plain tool", "approver") and "go" in asked and len(request.messages) == 1
        return {"tool_calls": [{"name": "act", "arguments": {}}]} if calls else "fine"

    async def approve(request: Any) -> bool:
        await raises(kind)
        return True

    @tool(approval=code == "approver")
    async def act() -> str:
        """Act."""
        if code == "tool":
            await raises(kind)
        return "acted"

    @tool(name="act")
    def act_plainly() -> str:
        """Act."""
        raising(kind)
        return "acted"

    def observe(event: Event) -> None:
        if code == "observer" and isinstance(event, RunStarted) and "broken" in str(event.program):
            raising(kind)

    flow = AgentFlow(
        provider=ScriptedProvider(reply),
        approve=approve if code == "approver" else None,
        durable=f"sqlite:///{where / 'runs.db'}",
    )
    flow.subscribe(observe)

    @flow.task
    async def body(q: str) -> str:
        """{{q}}"""
        if code == "task body":
            await raises(kind)
        return q

    async def part(item: int) -> int:
        if item == 2:
            await raises(kind)
        return item

    @flow.workflow
    async def broken() -> str:
        if code == "workflow":
            await raises(kind)
        if code == "step":
            await flow.step(raises, kind)
        if code == "branch":
            return str(await flow.map(part, [1, 2, 3]))
        if code == "task body":
            return await body("go")
        return await flow.ask("go", tools=[act_plainly if code == "plain tool" else act])

    @flow.workflow
    async def healthy() -> str:
        await flow.sleep(0.05)
        return await flow.ask("well")

    return flow, broken, healthy


async def outcome(work: Awaitable[Any]) -> Any:
    """What it gives, or the error that it raises."""
    try:
        return await asyncio.wait_for(work, 20)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None and not task.cancelling(), "the caller was cancelled"
        return "cancelled"
    except Exception as error:
        return error


@pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", CODES)
async def test_whatever_code_of_the_host_raises(code: str, kind: str, durable: bool, tmp_path: Path) -> None:
    """An Exception is what it is today; a panic ends its run as HostPanic, an exit or a stray cancel is a failure of that code."""
    flow, broken, healthy = flow_with(code, kind, tmp_path)

    async def begun(call: Callable[[], Any], name: str) -> Any:
        if not durable:
            return await flow.run(call())
        return await (await flow.start(call(), run_id=name)).result()

    async with flow:
        ended, beside = await asyncio.gather(outcome(begun(broken, "broken")), outcome(begun(healthy, "healthy")))
        after = await outcome(begun(healthy, "after"))
    assert (beside.value, after.value) == ("fine", "fine")
    if code == "observer":  # is disabled, with a warning
        assert ended.value == "fine"
    elif kind == "panic":
        assert isinstance(ended, HostPanic) and ended.code == "host/panic" and "rust" in ended.message
    elif code in ("tool", "plain tool", "approver"):  # the model is told, and goes on
        assert ended.value == "fine"
    elif kind == "exception":
        assert isinstance(ended, ValueError | AgentflowError)
    else:  # a task whose body ends so has failed, whatever it failed of
        assert isinstance(ended, StrayExit) or (code == "task body" and isinstance(ended, TaskError))


@pytest.mark.parametrize("form", ["map", "limited", "parallel", "race", "timeout", "retry"])
async def test_a_stray_cancel_in_a_branch_is_its_failure(form: str) -> None:
    """No form gives its sentinel, hangs or ends in an error of its own: the branch has failed."""
    flow = AgentFlow(provider=ScriptedProvider(["x"] * 9))

    async def half(item: int) -> int:
        if item == 2:
            await uncancelled()
        return item

    @flow.workflow
    async def work() -> Any:
        if form == "map":
            return await flow.map(half, [1, 2, 3])
        if form == "limited":
            return await flow.map(half, [1, 2, 3], limit=1)
        if form == "parallel":
            return await flow.parallel(flow.ask("a"), uncancelled())
        if form == "race":
            return await flow.race(uncancelled(), uncancelled())
        if form == "timeout":
            return await flow.timeout(5, uncancelled())
        return await flow.retry(2, uncancelled)

    async with flow:
        ended = await outcome(flow.run(work()))
    assert isinstance(ended, AgentflowError) and ended.code in ("host/stray-exit", "race/all-failed")


@pytest.mark.parametrize("kind", ["panic", "exit", "cancelled"])
@pytest.mark.parametrize(
    "form", ["(ask)", "(pmap (lambda (n) (ask)) (list 1 2))", "(parallel (ask) 1)", "(race (ask) (ask))"]
)
async def test_an_adapter_that_raises_below_a_program(form: str, kind: str) -> None:
    """The program gets an error of the run, and never the exception itself, a cancellation or a branch without a value."""

    def reply(request: Any) -> Any:
        raising(kind)

    async with AgentFlow(provider=ScriptedProvider(reply)) as flow:
        ended = await outcome(flow.run(f'(defatom ask (params) (instructions "go")) (value-of {form})'))
        assert (await flow.run("(+ 1 2)")).value == 3
    assert isinstance(ended, AgentflowError) and ended.code != "internal/error"
    assert (ended.code == "host/panic") == (kind == "panic")
