"""Runs durable programs in processes that the harness kills: one line of JSON on standard input for each.

``{"db", "run", "program", "log", "replay"}``. The process is forked, so that it begins at once; its number is printed, and when
it has ended, its status. The log says what was carried out, and what of it was acknowledged as stored.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, ScriptedProvider, TaskResult
from agentflow.core.journal import EffectRow, EffectState
from agentflow.core.messages import ModelRequest, ToolResultPart
from agentflow.core.templates import Parameter
from agentflow.core.values import plain
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


class LoggingJournal(SqliteJournal):
    """A journal that says what it has stored, and what it was told to forget."""

    def __init__(self, path: Path, log: Log) -> None:
        super().__init__(path)
        self._log = log
        self._keys: dict[bytes, set[str]] = {}

    def put(self, run: str, epoch: int, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> asyncio.Future[None]:
        future = super().put(run, epoch, rows, drop)

        def stored(done: asyncio.Future[None]) -> None:
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


class World:
    """The tools, the host's callables and the model of the programs."""

    def __init__(self, log: Log, *, replay: bool) -> None:
        self._log = log
        self._replay = replay
        self.flow: AgentFlow | None = None

    async def carry_out(self, key: str, ms: float) -> str:
        self._log.line("started", key)
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
        key = f"model-{word}-{turn}" if "loop:" in asked else f"model-{word}"
        said = await self.carry_out(key, 10)
        if word == "solve":
            return f';; {said}\n```\n(list (content (look (at "sv1"))) (content (look (at "sv2"))))\n```'
        if "loop:" in asked and turn < 5:
            calls = [{"name": "look", "arguments": {"at": f"{word}-tool{turn}"}}]
            return {"text": said, "tool_calls": calls}
        return f"{said} after {len(request.messages)}"


async def run(job: dict[str, Any]) -> None:
    """Run a program to its end, and print its value, usage and cost."""
    log = Log(job["log"])
    world = World(log, replay=job["replay"])
    with tempfile.TemporaryDirectory() as root:
        async with AgentFlow(
            provider=ScriptedProvider(world.answer), root=root, tools=[world.look, world.flaky, world.inner]
        ) as flow:
            world.flow = flow
            await flow.workflows.save(Workflow(name="pair", params={"x": Parameter(type="string")}, program=WORKFLOW))
            runs = DurableRuns(flow.engine, LoggingJournal(Path(job["db"]), log), flow.redactor)
            bindings = {"host": world.host, "call-back": world.call_back}
            try:
                program = flow.compile(PROGRAMS[job["program"]], bindings=bindings)
                handle = await runs.start(program, bindings, run_id=job["run"])
                result = await handle.result()
            finally:
                await runs.aclose()
    end = {"value": plain(result.value), "usage": plain(result.usage), "replayed": handle.replayed}
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
