"""Dependencies and tasks without a flow where a worker process does the run: both are made there, from the same module."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.children import HANG_S

SHOP = '''
import asyncio, os, sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import agentflow
from agentflow import AgentFlow, CallContext, ScriptedProvider

url, ledger, role = sys.argv[1:4]


def note(line):
    with Path(ledger).open("a") as file:
        file.write(f"{role} {line}\\n")


@dataclass
class Bank:
    customer: str


@asynccontextmanager
async def deps(run_id, labels):
    note(f"open {run_id}")
    yield Bank(labels["customer"])
    note(f"close {run_id}")


async def balance(ctx: CallContext[Bank]) -> str:
    """The balance."""
    note("balance")
    return f"{ctx.deps.customer} has 5"


class Support:
    def __init__(self, house):
        self.house = house

    @agentflow.task(tools=[balance])
    async def reply(self, question: str) -> str:
        return f"{self.house}: {question}"

    @agentflow.workflow
    async def handle(self, question: str) -> str:
        answer = await self.reply(question)
        ok = await flow.ask_human(answer, bool)
        return f"{answer}, {ok}, for {flow.deps(Bank).customer}"


def answer(request):
    last = request.messages[-1]
    if last.text.startswith("bank: "):
        return {"tool_calls": [{"name": "balance", "arguments": {}}]}
    return last.parts[0].text if last.parts else last.text


support = Support("bank")
tasks = [support.handle, support.reply] if role != "bare" else []
flow = AgentFlow(provider=ScriptedProvider(answer), durable=url, deps=deps, tasks=tasks)


async def main():
    async with flow:
        if role == "starter":
            run = await flow.start(support.handle("how much?"), run_id="r", where="workers", labels={"customer": "ada"})
            print("started", flush=True)
            while not (questions := await flow.questions("r")):
                await asyncio.sleep(0.05)
            print("asked", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            await flow.send("r", questions[0].key, True)
            print((await run.result()).value, flush=True)
        elif role == "asker":
            run = await flow.start(support.reply("x"), run_id="r", where="workers", labels={"customer": "ada"})
            try:
                await run.result()
            except Exception as error:
                print(error.code, error.hint, flush=True)
        else:
            await flow.work()


asyncio.run(main())
'''


class Shop:
    """Processes of one application, each with a role."""

    def __init__(self, directory: Path, url: str) -> None:
        self.script, self.ledger, self.url = directory / "shop.py", directory / "ledger", url
        self.script.write_text(SHOP, "utf-8")
        self.ledger.touch()

    async def start(self, role: str) -> asyncio.subprocess.Process:
        """A process."""
        command = [sys.executable, str(self.script), self.url, str(self.ledger), role]
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)

    async def kill(self, process: asyncio.subprocess.Process) -> None:
        """Kill a process that is alive."""
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line(process: asyncio.subprocess.Process) -> str:
    """The next line that a process prints."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), HANG_S)).decode().strip()


async def test_a_worker_makes_the_deps_of_a_run(postgres_url: str, tmp_path: Path) -> None:
    """``AgentFlow(deps=factory)`` is entered by the worker that does a run, and by another one that continues it; the starter,
    which has the same factory, makes none. The run is a method of an object that each process has."""
    shop = Shop(tmp_path, postgres_url)
    starter = await shop.start("starter")
    processes = [starter]
    try:
        assert await line(starter) == "started"
        processes.append(await shop.start("first"))
        assert await line(starter) == "asked"
        await shop.kill(processes[1])
        processes.append(await shop.start("second"))
        assert starter.stdin is not None
        starter.stdin.write(b"\n")
        await starter.stdin.drain()
        assert await line(starter) == "ada has 5, True, for ada"
        notes = shop.ledger.read_text("utf-8").splitlines()
        assert notes[:2] == ["first open r", "first balance"]
        assert [each for each in notes[2:] if each.startswith("second")] == ["second open r", "second close r"]
        assert not [each for each in notes if each.startswith("starter")]
    finally:
        for each in processes:
            await shop.kill(each)


async def test_a_worker_without_the_task_says_how_to_give_it(postgres_url: str, tmp_path: Path) -> None:
    """A task without a flow that the worker's flow was not given fails the run, and the error says ``tasks=[...]``."""
    shop = Shop(tmp_path, postgres_url)
    asker = await shop.start("asker")
    worker = await shop.start("bare")
    try:
        told = await line(asker)
        assert told.startswith("durable/unknown-function") and "AgentFlow(tasks=[...])" in told
    finally:
        for each in (asker, worker):
            await shop.kill(each)
