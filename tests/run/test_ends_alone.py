"""A run ends alone: whatever code of the host raises, its run has an outcome, its neighbours end well, and the flow takes the next."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, LimitExceeded, Limits, ScriptedProvider, tool
from agentflow.core.data.messages import ModelDelta, ModelRequest
from agentflow.core.events.events import Event, RunStarted
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


def flow_with(code: str, kind: str, where: Path, url: str | None = None) -> tuple[AgentFlow, Any, Any]:
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
        durable=url or f"sqlite:///{where / 'runs.db'}",
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


STOPPED = ("swallowed", "hang", "thread")
STAYING = ("tool", "step", "workflow", "branch", "task body", "approver", "provider")


async def stays(kind: str, release: threading.Event) -> None:
    """Go on although it is stopped, wait for ever, or wait for a thread that does."""
    if kind == "swallowed":
        with contextlib.suppress(BaseException):
            await asyncio.sleep(9999)
        return
    await (asyncio.sleep(9999) if kind == "hang" else asyncio.to_thread(release.wait))


class Staying(ScriptedProvider):
    """A provider whose answer to some questions does not come."""

    def __init__(self, reply: Callable[[Any], Any], wait: Callable[[], Awaitable[None]] | None) -> None:
        super().__init__(reply)
        self._wait = wait

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        if self._wait is not None and "go" in request.messages[0].text:
            await self._wait()
        async with contextlib.aclosing(super().stream(request)) as answer:
            async for delta in answer:
                yield delta


def staying_flow(
    code: str, kind: str, where: Path, release: threading.Event, url: str | None = None
) -> tuple[AgentFlow, Any, Any]:
    """As :func:`flow_with`, for code that does not end by itself."""

    def reply(request: Any) -> Any:
        calls = code in ("tool", "approver") and "go" in request.messages[0].text and len(request.messages) == 1
        return {"tool_calls": [{"name": "act", "arguments": {}}]} if calls else "fine"

    async def stay() -> str:
        await stays(kind, release)
        return "success"

    async def approve(request: Any) -> bool:
        return bool(await stay())

    @tool(approval=code == "approver")
    async def act() -> str:
        """Act."""
        return await stay() if code == "tool" else "acted"

    flow = AgentFlow(
        provider=Staying(reply, (lambda: stays(kind, release)) if code == "provider" else None),
        approve=approve if code == "approver" else None,
        durable=url or f"sqlite:///{where / 'runs.db'}",
    )

    @flow.task
    async def body(q: str) -> str:
        """{{q}}"""
        return await stay() if code == "task body" else q

    async def part(item: int) -> str:
        return await stay()

    @flow.workflow
    async def broken() -> str:
        if code == "workflow":
            return await stay()
        if code == "step":
            return str(await flow.step(stay))
        if code == "branch":
            return str(await flow.map(part, [1, 2]))
        return await (body("go") if code == "task body" else flow.ask("go", tools=[act]))

    @flow.workflow
    async def healthy() -> str:
        return await flow.ask("well")

    return flow, broken, healthy


@pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])
@pytest.mark.parametrize("kind", STOPPED)
@pytest.mark.parametrize("code", STAYING)
async def test_code_that_does_not_end_is_stopped(code: str, kind: str, durable: bool, tmp_path: Path) -> None:
    """The run ends at its limit, whatever the code makes of that; its neighbour ends well, and the flow takes the next one."""
    release = threading.Event()
    flow, broken, healthy = staying_flow(code, kind, tmp_path, release)

    async def begun(call: Callable[[], Any], name: str, limits: Limits | None = None) -> Any:
        if not durable:
            return await flow.run(call(), limits=limits)
        return await (await flow.start(call(), run_id=name, limits=limits)).result()

    async with flow:
        late = outcome(begun(broken, "broken", Limits(wall_s=0.3)))
        ended, beside = await asyncio.gather(late, outcome(begun(healthy, "healthy")))
        after = await outcome(begun(healthy, "after"))
        release.set()
    assert (beside.value, after.value) == ("fine", "fine")
    assert isinstance(ended, LimitExceeded) and ended.limit == "wall_s"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", CODES)
async def test_a_server_goes_on_whatever_code_raises(code: str, kind: str, tmp_path: Path) -> None:
    """The run that is served has ended, its neighbour ends well, and the server is ready and takes the next."""
    pytest.importorskip("starlette")
    from tests.support.served import served

    flow, broken, healthy = flow_with(code, kind, tmp_path)
    async with flow, served(flow, {"broken": broken, "healthy": healthy}) as server:
        runs = [await server.begin(name) for name in ("broken", "healthy")]
        ended, beside = [await asyncio.wait_for(server.ended(run), 20) for run in runs]
        assert (await server.get("/ready")).status_code == 200
        after = await asyncio.wait_for(server.ended(await server.begin("healthy")), 20)
    assert ended["status"] in ("done", "failed", "error"), ended
    assert beside["status"] == after["status"] == "done"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", ["tool", "workflow", "task body", "provider"])
async def test_a_worker_goes_on_whatever_code_raises(code: str, kind: str, tmp_path: Path, postgres_url: str) -> None:
    """The run has ended in an outcome, and the worker does its neighbour and the next."""
    flow, broken, healthy = flow_with(code, kind, tmp_path, postgres_url)
    stop = asyncio.Event()

    async def left(call: Callable[[], Any], name: str) -> Any:
        return await (await flow.start(call(), run_id=name, where="workers")).result()

    async with flow:
        work = asyncio.create_task(flow.work(stop=stop))
        ended, beside = await asyncio.gather(outcome(left(broken, "broken")), outcome(left(healthy, "healthy")))
        after = await outcome(left(healthy, "after"))
        stop.set()
        await work
    assert (beside.value, after.value) == ("fine", "fine")
    assert isinstance(ended, AgentflowError) or (code == "tool" and kind != "panic" and ended.value == "fine")


@pytest.mark.parametrize("kind", STOPPED)
@pytest.mark.parametrize("code", STAYING)
async def test_a_server_stops_code_that_does_not_end(code: str, kind: str, tmp_path: Path) -> None:
    """The run that is served ends at its limit, its neighbour ends well, and the server is ready and takes the next."""
    pytest.importorskip("starlette")
    from agentflow.serve import Export
    from tests.support.served import served

    release = threading.Event()
    flow, broken, healthy = staying_flow(code, kind, tmp_path, release)
    async with (
        flow,
        served(flow, {"broken": Export(program=broken, limits=Limits(wall_s=0.3)), "healthy": healthy}) as server,
    ):
        runs = [await server.begin(name) for name in ("broken", "healthy")]
        ended, beside = [await asyncio.wait_for(server.ended(run), 20) for run in runs]
        assert (await server.get("/ready")).status_code == 200
        after = await asyncio.wait_for(server.ended(await server.begin("healthy")), 20)
        release.set()
    assert ended["status"] == "failed" and ended["error"]["code"] == "limits/wall", ended
    assert beside["status"] == after["status"] == "done"


@pytest.mark.parametrize("kind", STOPPED)
@pytest.mark.parametrize("code", STAYING)
async def test_a_worker_stops_code_that_does_not_end(code: str, kind: str, tmp_path: Path, postgres_url: str) -> None:
    """The run ends at its limit, and the worker does its neighbour and the next."""
    release, stop = threading.Event(), asyncio.Event()
    flow, broken, healthy = staying_flow(code, kind, tmp_path, release, postgres_url)

    async def left(call: Callable[[], Any], name: str, limits: Limits | None = None) -> Any:
        return await (await flow.start(call(), run_id=name, limits=limits, where="workers")).result()

    async with flow:
        work = asyncio.create_task(flow.work(stop=stop))
        late = outcome(left(broken, "broken", Limits(wall_s=0.3)))
        ended, beside = await asyncio.gather(late, outcome(left(healthy, "healthy")))
        after = await outcome(left(healthy, "after"))
        stop.set()
        await work
        release.set()
    assert (beside.value, after.value) == ("fine", "fine")
    assert isinstance(ended, LimitExceeded) and ended.limit == "wall_s"
