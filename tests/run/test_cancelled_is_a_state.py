"""Cancelled is a state: code of the host that catches its cancellation or a limit goes on no further, cleans up for a while, and ends as what it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentflow import AgentFlow, LimitExceeded, Limits, ScriptedProvider
from agentflow.core.call.host_calls import HostCalls
from agentflow.core.data.messages import ModelDelta, ModelRequest, ModelResponse, TextPart, Usage
from agentflow.core.events.events import RunFinished
from agentflow.errors import AgentflowError, JournalError, TaskError
from tests.support.values import value_of


class World:
    """A flow, and what was done in it."""

    def __init__(self, where: Path | None = None) -> None:
        self.asked: list[str] = []
        self.done: list[str] = []
        self.begun = asyncio.Event()
        self.provider = ScriptedProvider(self._reply)
        more = {} if where is None else {"durable": f"sqlite:///{where / 'runs.db'}"}
        self.flow = AgentFlow(provider=self.provider, tools=[self.act], **more)  # type: ignore[arg-type]

    def _reply(self, request: Any) -> str:
        self.asked.append(request.messages[-1].text)
        return "an answer"

    async def act(self, what: str) -> str:
        """Do something."""
        self.done.append(what)
        return what

    async def forever(self) -> None:
        """Wait for ever."""
        self.begun.set()
        await asyncio.sleep(9999)


async def swallows(world: World) -> str:
    """Catch whatever comes, and go on."""
    with contextlib.suppress(BaseException):
        await world.forever()
    return await goes_on(world)


async def goes_on(world: World) -> str:
    """Try each way to do more, twice, and report success."""
    flow = world.flow
    ways: list[Callable[[], Awaitable[Any]]] = [
        lambda: flow.ask("go on"),
        lambda: flow.call_tool("act", what="more"),
        lambda: value_of(flow.run('(act (what "more"))')),
        lambda: flow.step(world.act, "more"),
        lambda: flow.map(world.act, ["more"]),
        lambda: flow.handler.execute_prompt("go on"),
    ]
    for way in (*ways, *ways):
        with contextlib.suppress(BaseException):
            await way()
    return "success"


def calls(world: World) -> dict[str, Callable[[], Any]]:
    """Calls in which code of each kind swallows what stops it."""
    flow = world.flow

    async def stubborn(n: int = 0) -> str:
        """Go on."""
        return await swallows(world)

    flow.tool(stubborn)

    async def branch(item: int) -> str:
        return await swallows(world)

    @flow.workflow
    async def workflow() -> str:
        return await swallows(world)

    @flow.workflow
    async def mapped() -> str:
        return str(await flow.map(branch, [1, 2]))

    @flow.workflow
    async def nested() -> str:
        return await workflow()

    @flow.workflow
    async def stepping() -> str:
        return str(await flow.step(stubborn))

    @flow.workflow
    async def calling() -> str:
        return str(await flow.call_tool("stubborn", n=1))

    return {
        "workflow": workflow,
        "branches": mapped,
        "nested workflow": nested,
        "step": stepping,
        "tool": calling,
        "tool of a program": lambda: "(stubborn (n 1)) (stubborn (n 1))",
    }


CODES = ("workflow", "branches", "nested workflow", "step", "tool", "tool of a program")


async def stopped_plainly(world: World, call: Any) -> Any:
    task = asyncio.ensure_future(world.flow.run(call))
    await asyncio.wait_for(world.begun.wait(), 20)
    task.cancel()
    await asyncio.wait([task])
    return "cancelled" if task.cancelled() else task.exception() or task.result().value


async def stopped_durably(world: World, call: Any) -> Any:
    handle = await world.flow.start(call, run_id="r")
    await asyncio.wait_for(world.begun.wait(), 20)
    await handle.cancel()
    with pytest.raises(JournalError):
        await handle.result()
    return handle.status


async def limited(world: World, call: Any) -> Any:
    with pytest.raises(LimitExceeded) as met:
        await world.flow.run(call, limits=Limits(wall_s=0.3))
    return met.value.limit


async def outside(world: World, call: Any) -> Any:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await world.flow.run(call)
    return "cancelled"


async def timed(world: World, call: Any) -> Any:
    flow = world.flow

    @flow.workflow
    async def bounded() -> str:
        return await flow.timeout(0.3, value_of(flow.run(call)) if isinstance(call, str) else call)

    with pytest.raises(TaskError) as late:
        await flow.run(bounded())
    return late.value.code


STOPS: dict[str, tuple[Callable[[World, Any], Awaitable[Any]], str]] = {
    "cancelled": (stopped_plainly, "cancelled"),
    "cancelled durably": (stopped_durably, "cancelled"),
    "wall_s": (limited, "wall_s"),
    "a time-out outside": (outside, "cancelled"),
    "a time-out within": (timed, "timeout/elapsed"),
}


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("code", CODES)
async def test_what_swallows_its_stop_goes_on_no_further(code: str, stop: str, tmp_path: Path) -> None:
    """No model is asked and nothing is done after it, and the run ends as what it was; the flow takes the next one."""
    world = World(tmp_path if "durably" in stop else None)
    end, expected = STOPS[stop]
    async with world.flow:
        assert await end(world, calls(world)[code]()) == expected
        assert world.asked == [] and world.done == []
        assert (await world.flow.run("(+ 1 2)")).value == 3


@pytest.mark.parametrize("limits", [Limits(model_calls=1), Limits(effects=1), Limits(tokens=60)])
async def test_a_limit_that_is_caught_ends_the_run(limits: Limits) -> None:
    """A workflow that catches LimitExceeded asks no more and has no value, whatever the limit counts."""
    world = World()
    flow = world.flow

    @flow.workflow
    async def work() -> str:
        for _ in range(30):
            with contextlib.suppress(Exception):
                await flow.ask("a question " * 10, max_output_tokens=16)
        return "success"

    async with flow:
        with pytest.raises(LimitExceeded):
            await flow.run(work(), limits=limits)
    assert len(world.asked) <= 3


class Booking:
    """A reservation that is taken back in ``__aexit__``."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __aenter__(self) -> None:
        await self._world.flow.step(self._world.act, "book")

    async def __aexit__(self, *error: object) -> None:
        await self._world.flow.step(self._world.act, "refund")


async def in_finally(world: World) -> str:
    await world.flow.step(world.act, "book")
    try:
        await world.forever()
    finally:
        await world.flow.step(world.act, "refund")
    return "success"


async def in_except(world: World) -> str:
    await world.flow.step(world.act, "book")
    try:
        await world.forever()
    except BaseException:
        with contextlib.suppress(ValueError):
            raise ValueError("within")  # noqa: B904
        await world.flow.call_tool("act", what="refund")
        raise
    return "success"


async def in_exit(world: World) -> str:
    async with Booking(world):
        await world.forever()
    return "success"


async def in_handler_of_another(world: World) -> str:
    await world.flow.step(world.act, "book")
    try:
        await world.forever()
    except BaseException as stop:
        try:
            raise ValueError("while that was handled") from None
        except ValueError:
            await world.flow.step(world.act, "refund")
        raise stop
    return "success"


COMPENSATIONS = [in_finally, in_except, in_exit, in_handler_of_another]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("work", COMPENSATIONS)
async def test_compensation_works(work: Callable[[World], Awaitable[str]], stop: str, tmp_path: Path) -> None:
    """What is called in ``except``, ``finally`` and ``__aexit__`` while the stop is handled is carried out, once."""
    world = World(tmp_path if "durably" in stop else None)
    flow = world.flow

    @flow.workflow
    async def trip() -> str:
        return await work(world)

    end, expected = STOPS[stop]
    async with flow:
        assert await end(world, trip()) == expected
    assert world.done == ["book", "refund"]


async def test_no_clean_up_asks_a_model(tmp_path: Path) -> None:
    """Neither of a workflow nor of a tool, as for the finally forms of programs."""
    world = World()
    flow = world.flow
    codes: list[str] = []

    @flow.workflow
    async def work() -> str:
        try:
            await world.forever()
        finally:
            try:
                await flow.ask("and now?")
            except AgentflowError as error:
                codes.append(error.code)
        return "success"

    async with flow:
        assert await stopped_plainly(world, work()) == "cancelled"
    assert world.asked == [] and codes == ["finally/model-call"]


async def test_an_interruption_cleans_nothing_up(tmp_path: Path) -> None:
    """A run that its process gives up compensates nothing: it goes on elsewhere, and does so there."""
    world = World(tmp_path)
    flow = world.flow

    @flow.workflow
    async def trip() -> str:
        return await in_finally(world)

    async with flow:
        await flow.start(trip(), run_id="r")
        await world.begun.wait()
    assert world.done == ["book"]


async def by_timeout(wait: Awaitable[Any]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await wait


async def by_wait_for(wait: Awaitable[Any]) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wait, 0.01)


async def by_anyio(wait: Awaitable[Any]) -> None:
    with anyio.move_on_after(0.01):
        await wait


async def by_group(wait: Awaitable[Any]) -> None:
    async def fail() -> None:
        raise ValueError

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await wait


async def by_the_end_of_a_group(wait: Awaitable[Any]) -> None:
    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise ValueError

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(wait)  # type: ignore[arg-type]


@pytest.mark.parametrize("give_up", [by_timeout, by_wait_for, by_anyio, by_group, by_the_end_of_a_group])
@pytest.mark.parametrize("where", ["workflow", "tool"])
async def test_what_code_gives_up_itself_is_no_stop(where: str, give_up: Any) -> None:
    """Code that ends a wait of its own, or whose group of tasks fails, goes on afterwards."""
    world = World()
    flow = world.flow

    async def patient() -> str:
        """Wait a little, and ask."""
        await give_up(world.forever())
        return await flow.ask("and now?") + await flow.ask("and then?")

    flow.tool(patient)

    @flow.workflow
    async def work() -> str:
        if where == "workflow":
            return await patient()
        return str(await flow.call_tool("patient")) + await flow.ask("well?")

    async with flow:
        assert "an answeran answer" in (await flow.run(work())).value


async def ended(work: Callable[[HostCalls], Awaitable[Any]], log: Any, *, cancel: bool = True) -> Any:
    """Await code of the host which has a tenth of a second to clean up, and cancel it."""
    code: list[HostCalls] = []

    async def awaiting() -> Any:
        code.append(HostCalls())
        return await code[0].to_end(work(code[0]), "this code", 0.1)

    task = asyncio.ensure_future(awaiting())
    await asyncio.sleep(0.01)
    if cancel:
        task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.done()
    return "cancelled" if task.cancelled() else task.exception() or task.result()


async def never_cleans_up(code: HostCalls) -> None:
    try:
        await asyncio.sleep(9999)
    finally:
        await asyncio.sleep(9999)


async def sleeps_on(code: HostCalls) -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(9999)


async def tries_for_ever(code: HostCalls) -> None:
    with contextlib.suppress(BaseException):
        await asyncio.sleep(9999)
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await code.check()


@pytest.mark.parametrize("work", [never_cleans_up, sleeps_on, tries_for_ever])
async def test_clean_up_has_a_bound(work: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Code that does not end is given up, and a line names it; it is cancelled all the same."""
    assert await ended(work, caplog) == "cancelled"
    assert "this code did not end within 0.1 s" in caplog.text


async def test_ones_own_time_out_has_the_bound_too(caplog: pytest.LogCaptureFixture) -> None:
    """The clean-up of a time-out that code set itself: nobody cancelled the code, which ends as that says."""

    async def work(code: HostCalls) -> None:
        async with asyncio.timeout(0.01):
            await never_cleans_up(code)

    assert isinstance(await ended(work, caplog, cancel=False), TimeoutError)
    assert "this code did not end within 0.1 s" in caplog.text


async def test_time_that_was_taken_back_counts_no_more() -> None:
    """A time-out of the code's own that ended well leaves the code as long as it likes."""

    async def work(code: HostCalls) -> str:
        await by_timeout(asyncio.sleep(9999))
        await asyncio.sleep(0.3)
        await code.check()
        return "done"

    assert await ended(work, None, cancel=False) == "done"


async def test_a_tool_that_does_not_end_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """The run ends at its limit, a few seconds later, and the log names the tool."""

    async def stuck() -> str:
        """Hold on."""
        await sleeps_on(HostCalls())
        return "x"

    async with AgentFlow(provider=ScriptedProvider([]), tools=[stuck]) as flow:
        with pytest.raises(LimitExceeded) as met:
            await flow.run("(stuck)", limits=Limits(wall_s=0.1))
    assert met.value.limit == "wall_s" and "the tool 'stuck' did not end within 5 s" in caplog.text


class Deaf(ScriptedProvider):
    """An adapter whose answer comes whatever happens, as of a library that catches every exception and asks once more."""

    def __init__(self, begun: asyncio.Event) -> None:
        super().__init__(["fine"] * 9)
        self.begun = begun
        self.answers = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        self.begun.set()
        with contextlib.suppress(BaseException):
            await asyncio.sleep(9999)
        self.answers += 1
        yield ModelDelta(response=ModelResponse((TextPart("fine"),), "end", Usage(10, 5)))


@pytest.mark.parametrize("stop", ["cancelled", "cancelled durably", "wall_s"])
async def test_an_adapter_that_swallows_its_stop_answers_nobody(stop: str, tmp_path: Path) -> None:
    """Below a bare program, too, nothing goes on with the answer; what it used is charged."""
    world = World(tmp_path if "durably" in stop else None)
    adapter = Deaf(world.begun)
    more = {"durable": f"sqlite:///{tmp_path / 'runs.db'}"} if "durably" in stop else {}
    spent: list[int] = []
    async with AgentFlow(provider=adapter, tools=[world.act], **more) as flow:  # type: ignore[arg-type]
        world.flow = flow
        flow.subscribe(lambda event: spent.append(event.usage.input_tokens) if isinstance(event, RunFinished) else None)
        end, expected = STOPS[stop]
        program = '(defatom ask (params) (instructions "go")) (ask) (act (what "more")) (ask)'
        assert await end(world, program) == expected
    assert world.done == [] and adapter.answers == 1 and spent == [10]


@pytest.mark.parametrize("stop", STOPS)
async def test_compensation_of_a_tool_works(stop: str, tmp_path: Path) -> None:
    """What a tool takes back in its own clean-up is carried out, once, as that of a workflow is."""
    world = World(tmp_path if "durably" in stop else None)
    flow = world.flow

    async def trip(n: int = 0) -> str:
        """Book, and take it back."""
        return await in_finally(world)

    flow.tool(trip)

    @flow.workflow
    async def travels() -> str:
        return str(await flow.call_tool("trip", n=1))

    end, expected = STOPS[stop]
    async with flow:
        assert await end(world, travels()) == expected
    assert world.done == ["book", "refund"]
