"""A run that is said things and sent signals, in processes that a test kills: one line of JSON on standard input for each.

``{"db", "log", "role"}``: ``work`` carries the run out and says things to it itself, ``send`` does so from a process of its own. The
process is forked; its number is printed, and when it has ended, its status. The log has ``try KEY`` before a message is sent and
``sent KEY`` once that has returned. The run waits at its limit of model calls again and again: ``asked N`` is the limit that is met,
``raised N`` the one that a worker has raised it to. The value of the run has all that its models and its workflow have read, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.core.data.messages import ModelRequest, ToolResultPart
from agentflow.errors import DataError
from tests.durable.child import Log

RUN = "listener"
TURNS = 4
RAISE = 7
"""Model calls by which a limit is raised."""
LAST = -1
"""The last value of the signal."""
_SAID = re.compile(r"\[([\w.]+)\]")


async def answer(request: ModelRequest) -> Any:
    """A few tool turns; then the texts in the conversation that were said to the run."""
    await asyncio.sleep(random.uniform(0, 0.006))
    turns = sum(isinstance(part, ToolResultPart) for each in request.messages for part in each.parts)
    if turns < TURNS:
        return {"tool_calls": [{"name": "look", "arguments": {"n": turns}}]}
    return " ".join([key for each in request.messages for key in _SAID.findall(each.text) if each.role == "user"])


def declared(flow: AgentFlow) -> Callable[[], Any]:
    """The workflow: loops of a model, signals between them, and a last loop that reads the rest."""

    @flow.tool
    async def look(n: int) -> str:
        """Look."""
        await asyncio.sleep(random.uniform(0, 0.006))
        return f"seen {n}"

    @flow.task(tools=[look])
    async def agent(about: str) -> str:
        """{{about}}"""
        raise NotImplementedError

    @flow.workflow
    async def listener() -> list[Any]:
        read, values = [await agent("first")], list[int]()
        while not values or values[-1] != LAST:
            values.append(await flow.signal("value", int))
            await flow.publish("values", len(values))
            if len(values) % 4 == 0:
                read.append(await agent(f"after {len(values)}"))
        read.append(await agent("last"))
        return [" ".join(read).split(), values]

    return listener


async def sends(job: dict[str, Any], log: Log, flow: AgentFlow, texts: int, values: int) -> None:
    """Say and send so many messages, numbered after those of earlier processes."""

    async def one(key: str, sending: Awaitable[None]) -> None:
        log.line("try", key)
        await sending
        log.line("sent", key)

    for n in range(texts):
        await asyncio.sleep(random.uniform(0, 0.02))
        key = f"t{os.getpid()}.{n}"
        await one(key, flow.say(RUN, f"[{key}]"))
    for n in range(values):
        await asyncio.sleep(random.uniform(0, 0.02))
        number = job["first"] + n
        await one(f"v{number}", flow.send_signal(RUN, "value", number))
    if values:
        await one(f"v{LAST}", flow.send_signal(RUN, "value", LAST))


async def raises(log: Log, flow: AgentFlow) -> None:
    """Raise the limit of the run whenever it asks for that."""
    while True:
        for question in await flow.questions(RUN):
            if question.limit is not None:
                more = int(question.limit.allowed) + RAISE
                log.line("asked", str(more - RAISE))
                with contextlib.suppress(DataError):  # it was answered by the process before
                    await flow.send(RUN, question.key, more)
                    log.line("raised", str(more))
        await asyncio.sleep(random.uniform(0, 0.02))


async def run(job: dict[str, Any]) -> None:
    log = Log(job["log"])
    with tempfile.TemporaryDirectory() as root:
        async with AgentFlow(provider=ScriptedProvider(answer), root=root, durable=f"sqlite:///{job['db']}") as flow:
            listener = declared(flow)
            if job["role"] == "send":
                await sends(job, log, flow, texts=job["texts"], values=job["values"])
                return
            handle = await flow.start(listener(), run_id=RUN, limits=Limits(model_calls=RAISE), on_limit="wait")
            log.line("at", "work")
            own = [
                asyncio.create_task(sends(job, log, flow, texts=2, values=0)),
                asyncio.create_task(raises(log, flow)),
            ]
            value = (await handle.result()).value
            for each in own:
                each.cancel()
            await asyncio.gather(*own, return_exceptions=True)
            state = await flow.state(RUN)
    with open(job["log"] + ".end", "w") as file:  # noqa: ASYNC230 - nothing else runs here
        json.dump([*value, state], file)


def main() -> None:
    """Fork a process for every job."""
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                asyncio.run(run(job))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
