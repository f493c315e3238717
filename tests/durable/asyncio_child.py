"""Workflows written with asyncio's own constructs, in processes that a test kills: one line of JSON on standard input for each.

``{"db", "log", "workflow"}``. The process is forked, so that it begins at once; its number is printed, and when it has ended,
its status. The log has a line for each effect that is carried out: the number of the process, and the key of the effect, which
is its result in capitals. A second argument ``eager`` gives the loop an eager task factory (Python 3.12 on), ``uvloop`` that loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from agentflow import AgentFlow, ScriptedProvider

Work = Callable[[str, float], Awaitable[str]]
"""An effect: its key, and about how many milliseconds it takes."""


class Workflows:
    """The workflows, by name. Their values do not depend on who is first, though what they do on the way may."""

    def __init__(self, flow: AgentFlow, work: Work) -> None:
        self.flow = flow
        self.work = work

    async def gathered(self) -> Any:
        """``gather``, of functions that await several effects, and of calls."""

        async def two(i: int) -> str:
            first = await self.work(f"g{i}", 5)
            return first + await self.work(f"h{i}{first}", 5)

        first = await asyncio.gather(*[two(i) for i in range(4)])
        last = await self.work("between", 2)
        return [first, last, await asyncio.gather(*[self.work(f"z{i}", 5) for i in range(3)])]

    async def grouped(self) -> Any:
        """Task groups within task groups."""

        async def one(i: int) -> list[str]:
            async with asyncio.TaskGroup() as group:
                parts = [group.create_task(self.part(f"t{i}.{j}")) for j in range(2)]
            return [*[each.result() for each in parts], await self.work(f"t{i}end", 3)]

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(i)) for i in range(3)]
        return [each.result() for each in tasks]

    async def part(self, key: str) -> str:
        return await self.work(key, 5)

    async def completed(self) -> Any:
        """``as_completed``: each next effect depends on who came first."""
        results: list[str] = []
        for each in asyncio.as_completed([self.work(f"c{i}", 5) for i in range(5)]):
            results.append(await self.work(f"{len(results)} {await each}", 2))
        return sorted(each.split()[1] for each in results)

    async def queued(self) -> Any:
        """A queue between producers and consumers, which are cancelled at the end."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        results: list[str] = []

        async def produce(i: int) -> None:
            for j in range(3):
                await queue.put(await self.work(f"p{i}{j}", 3))

        async def consume(i: int) -> None:
            while True:
                results.append(await self.work(f"q{i} {await queue.get()}", 3))
                queue.task_done()

        consumers = [asyncio.create_task(consume(i)) for i in range(2)]
        await asyncio.gather(*[produce(i) for i in range(3)])
        await queue.join()
        for each in consumers:
            each.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        return sorted(each.split()[1] for each in results)

    async def waited(self) -> Any:
        """``wait`` for the first of several tasks, again and again."""
        tasks = {asyncio.create_task(self.part(f"w{i}")) for i in range(4)}
        results: list[str] = []
        while tasks:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for result in sorted(each.result() for each in done):
                results.append(result)
                await self.work(f"{len(results)} {result}", 2)
        return sorted(results)

    async def sets(self) -> Any:
        """A set of tasks: each next effect depends on its order."""
        done, _ = await asyncio.wait({asyncio.create_task(self.part(f"s{i}")) for i in range(6)})
        results = [await self.work(f"{i} {each.result()}", 2) for i, each in enumerate(done)]
        return sorted(each.split()[1] for each in results)

    async def timed(self) -> Any:
        """``timeout`` and ``wait_for``: what was too late is not carried out again once something followed."""
        results: list[str] = []
        for i in range(3):
            try:
                async with asyncio.timeout(0.02):
                    await self.work(f"slow{i}", 2_000)
            except TimeoutError:
                results.append(await self.work(f"late{i}", 3))
        try:
            await asyncio.wait_for(self.work("slow3", 2_000), 0.02)
        except TimeoutError:
            results.append(await self.work("late3", 3))
        try:
            await asyncio.wait_for(self.flow.sleep(3), 0.02)
        except TimeoutError:
            results.append(await self.work("late4", 3))
        return results

    async def anyio_group(self) -> Any:
        """Task groups and time limits of anyio."""
        results: dict[int, str] = {}

        async def one(i: int) -> None:
            results[i] = await self.work(f"a{i}", 4)
            results[i] += await self.work(f"b{i}", 4)

        async with anyio.create_task_group() as group:
            for i in range(3):
                group.start_soon(one, i)
        with anyio.move_on_after(0.02):
            await self.work("slow9", 2_000)
        return [*[results[i] for i in range(3)], await self.work("late9", 1)]

    async def raced(self) -> Any:
        """The first of two tasks wins; the other is cancelled, and cleans up."""

        async def lose() -> None:
            try:
                await self.work("loser", 2_000)
            finally:
                await self.work("clean", 1)

        loser, winner = asyncio.create_task(lose()), asyncio.create_task(self.part("winner"))
        done, rest = await asyncio.wait([loser, winner], return_when=asyncio.FIRST_COMPLETED)
        for each in rest:
            each.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        return [[each.result() for each in done], await self.work("after", 3)]

    async def slept(self) -> Any:
        """The first of an effect and asyncio's own sleep, again and again: each next effect depends on which it was."""
        firsts: list[str] = []
        for i in range(5):
            effect = asyncio.create_task(self.part(f"e{i}"))
            sleep = asyncio.create_task(asyncio.sleep(0.005))
            done, _ = await asyncio.wait([effect, sleep], return_when=asyncio.FIRST_COMPLETED)
            firsts.append("both" if len(done) == 2 else "effect" if effect in done else "sleep")
            await self.work(f"{i} {firsts[-1]} {len(firsts)}", 2)
            await asyncio.gather(effect, sleep)
        return await self.work("slept", 1)

    async def ticked(self) -> Any:
        """A task that ticks beside two that work: each effect depends on the ticks before it."""
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.003)
                ticks += 1

        async def one(i: int) -> None:
            for j in range(4):
                await self.work(f"u{i}{j} {ticks}", 4)

        ticking = asyncio.create_task(tick())
        await asyncio.gather(one(0), one(1))
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
        return await self.work("ticked", 1)

    async def bounded(self) -> Any:
        """Time limits around tasks with several calls each: the effects that follow depend on how far they came."""
        reached: list[int] = []

        async def several(i: int) -> None:
            count = 0
            try:
                async with asyncio.timeout(0.012):
                    while True:
                        await self.work(f"b{i}.{count}", 4)
                        count += 1
            except TimeoutError:
                reached.append(count)
                await self.work(f"late{i} {count} {len(reached)}", 2)

        await asyncio.gather(*[several(i) for i in range(3)], self.work("beside", 20), asyncio.sleep(0.01))
        return await self.work(f"{len(reached)} bounded", 1)


VALUES: dict[str, Any] = {
    "gathered": [[f"G{i}H{i}G{i}" for i in range(4)], "BETWEEN", [f"Z{i}" for i in range(3)]],
    "grouped": [[f"T{i}.0", f"T{i}.1", f"T{i}END"] for i in range(3)],
    "completed": [f"C{i}" for i in range(5)],
    "queued": [f"P{i}{j}" for i in range(3) for j in range(3)],
    "waited": [f"W{i}" for i in range(4)],
    "sets": [f"S{i}" for i in range(6)],
    "timed": [f"LATE{i}" for i in range(5)],
    "anyio_group": ["A0B0", "A1B1", "A2B2", "LATE9"],
    "raced": [["WINNER"], "AFTER"],
    "slept": "SLEPT",
    "ticked": "TICKED",
    "bounded": "3 BOUNDED",
}
"""The workflows, and what each gives."""


def flow_in(database: str, note: Callable[[str], None]) -> tuple[AgentFlow, Workflows]:
    """A flow with the workflows, which calls ``note`` with the key of each effect that it carries out."""
    flow = AgentFlow(provider=ScriptedProvider("unused"), durable=f"sqlite:///{database}")

    @flow.tool
    async def work(key: str, ms: float) -> str:
        """The key in capitals, after some milliseconds."""
        note(key)
        await asyncio.sleep(ms / 1_000 * random.uniform(0.5, 1.5))
        return key.upper()

    async def called(key: str, ms: float) -> str:
        return await flow.call_tool("work", key=key, ms=ms)

    return flow, Workflows(flow, called)


async def work_on(job: dict[str, str]) -> None:
    """Begin the run or go on with it, and check its value."""
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    flow, workflows = flow_in(job["db"], lambda key: void(os.write(log, f"{os.getpid()} {key}\n".encode())))
    declared = flow.workflow(getattr(workflows, job["workflow"]))
    async with flow:
        handle = await flow.start(declared(), run_id="run")
        value = (await handle.result()).value
    if value != VALUES[job["workflow"]]:
        print(f"{job['workflow']} gave {value!r}", file=sys.stderr)
        os._exit(3)


def void(_: object) -> None:
    """Nothing, from anything."""


def run(job: dict[str, str], loop: str) -> None:
    """Run a job in this process, on a loop of the kind ``loop``."""
    if loop == "uvloop":
        import uvloop  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

        uvloop.run(work_on(job))  # pyright: ignore[reportUnknownMemberType]
        return
    with asyncio.Runner() as runner:
        if loop == "eager":
            runner.get_loop().set_task_factory(asyncio.eager_task_factory)  # pyright: ignore
        runner.run(work_on(job))


def main() -> None:
    """Fork a process for each job. One run before loads what all need."""
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(work_on({"db": f"{directory}/runs.db", "log": f"{directory}/log", "workflow": "raced"}))
    loop = sys.argv[1] if len(sys.argv) > 1 else ""
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if not pid:
            status = 1
            try:
                random.seed()
                run(job, loop)
                status = 0
            except BaseException:  # the process ends here whatever it was
                traceback.print_exc()
            os._exit(status)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
