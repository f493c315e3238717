"""Figures of a fleet, each against what is asked of it; run by hand, on a quiet machine.

python -m tests.scale.figures machine      # what asyncio, asyncpg and the server take here for the simplest things
python -m tests.scale.figures trips        # statements of a run, as the server logs them: independent of the machine
python -m tests.scale.figures start        # an idle worker: from enqueueing to the first step of a run
python -m tests.scale.figures fairness     # 20 runs of a tenant behind 400 of another
python -m tests.scale.figures rate         # what three processes send together
python -m tests.scale.figures effects      # records stored, each with a check of its owner
python -m tests.scale.figures parked       # replays of a run around branches, by their number
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agentflow import AgentFlow, Rate
from agentflow.core.events.journal_rows import EffectRow, EffectState, NewRun
from agentflow.journal.postgres import PostgresJournal
from agentflow.journal.postgres.connection import connect
from agentflow.journal.postgres.shared_rates import PostgresRates
from agentflow.providers.fleet_rates import FleetRates
from agentflow.providers.rates import BURST_S
from tests.support.postgres import Server

STARTS = 200
PER_S = 200
RATE_S = 10.0
WIDE = 100
BATCHES = 300
VALUE = {"text": "x" * 1_000}


def app(url: str) -> AgentFlow:
    """What every process has: a tool that says when it was called, and one that takes a while."""

    async def stamp() -> float:
        """The time."""
        return time.time()

    async def look(at: str) -> str:
        """Look at something for 20 ms."""
        await asyncio.sleep(0.02)
        return at

    return AgentFlow(model="offline", tools=[stamp, look], durable=url)


async def child(what: str, url: str) -> None:
    """A process beside: a worker, or one that sends what it may."""
    if what == "worker":
        async with app(url) as flow:
            print("ready", flush=True)
            await flow.work(slots=10)
    rates = PostgresRates(url)
    limiter = FleetRates({"a:m": Rate(requests_per_min=PER_S * 60)}, rates)
    sent: list[float] = []

    async def send() -> None:
        while True:
            await limiter.take("a:m", 1)
            sent.append(time.time())

    await limiter.take("a:m", 1)
    print("ready", flush=True)
    try:
        async with asyncio.timeout(RATE_S + BURST_S), asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(send())
    except TimeoutError:
        print(*sent, flush=True)
    await rates.aclose()


async def beside(what: str, url: str) -> asyncio.subprocess.Process:
    """Start such a process, and wait until it works."""
    command = [sys.executable, "-m", "tests.scale.figures", what, "--child", url]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, limit=2**24)
    assert process.stdout is not None
    if await process.stdout.readline() != b"ready\n":
        raise RuntimeError("a process of the fleet ended")
    return process


async def start(url: str) -> str:
    """How long a run waits for an idle worker."""
    worker = await beside("worker", url)
    waits: list[float] = []
    async with app(url) as flow:
        for _ in range(STARTS):
            began = time.time()
            run = await flow.start("(value-of (stamp))", where="workers")
            waits.append(1_000 * ((await run.result()).value - began))
            await asyncio.sleep(0.02)
    worker.kill()
    await worker.wait()
    waits.sort()
    return f"idle start: p50 {statistics.median(waits):.1f} ms (30), p99 {waits[int(len(waits) * 0.99)]:.1f} ms"


async def trips(url: str) -> str:
    """How many statements a run takes that is left to an idle worker, each of which is waited for before the next."""
    worker = await beside("worker", url)
    async with app(url) as flow:
        await (await flow.start("(value-of (stamp))", where="workers")).result()
        await asyncio.sleep(1.5)
        began = time.time()
        run = await flow.start("(value-of (stamp))", where="workers")
        started = time.time()
        first = (await run.result()).value
        await asyncio.sleep(0.5)
        ended = time.time()
    worker.kill()
    await worker.wait()
    logged = re.findall(
        r"^([0-9.]+) LOG:  duration: [0-9.]+ ms  (?:execute \S+|statement): (.{60})",
        _log(url).read_text(),
        re.MULTILINE | re.DOTALL,
    )
    own = [float(at) for at, text in logged if not any(each in text for each in _WATCHING)]
    count = [
        sum(begin < at + 0.001 and at <= end for at in own)
        for begin, end in ((began, started), (started, first), (first, ended))
    ]
    return f"{count[0]} statements to start it, {count[1]} more to its first step, {count[2]} from there to its end, those of the queue included"


_WATCHING = ("af_owner", "select run, status from af_run", "select run from af_run r where owner", "pg_class")
"""What statements that are asked again and again have."""


def _log(url: str) -> Path:
    """The log of the server's statements."""
    return Path(parse_qs(urlsplit(url).query)["host"][0]) / "data" / "log" / "statements"


async def machine(url: str) -> str:
    """What others are measured against: a task, one row stored, and rows stored together."""
    tasks = 20_000
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(asyncio.sleep(0))
    task = (time.perf_counter() - began) / tasks
    db = await connect(url)
    await db.execute("create table plain(n bigint generated always as identity primary key, value text not null)")
    one = await _median(lambda: db.execute("insert into plain(value) values ($1)", VALUE["text"]), 200)
    many = await _median(
        lambda: db.execute("insert into plain(value) select unnest($1::text[])", [VALUE["text"]] * 1_000), 20
    )
    none = await _median(lambda: db.execute("select 1"), 500)
    await db.close()
    return (
        f"a task {1e6 * task:.1f} us; asyncpg: a statement {1e3 * none:.2f} ms, one row of 1 KiB {1e3 * one:.2f} ms,"
        f" 1,000 rows {1e3 * many:.1f} ms ({1_000 / many:,.0f}/s)"
    )


async def _median(work: Callable[[], Awaitable[Any]], times: int) -> float:
    took: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


async def fairness(url: str) -> str:
    """How long the runs of a tenant wait behind many of another, with tenants and without."""
    told: list[str] = []
    for tenants in (("small", "large"), ("", "")):
        async with app(url) as flow:
            program = '(map (lambda (i) (value-of (look (at i)))) (list "a" "b" "c"))'

            async def several(count: int, tenant: str, flow: AgentFlow = flow, program: str = program) -> list[Any]:
                starts = [flow.start(program, where="workers", tenant=tenant) for _ in range(count)]
                return await asyncio.gather(*starts)

            large = await several(400, tenants[1])
            small = await several(20, tenants[0])
            began = time.monotonic()
            worker = await beside("worker", url)
            ends: list[float] = []

            async def wait(run: Any, began: float = began, ends: list[float] = ends) -> None:
                await run.result()
                ends.append(time.monotonic() - began)

            await asyncio.gather(*[wait(run) for run in small])
            await asyncio.gather(*[run.result() for run in large])
            total = time.monotonic() - began
            worker.kill()
            await worker.wait()
        told.append(
            f"{'by tenant' if tenants[0] else 'in order'}: all 20 after {max(ends):.2f} s, all 420 after {total:.2f} s"
        )
    return "; ".join(told)


async def rate(url: str) -> str:
    """What three processes send together, in each second and on the whole."""
    processes = [await beside("rate", url) for _ in range(3)]
    outputs = [(await each.communicate())[0] for each in processes]
    sent = sorted([float(text) for output in outputs for text in output.split()])
    later = [at for at in sent if at > sent[0] + BURST_S]
    most = max([_within(later, at) for at in range(len(later))])
    reached = (len(later) - 1) / (later[-1] - later[0])
    most_ever = max([_within(sent, at) for at in range(len(sent))])
    return (
        f"{PER_S}/s allowed, {reached:.1f}/s reached by three processes after the burst; at most {most} in any second then,"
        f" {most_ever} with the burst of {int(PER_S * BURST_S)}"
    )


def _within(times: Sequence[float], at: int) -> int:
    """How many of sorted ``times`` lie in the second that begins with one of them."""
    end = at
    while end < len(times) and times[end] < times[at] + 1:
        end += 1
    return end - at


async def effects(url: str) -> str:
    """Records of 1 KiB stored, ``WIDE`` at once, each with a check of its run's owner."""
    store = PostgresJournal(url)
    epochs: list[int] = []
    for number in range(WIDE):
        await store.create(f"r{number}", NewRun(program="(f)", digest="d", input={}))
        epochs.append((await store.own(f"r{number}")).run.epoch)

    def row(number: int) -> EffectRow:
        return EffectRow(
            path=f"0/{number}.0",
            kind="tool",
            name="look",
            content=b"c" * 16,
            state=EffectState.OK,
            value=VALUE,
            started=1.0,
            ended=2.0,
        )

    began, cpu = time.monotonic(), time.process_time()
    for number in range(BATCHES):
        await asyncio.gather(*[store.put(f"r{at}", epoch, [row(number)]) for at, epoch in enumerate(epochs)])
    took, used = time.monotonic() - began, time.process_time() - cpu
    await store.aclose()
    count = WIDE * BATCHES
    return f"{count / took:,.0f} fenced effects/s (5,000), {WIDE} at once {1_000 * took / BATCHES:.1f} ms; {1e6 * used / count:.0f} us of this process each"


async def parked(url: str) -> str:
    """How often a run around branches on workers is replayed."""
    worker = await beside("worker", url)
    told: list[str] = []
    async with app(url) as flow:
        for count in (1, 10, 100):
            program = "(length (pmap :on workers (lambda (i) i) (range N)))"
            run = await flow.start(program, {"N": count}, run_id=f"wide-{count}", where="workers")
            began = time.monotonic()
            await run.result()
            found = await flow.find_run(f"wide-{count}")
            assert found is not None
            told.append(f"{count} branches: {found.slices} slices, {1_000 * (time.monotonic() - began):.0f} ms")
    worker.kill()
    await worker.wait()
    return "; ".join(told)


FIGURES: dict[str, Callable[[str], Awaitable[str]]] = {
    "machine": machine,
    "trips": trips,
    "start": start,
    "fairness": fairness,
    "rate": rate,
    "effects": effects,
    "parked": parked,
}


def main() -> None:
    """Print figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FIGURES))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        asyncio.run(child(options.names[0], options.child))
        return
    for name in options.names:
        logging = {
            "logging_collector": "on",
            "log_directory": "log",
            "log_filename": "statements",
            "log_file_mode": "0644",
            "log_line_prefix": "%n ",
            "log_min_duration_statement": "0",
        }
        server = Server(
            fsync="on",
            full_page_writes="on",
            shared_buffers="128MB",
            autovacuum="on",
            **(logging if name == "trips" else {}),
        )
        try:
            server.start()
            load = os.getloadavg()[0]
            print(f"{name}: {asyncio.run(FIGURES[name](server.schema()))} (load {load:.1f})", flush=True)  # type: ignore[arg-type]
        finally:
            server.remove()


if __name__ == "__main__":
    main()
