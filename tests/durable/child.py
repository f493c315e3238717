"""Runs durable programs in processes that the harness kills: one line of JSON on standard input for each.

``{"db", "run", "program", "log", "replay"}``. The process is forked, so that it begins at once; its number is printed, and when
it has ended, its status. The log says what was carried out, what of it was acknowledged as stored, which answers were, and at
what the process is that does none of this: ``at parked``. With ``"sender"`` the process only answers the questions of the run,
with ``"pause_ms"`` whoever answers takes that long at most, and with ``"eager"`` does not wait for the run to rest.
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
from collections.abc import AsyncIterator, Coroutine, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from agentflow import AgentFlow, DurableRun, Limits, RunResult, ScriptedProvider, TaskResult
from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import DataError
from agentflow.core.data.messages import ModelRequest, ToolResultPart
from agentflow.core.data.templates import Parameter
from agentflow.core.data.values import plain
from agentflow.core.events.journal_rows import EffectRow, EffectState, OwnedRun, RunStatus
from agentflow.core.events.questions import Question
from agentflow.durable.runs import DurableRuns
from agentflow.handler.tools import subtask_tool, tool_from_function
from agentflow.journal.postgres import PostgresJournal
from agentflow.journal.sqlite import SqliteJournal
from agentflow.journal.urls import database_file, is_postgres
from agentflow.run.run_spec import RunSpec
from agentflow.tasks.workflows import Workflow
from tests.durable.programs import PROGRAMS, WAITING, WORKFLOW

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


class Logging:
    """Makes a journal say what it has stored, and what it was told to forget."""

    def __init__(self, where: Any, log: Log, failpoint: Failpoint) -> None:
        super().__init__(where)
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
        if any([row.state == EffectState.OPEN for row in rows]):
            future.add_done_callback(lambda _: self._at("asked"))
        for key in drop:
            for name in self._keys.get(key, ()):
                self._log.line("forgotten", name)
        return future

    async def park(self, run: str, epoch: int, seq: int, wake_at: float | None, *, spent_s: float = 0.0) -> bool:
        self._failpoint("park")
        self._at("parking")
        parked = await super().park(run, epoch, seq, wake_at, spent_s=spent_s)
        self._at("parked")
        self._failpoint("park")
        return parked

    async def own(self, run: str, slice: int | None = None) -> OwnedRun:
        self._at("owning")
        owned = await super().own(run, slice)
        self._at("owned")
        return owned

    async def deliver(self, run: str, answers: Sequence[EffectRow]) -> frozenset[bytes]:
        self._at("delivering")
        delivered = await super().deliver(run, answers)
        self._at("delivered")
        return delivered

    def _at(self, state: str) -> None:
        self._log.line("at", state)
        self._failpoint(state)

    async def finish(self, run: str, epoch: int, status: RunStatus, **end: Any) -> None:
        self._failpoint("finish")
        await super().finish(run, epoch, status, **end)


class LoggingSqlite(Logging, SqliteJournal):
    """Over SQLite."""


class LoggingPostgres(Logging, PostgresJournal):
    """Over PostgreSQL."""


def journal(url: str, log: Log, failpoint: Failpoint) -> SqliteJournal | PostgresJournal:
    """The journal at ``url``."""
    return (
        LoggingPostgres(url, log, failpoint) if is_postgres(url) else LoggingSqlite(database_file(url), log, failpoint)
    )


class Receipt(BaseModel):
    """What was paid, and when."""

    what: str = Field(alias="whatFor")
    amount: Decimal
    at: datetime


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

    async def spend(self, to: str) -> str:
        """Spend something, which has to be approved."""
        return await self.carry_out(to, 8)

    async def consult(self, q: str, ctx: CallContext) -> str:
        """Ask somebody, and think about it."""
        said = await ctx.ask_human(q)
        return f"{said} {await self.carry_out(q, 8)}"

    async def host(self, at: str) -> str:
        said = await self.carry_out(at, 5)
        if at == "bad":
            raise LookupError(said)
        return said

    async def receipt(self, at: str) -> Receipt:
        """Pay, and give a receipt."""
        said = await self.carry_out(at, 8)
        return Receipt(whatFor=said, amount=Decimal("1.10"), at=datetime(2026, 1, 2, tzinfo=UTC))

    async def row(self, at: str) -> dict[str, Any]:
        said = await self.carry_out(at, 5)
        return {"said": said, "at": date(2026, 1, 2), "amount": Decimal("2.50"), "tags": {1, 2}, "raw": b"\xff"}

    async def call_back(self, function: Any) -> list[Any]:
        assert self.flow is not None
        return list(await asyncio.gather(*[self.flow.call(function, at) for at in ("x", "y")]))

    async def answer(self, request: ModelRequest) -> Any:
        """``loop:`` makes five tool turns, anything else is answered at once."""
        asked = next(m.text for m in reversed(request.messages) if m.text and m.role == "user")
        last = max(i for i, m in enumerate(request.messages) if m.text and m.role == "user")
        turn = sum(isinstance(part, ToolResultPart) for m in request.messages[last:] for part in m.parts)
        word = "solve" if "solve it" in asked else asked.split(": ")[-1]
        looped = any([kind in asked for kind in ("loop:", "team:", "asks:")])
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
        if "asks:" in asked:
            heard = [part.text for part in request.messages[-1].parts if isinstance(part, ToolResultPart)]
            calls = [{"name": "consult", "arguments": {"q": word}}]
            return f"{said} heard {heard}" if turn else {"text": said, "tool_calls": calls}
        return f"{said} after {len(request.messages)}"


class Person:
    """Somebody who answers the questions of a run, each with an answer that is never given twice."""

    def __init__(self, runs: DurableRuns, run: str, log: Log, pause_ms: float) -> None:
        self._runs = runs
        self._run = run
        self._log = log
        self._pause_ms = pause_ms

    async def answer(self, questions: Sequence[Question]) -> None:
        """Answer some questions, one after the other."""
        for question in questions:
            await asyncio.sleep(random.uniform(0, self._pause_ms) / 1_000)
            mark = f"#{random.getrandbits(40):x}" if self._pause_ms else ""
            answer = True if question.reason == "approval" else f"answer to {question.question}{mark}"
            try:
                await self._runs.questions.answer(self._run, question.key, answer)
            except DataError:  # it was answered before, or is no longer asked
                continue
            if question.reason == "question":
                self._log.line("sent", f"{question.question} {mark}")
            self._log.line("at", "sent")

    async def result(self, handle: DurableRun) -> RunResult:
        """The end of a run, whose questions are answered as soon as it does nothing but wait."""
        while await handle.wait() == "waiting":
            self._log.line("at", "resting")
            await self.answer(handle.waiting)
        return await handle.result()

    async def hurry(self, handle: DurableRun) -> None:
        """Answer whatever is asked while the run works."""
        while True:
            await asyncio.sleep(random.uniform(0, self._pause_ms) / 1_000)
            await self.answer(handle.waiting)


@contextlib.asynccontextmanager
async def unrest(longest_ms: float) -> AsyncIterator[None]:
    """A block beside which the event loop is held at random moments, so that whatever can happen in another order does."""

    async def hold() -> None:
        while True:
            await asyncio.sleep(random.uniform(0, longest_ms) / 1_000)
            time.sleep(random.uniform(0, longest_ms) / 1_000)  # noqa: ASYNC251 - just that is wanted

    async with beside(hold() if longest_ms else None):
        yield


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None] | None) -> AsyncIterator[None]:
    """A block beside which ``work`` is done, which ends with it."""
    task = None if work is None else asyncio.create_task(work)
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def run(job: dict[str, Any]) -> None:
    """Run a program to its end, and print its value, usage and cost."""
    log = Log(job["log"])
    failpoint = Failpoint(job.get("failpoint"), job.get("nth", 1))
    world = World(log, failpoint, replay=job["replay"])
    with tempfile.TemporaryDirectory() as root:
        await asyncio.to_thread(Path(root, "notes.txt").write_text, "kestrel")
        async with AgentFlow(
            provider=ScriptedProvider(world.answer),
            root=root,
            tools=[
                *(world.look, world.flaky, world.inner, world.consult, world.receipt),
                tool_from_function(world.pay, idempotent=False),
                tool_from_function(world.spend, approval=True),
            ],
        ) as flow:
            world.flow = flow
            flow.tools.add(subtask_tool("delegate", "Hand on.", template="quiet", parameters={"q": "string"}))
            await flow.workflows.save(Workflow(name="pair", params={"x": Parameter(type="string")}, program=WORKFLOW))
            runs = DurableRuns(flow.engine, journal(job["db"], log, failpoint), flow.redactor)
            person = Person(runs, job["run"], log, job.get("pause_ms", 0))
            if job.get("sender"):
                await person.answer(await runs.questions.of(job["run"]))
                await runs.aclose()
                return
            bindings = {"host": world.host, "call-back": world.call_back, "call_back": world.call_back}
            bindings |= {"row": world.row, "receipt-of": world.receipt}
            surface = "python" if job["program"] == "python" else None
            try:
                program = flow.compile({**PROGRAMS, **WAITING}[job["program"]], bindings=bindings, surface=surface)
                limits = Limits(concurrency=job.get("concurrency", 256))
                async with unrest(job.get("unrest", 0.0)), runs.sessions.session("user", 5.0) as session:
                    given = session if job["program"] == "mixed" else None
                    spec = RunSpec(bindings=bindings, run_id=job["run"], session=given, limits=limits)
                    handle = await runs.start(program, spec)
                    async with beside(person.hurry(handle) if job.get("eager") else None):
                        result = await person.result(handle)
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
