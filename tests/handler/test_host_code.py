"""Code of the host that ends in an odd way is a failure of that code: never the end of the process, the run or an event."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import DataError
from agentflow.core.events.events import ToolStarted
from agentflow.errors import StrayExit
from agentflow.lang.portable import load_closure
from tests.support.values import value_of


async def quit_async() -> int:
    """Ends the process."""
    sys.exit(3)


def quit_in_thread() -> int:
    """Ends the process, from a worker thread."""
    sys.exit("bye")


async def stray() -> int:
    """Raises what only a cancellation raises."""
    raise asyncio.CancelledError


async def awaits_cancelled() -> int:
    """Waits for something that somebody else cancelled."""
    other = asyncio.ensure_future(asyncio.sleep(10))
    other.cancel()
    await other
    return 1


@pytest.mark.parametrize("tool", [quit_async, quit_in_thread, stray, awaits_cancelled])
async def test_it_is_a_failed_tool(tool: Any) -> None:
    """FAILED with tool_execution_error, alone and in a branch, whose siblings go on."""
    async with AgentFlow(provider=ScriptedProvider([]), tools=[tool]) as flow:
        result = (await flow.run(f"({tool.__name__})")).value
        assert result.status == "FAILED" and result.notes["error"]["reason"] == "tool_execution_error"
        assert (await flow.run(f"(map status (list (nth (parallel ({tool.__name__}) 2) 0)))")).value == ["FAILED"]
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


@pytest.mark.parametrize("function", [lambda: sys.exit(1), stray])
async def test_it_is_an_error_of_a_host_callable(function: Any) -> None:
    """A program can catch it like any error of a callable it was bound to."""
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        with pytest.raises(StrayExit, match="code of the host") as raised:
            await flow.run("(h)", bindings={"h": function})
        assert raised.value.code == "host/stray-exit"
        assert (await flow.run("(try (h) (catch (e) 1))", bindings={"h": function})).value == 1


async def test_a_real_cancellation_is_one() -> None:
    """A tool that is waiting when its run is cancelled does not turn that into a result."""
    started = asyncio.Event()

    async def wait() -> int:
        """Waits."""
        started.set()
        await asyncio.sleep(30)
        return 1

    async with AgentFlow(provider=ScriptedProvider([]), tools=[wait]) as flow:
        run = asyncio.ensure_future(value_of(flow.run("(wait)")))
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await flow.run("(wait)")


async def test_data_too_deep_for_an_event_is_said_to_be() -> None:
    """The event arrives at every observer and can be written; the observer is not disabled by it."""
    seen: list[str] = []

    async def take(value: Any = None) -> int:
        """Takes anything.

        Args:
            value: anything
        """
        return 1

    async with AgentFlow(provider=ScriptedProvider([]), tools=[take]) as flow:
        flow.subscribe(
            lambda event: seen.append(json.dumps(event.to_dict())) if isinstance(event, ToolStarted) else None
        )
        deep = "(define (deep n x) (if (= n 0) x (deep (- n 1) (list x)))) (status (take (value (deep 3000 1))))"
        await flow.run(deep)
        await flow.run("(take (value 1))")
    assert len(seen) == 2 and "nested deeper" in seen[0]


def test_a_deep_description_of_a_closure_is_refused() -> None:
    """load_closure answers data that is too deep with its own error."""
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    data = {"v": 1, "root": 0, "closures": [{"source": "x", "text": "(lambda () y)", "bindings": {"y": deep}}]}
    with pytest.raises(DataError):
        load_closure(data)
