"""Runs durable programs in processes that the harness kills: one line of JSON on standard input for each.

``{"db", "run", "program", "log", "replay"}``. The process is forked, so that it begins at once; its number is printed, and when
it has ended, its status. The log says what was carried out, and what of it was acknowledged as stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, DurableRun, Limits, RunResult, ScriptedProvider, TaskResult
from agentflow.core.errors import DataError
from agentflow.core.journal import EffectRow, EffectState, RunStatus
from agentflow.core.messages import ModelRequest, ToolResultPart
from agentflow.core.templates import Parameter
from agentflow.core.values import plain
from agentflow.handler.tools import subtask_tool, tool_from_function
from agentflow.journal.sqlite import SqliteJournal
from agentflow.runtime.durable import DurableRuns
from agentflow.tasks.workflows import Workflow
from tests.durable.programs import PROGRAMS, WORKFLOW

_KEY = re.compile(r"<([\w-]+)>")


class Log:
    """Lines that survive a kill: each is one write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def line(self, what: str, key: str) -> None:
        os.write(self._file, f"{what} {key}\n".encode())


class Failpoint:
    """Kills the process when it comes to a point the ``nth`` time."""

    def __init__(self, point: str | None, nth: int) -> None:
        self._point = point
        self._left = nth

    def __call__(self, point: str) -> None:
        """The process has come to ``point``."""
        if point == self._point:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


class LoggingJournal(SqliteJournal):
    """A journal that says what it has stored, and what it was told to forget."""

    def __init__(self, path: Path, log: Log, failpoint: Failpoint) -> None:
        super().__init__(path)
        self._log = log
        self._failpoint = failpoint
        self._keys: dict[bytes, set[str]] = {}

    def put(self, run: str, epoch: int, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> asyncio.Future[None]:
        ended = any([row.state in (EffectState.OK, EffectState.FAILED) for row in rows])
        if ended:
            self._failpoint("unwritten")
        future = super().put(run, epoch, rows, drop)

        def stored(done: asyncio.Future[None]) -> None:
            if ended:
                self._failpoint("undelivered")
            if not done.cancelled() and done.exception() is None:
                for row in rows:
                    if row.state in (EffectState.OK, EffectState.FAILED):
                        self._keys[row.key] = keys = set(_KEY.findall(json.dumps(row.value)))
                        for key in sorted(keys):
                            self._log.line("stored", key)

        future.add_done_callback(stored)
        for key in drop:
            for name in self._keys.get(key, ()):
                self._log.line("forgotten", name)
        return future

    async def park(self, run: str, epoch: int, seq: int, wake_at: float | None, *, spent_s: float = 0.0) -> bool:
        self._failpoint("park")
        parked = await super().park(run, epoch, seq, wake_at, spent_s=spent_s)
        self._failpoint("park")
        return parked

    async def finish(self, run: str, epoch: int, status: RunStatus, **end: Any) -> None:
        self._failpoint("finish")
        await super().finish(run, epoch, status, **end)


class World:
    """The tools, the host's callables and the model of the programs."""

    def __init__(self, log: Log, failpoint: Failpoint, *, replay: bool) -> None:
        self._log = log
        self._failpoint = failpoint
        self._replay = replay
        self.flow: AgentFlow | None = None

    async def carry_out(self, key: str, ms: float) -> str:
        self._log.line("started", key)
        self._failpoint("before")
        if self._replay:
            os._exit(3)
        await asyncio.sleep(ms * random.uniform(0.5, 1.5) / 1_000)
        self._log.line("done", key)
        return f"<{key}>"

    async def look(self, at: str, ms: float = 12) -> str:
        """Look at something for a while."""
        return await self.carry_out(at, ms)

    async def flaky(self, at: str, works: bool) -> TaskResult:
        """Work, or not."""
        said = await self.carry_out(at, 8)
        return TaskResult.complete(said) if works else TaskResult.failure("tool_execution_error", f"{said} failed")

    async def inner(self) -> str:
        """Run programs, several at once."""
        assert self.flow is not None
        runs = [self.flow.run(f'(content (look (at "in{number}")))') for number in range(3)]
        values = [result.value for result in await asyncio.gather(*runs)]
        return " ".join(values)

    async def pay(self, to: str) -> str:
        """Pay somebody, which may not be repeated."""
        return await self.carry_out(to, 8)

    async def host(self, at: str) -> str:
        said = await self.carry_out(at, 5)
        if at == "bad":
            raise LookupError(said)
        return said

    async def call_back(self, function: Any) -> list[Any]:
        assert self.flow is not None
        return list(await asyncio.gather(*[self.flow.call(function, at) for at in ("x", "y")]))

    async def answer(self, request: ModelRequest) -> Any:
        """``loop:`` makes five tool turns, anything else is answered at once."""
        asked = next(m.text for m in reversed(request.messages) if m.text and m.role == "user")
        last = max(i for i, m in enumerate(request.messages) if m.text and m.role == "user")
        turn = sum(isinstance(part, ToolResultPart) for m in request.messages[last:] for part in m.parts)
        word = "solve" if "solve it" in asked else asked.split(": ")[-1]
        looped = "loop:" in asked or "team:" in asked
        key = f"model-{word}-{turn}" if looped else f"model-{word}"
        said = await self.carry_out(key, 10)
        if word == "solve":
            return f';; {said}\n```\n(list (content (look (at "sv1"))) (content (look (at "sv2"))))\n```'
        if "loop:" in asked and turn < 5:
            calls = [{"name": "look", "arguments": {"at": f"{word}-tool{turn}"}}]
            return {"text": said, "tool_calls": calls}
        if "team:" in asked and turn < 4:
            look = {"name": "look", "arguments": {"at": f"{word}-look{turn}"}}
            return {"text": said, "tool_calls": [look, {"name": "delegate", "arguments": {"q": f"{word}-sub{turn}"}}]}
        return f"{said} after {len(request.messages)}"


async def answered(runs: DurableRuns, handle: DurableRun) -> RunResult:
    """The end of a run, whose questions are answered as soon as it does nothing but wait."""
    while await handle.wait() == "waiting":
        for question in handle.waiting:
            with contextlib.suppress(DataError):  # it was answered before
                await runs.send(handle.run_id, question.key, f"answer to {question.question}")
    return await handle.result()


@contextlib.asynccontextmanager
async def unrest(longest_ms: float) -> AsyncIterator[None]:
    """A block beside which the event loop is held at random moments, so that whatever can happen in another order does."""

    async def hold() -> None:
        while True:
            await asyncio.sleep(random.uniform(0, longest_ms) / 1_000)
            time.sleep(random.uniform(0, longest_ms) / 1_000)  # noqa: ASYNC251 - just that is wanted

    task = asyncio.create_task(hold()) if longest_ms else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


async def run(job: dict[str, Any]) -> None:
    """Run a program to its end, and print its value, usage and cost."""
    log = Log(job["log"])
    failpoint = Failpoint(job.get("failpoint"), job.get("nth", 1))
    world = World(log, failpoint, replay=job["replay"])
    with tempfile.TemporaryDirectory() as root:
        async with AgentFlow(
            provider=ScriptedProvider(world.answer),
            root=root,
            tools=[world.look, world.flaky, world.inner, tool_from_function(world.pay, idempotent=False)],
        ) as flow:
            world.flow = flow
            flow.tools.add(subtask_tool("delegate", "Hand on.", template="quiet", parameters={"q": "string"}))
            await flow.workflows.save(Workflow(name="pair", params={"x": Parameter(type="string")}, program=WORKFLOW))
            runs = DurableRuns(flow.engine, LoggingJournal(Path(job["db"]), log, failpoint), flow.redactor)
            bindings = {"host": world.host, "call-back": world.call_back}
            try:
                program = flow.compile(PROGRAMS[job["program"]], bindings=bindings)
                limits = Limits(concurrency=job.get("concurrency", 256))
                async with unrest(job.get("unrest", 0.0)), runs.sessions.session("user", 5.0) as session:
                    given = session if job["program"] == "mixed" else None
                    handle = await runs.start(program, bindings, run_id=job["run"], session=given, limits=limits)
                    result = await answered(runs, handle)
                    said = [turn[0].text for turn in session.turns()]
            finally:
                await runs.aclose()
    end = {"value": plain(result.value), "usage": plain(result.usage), "replayed": handle.replayed, "said": said}
    with open(job["log"] + ".end", "w") as file:  # noqa: ASYNC230 - nothing else runs here
        json.dump(end, file)


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
