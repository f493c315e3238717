"""A plain function that does not come back: nothing is tried beside it, and it does not hold the end of the process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentflow import AgentFlow, ScriptedProvider, tool
from agentflow.core.call.daemon_threads import DaemonThreads, ThreadCall
from agentflow.errors import TaskError
from tests.support.children import HANG_S
from tests.support.values import value_of

APP = '''
import asyncio, threading
from agentflow import AgentFlow, Limits, ScriptedProvider

def blocked() -> str:
    """Use a client library without a time-out."""
    print("begun", flush=True)
    threading.Event().wait()
    return "x"

async def blocks() -> str:
    """Use it on a thread."""
    await asyncio.to_thread(blocked)
    return "x"

flow = AgentFlow(provider=ScriptedProvider(["x"]), tools=[blocked, blocks])

@flow.workflow
async def job(message: str) -> str:
    """Do it."""
    return str(await flow.call_tool("blocked"))

async def main():
    async with flow:
        await flow.run("(blocked)", limits=Limits(wall_s=0.2))

if __name__ == "__main__":
    asyncio.run(main())
'''
RUN = ["-m", "agentflow", "run", "--app", "hung_app:flow", "--limit", "wall_s=0.2", "--no-record"]


class Payments:
    """A function that blocks until it is let go, and notes how often it began."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = threading.Event()
        self.ended = threading.Event()

    def pay(self) -> str:
        """Pay."""
        self.begun += 1
        self.go_on.wait()
        self.ended.set()
        return "paid"


DOORS: dict[str, Callable[[Any, Callable[[], str]], Awaitable[Any]]] = {
    "tool": lambda flow, pay: value_of(flow.run("(pay)")),
    "form of a tool": lambda flow, pay: value_of(flow.run("(retry 3 (timeout 0.1 (pay-slowly)))")),
    "form of a function": lambda flow, pay: value_of(flow.run("(retry 3 (timeout 0.1 (f)))", bindings={"f": pay})),
    "call in a workflow": lambda flow, pay: flow.retry(3, lambda: flow.timeout(0.1, flow.call_tool("pay-slowly"))),
    "step in a workflow": lambda flow, pay: flow.retry(3, lambda: flow.timeout(0.1, flow.step(pay))),
}


@pytest.mark.parametrize("door", DOORS)
async def test_it_is_not_tried_again_beside_itself(door: str) -> None:
    """Whatever tries again, the call before may yet take effect: the failure stands, and says so where a model reads it."""
    payments = Payments()

    @tool(timeout_s=0.1, retries=2, name="pay")
    def pay() -> str:
        """Pay."""
        return payments.pay()

    @tool(name="pay-slowly")
    def slowly() -> str:
        """Pay."""
        return payments.pay()

    async with AgentFlow(provider=ScriptedProvider([]), tools=[pay, slowly]) as flow:
        try:
            failed: Any = await DOORS[door](flow, payments.pay)
        except TaskError as error:
            assert error.code == "timeout/elapsed"
        else:
            error = failed.notes["error"]
            assert error["details"]["still_at_work"] and "its thread still works" in error["message"]
        assert payments.begun == 1
        payments.go_on.set()
        assert payments.ended.wait(20)


async def test_what_came_back_is_tried_again() -> None:
    """A plain function that fails in time has as many tries as it was given."""
    tries: list[int] = []

    @tool(retries=2)
    def odd() -> str:
        """Fail twice."""
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("odd")
        return "even"

    async with AgentFlow(provider=ScriptedProvider([]), tools=[odd]) as flow:
        assert ((await flow.run("(odd)")).value).content == "even"
    assert len(tries) == 3


def begun(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """A process of its own in a directory with the module ``hung_app``."""
    (directory / "hung_app.py").write_text(APP)
    for name in ("blocked", "blocks"):
        (directory / f"{name}.sexp").write_text(f"({name})")
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([sys.executable, *arguments], cwd=directory, text=True, **both)  # type: ignore[call-overload]


@pytest.mark.parametrize("arguments", [["hung_app.py"], [*RUN, "blocked.sexp"], [*RUN, "blocks.sexp"]])
def test_it_does_not_hold_the_end_of_a_process(arguments: list[str], tmp_path: Path) -> None:
    """``asyncio.run`` and a command end after the limit, and name the function that they leave at work."""
    process = begun(tmp_path, *arguments)
    said, _ = process.communicate(timeout=HANG_S)
    assert process.returncode != 0 and "begun" in said
    assert "blocked has not come back after 2 s; the process ends without it" in said


def test_it_does_not_hold_a_server(tmp_path: Path) -> None:
    """After SIGTERM a server gives its runs the grace, and ends whatever a thread does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--export", "job", "--port", str(port), "--grace", "0.1", "--no-record"]
    process = begun(tmp_path, "-m", "agentflow", "serve", "--app", "hung_app:flow", *options)
    assert process.stdout is not None
    try:
        url = f"http://127.0.0.1:{port}"
        while True:
            try:
                httpx2.get(f"{url}/health")
                break
            except httpx2.TransportError:
                assert process.poll() is None
                time.sleep(0.05)
        httpx2.post(f"{url}/runs", json={"export": "job", "bindings": {"message": "x"}})
        said = ""
        while "begun" not in said:
            said += process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
    assert "blocked has not come back" in rest


def test_threads_are_used_again_and_bounded() -> None:
    """A thread that is idle takes the next call; more calls than threads wait for one."""
    threads = DaemonThreads(2, "some")
    used: set[int] = set()
    for _ in range(5):
        threads.submit(lambda: used.add(threading.get_ident())).result(20)
        time.sleep(0.01)
    assert len(used) <= 2
    gate, together, most = threading.Event(), [0], [0]

    def count() -> None:
        together[0] += 1
        most[0] = max(most[0], together[0])
        gate.wait(20)
        together[0] -= 1

    calls = [threads.submit(count) for _ in range(6)]
    gate.set()
    assert all([call.result(20) is None for call in calls]) and most[0] <= 2


def test_what_a_call_raises_is_raised_where_it_is_awaited() -> None:
    """Also what is not an Exception, and what no future can hold."""
    threads = DaemonThreads(2, "some")

    def end(error: BaseException) -> None:
        raise error

    for error, kind in ((ValueError("odd"), ValueError), (SystemExit(3), SystemExit), (StopIteration(), RuntimeError)):
        with pytest.raises(kind):
            threads.submit(ThreadCall(end, (error,))).result(20)
