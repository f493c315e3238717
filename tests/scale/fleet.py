"""Processes that share a database, work on many runs, and are killed at random; each killed one is replaced.

    python -m tests.scale.fleet --runs 1000 --kills 100 --workers 3
    python -m tests.scale.fleet --runs 1000 --kills 100 --workers 3 --slots 2 --queue --empty 5 --stops 5
    python -m tests.scale.fleet --runs 1000 --kills 0 --queue --pauses 3
    python -m tests.scale.fleet --branches 1000 --kills 20 --workers 3
    python -m tests.scale.fleet --races 60 --kills 20 --workers 3

Without ``--queue`` each process starts runs itself; with it they are left to workers, whose queue may be emptied by hand and whose
server stopped at once; with ``--pauses`` a process stands still until others have its runs, and wakes; ``--branches`` is one run of so many branches that are left to workers, where each other kill is that of whoever
works on the run around them; ``--races`` is one run of so many races on workers, each of which is won by one branch, whatever is killed. No run is lost, no effect is carried out again after its record was acknowledged, and what a killed process worked on goes on
in the others, who look for it themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, Durable
from agentflow.core.data.errors import JournalError
from agentflow.durable.runs import DurableRuns
from agentflow.durable.worker import work_on
from agentflow.run.run_spec import RunSpec
from tests.durable.child import Failpoint, Log, journal
from tests.durable.harness import Report, check_log, check_once
from tests.support.postgres import Server

PROGRAM = """
(define (see at) (content (look (at (string-append R at)))))
(list (see "-a") (pmap see '("-p0" "-p1" "-p2")) (see "-b"))
"""
WIDE = """
(define (see at) (content (look (at at))))
(map (lambda (round) (see (format "r{}-a" round))
                     (pmap :on workers see (map (lambda (i) (format "r{}-p{}" round i)) (range N))))
     (range 4))
"""
"""Four forms of ``N`` branches each, one after the other, with an effect of the run itself before each."""
RACES = """
(define (see at) (content (look (at at))))
(define (run name) (begin (see name) (string-append name "-won")))
(map (lambda (round) (see (race :on workers (run (format "r{}-x" round)) (run (format "r{}-y" round)) (error "no")))) (range N))
"""
"""``N`` races, one after the other, with an effect of the run itself that says who has won."""
STUCK_S = 60.0
SLOTS = 10
"""Number of runs that a process begins at a time; those that it takes over come on top."""


@dataclass
class Fleet:
    """What was seen of a fleet. ``takeovers`` are the seconds until nothing belonged to a killed process any more, ``pauses`` those
    until nothing belonged to one that stood still.

    ``slices`` is how often the run around branches was begun or resumed, ``seconds`` how long it took until its end.
    """

    report: Report = field(default_factory=Report)
    takeovers: list[float] = field(default_factory=list[float])
    pauses: list[float] = field(default_factory=list[float])
    slices: int = 0
    seconds: float = 0.0


async def work(url: str, log_path: str, count: int, slots: int) -> None:
    """A process of the fleet: starts what runs it can, some at a time, and goes on with those of the dead.

    With a ``count`` of 0 it is a worker, and does what was left to workers.
    """
    log = Log(log_path)

    async def look(at: str) -> str:
        """Look at something for a while."""
        log.line("started", at)
        await asyncio.sleep(random.uniform(0.05, 0.4))
        log.line("done", at)
        return f"<{at}>"

    async with AgentFlow(model="offline", tools=[look]) as flow:
        runs = DurableRuns(flow.engine, journal(url, log, Failpoint(None, 1)), flow.redactor)
        try:
            await runs.take_over()
            print("ready", flush=True)
            if count == 0:
                await work_on(runs, {"default": 0}, slots, asyncio.Event(), 30.0)
            program = flow.compile(PROGRAM, bindings={"R": ""})
            free = asyncio.Semaphore(slots)

            async def one(number: int) -> None:
                async with free:
                    try:
                        handle = await runs.start(program, RunSpec(bindings={"R": f"r{number}"}, run_id=f"r{number}"))
                        await handle.result()
                    except JournalError as error:
                        if error.code != "durable/owned":
                            raise

            async with asyncio.TaskGroup() as group:
                for number in random.sample(range(count), count):
                    group.create_task(one(number))
            await asyncio.to_thread(sys.stdin.read)
        finally:
            await runs.aclose()


def worker(url: str, log: Path, count: int, slots: int) -> subprocess.Popen[str]:
    """Start a process of the fleet."""
    command = [sys.executable, "-m", "tests.scale.fleet", "--work", url, str(log), str(count), str(slots)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ready(process: subprocess.Popen[str]) -> None:
    """Wait until a process works."""
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError("a process of the fleet ended")


async def leave(url: str, runs: int) -> None:
    """Leave runs to workers."""

    async def look(at: str) -> str:
        """Look at something for a while."""
        raise AssertionError("whoever leaves a run to workers does none of it")

    async with AgentFlow(model="offline", tools=[look], durable=Durable(url, take_over=False)) as flow:
        for start in range(0, runs, 50):
            numbers = range(start, min(start + 50, runs))
            await asyncio.gather(
                *[flow.start(PROGRAM, {"R": f"r{n}"}, run_id=f"r{n}", where="workers") for n in numbers]
            )


async def campaign(
    url: str,
    runs: int,
    kills: int,
    workers: int,
    seed: int,
    *,
    slots: int = SLOTS,
    queue: bool = False,
    empty: int = 0,
    stops: int = 0,
    pauses: int = 0,
    server: Server | None = None,
) -> Fleet:
    """Let ``workers`` processes do ``runs`` runs, and kill one of them ``kills`` times.

    With ``queue`` they are workers, whose queue is emptied ``empty`` times; ``server`` is stopped at once ``stops`` times; and
    ``pauses`` times a process stands still until others have its runs. Where nothing happens to them, each effect is carried out once.
    """
    import asyncpg

    dice = random.Random(seed)
    fleet = Fleet()
    if queue:
        await leave(url, runs)
    db: Any = await asyncpg.connect(url)
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        count = 0 if queue else runs
        processes = [worker(url, log, count, slots) for _ in range(workers)]
        try:
            for process in processes:
                await asyncio.to_thread(ready, process)
            for number in range(kills):
                await asyncio.sleep(dice.uniform(0.3, 1.0))
                if number < empty:
                    await db.execute("truncate af_job")
                if number < stops and server is not None:
                    server.stop()
                    server.start()
                    db = await asyncpg.connect(url)
                victim = processes.pop(dice.randrange(len(processes)))
                owner = await db.fetchval("select owner from af_owner where pid = $1", victim.pid)
                busy = "select exists (select from af_run where status = 'running' and owner = $1)"
                works = await db.fetchval(busy, owner)
                _end(victim)
                fleet.report.kills += 1
                took = await _until(db, "status <> 'running' or owner is distinct from $1", owner)
                fleet.takeovers += [took] if works else []
                processes.append(worker(url, log, count, slots))
                await asyncio.to_thread(ready, processes[-1])
            for number in range(pauses):
                fleet.pauses += await _paused(db, processes[number % len(processes)])
            while await db.fetchval("select count(*) from af_run") < runs:
                await asyncio.sleep(0.05)
            await _until(db, "status = 'done'")
        finally:
            for process in processes:
                _end(process)
        fleet.report.runs = await db.fetchval("select count(*) from af_run where status = 'done'")
        effects = await db.fetchval("select count(*) from af_effect where kind = 'tool' and state = 1")
        if effects != 5 * runs:
            fleet.report.wrong.append(f"{effects} effects have a record, not {5 * runs}")
        check_log(log, fleet.report, "fleet")
        if not kills and not stops and not pauses:
            check_once(log, fleet.report, "fleet")
    await db.close()
    return fleet


async def _paused(db: Any, process: subprocess.Popen[str]) -> list[float]:
    """Let a process stand still until others have what it worked on. Gives the seconds that took, nothing if it did nothing."""
    owner = await db.fetchval("select owner from af_owner where pid = $1", process.pid)
    for _ in range(200):
        if await db.fetchval("select exists (select from af_run where status = 'running' and owner = $1)", owner):
            break
        await asyncio.sleep(0.01)
    else:
        return []
    process.send_signal(signal.SIGSTOP)
    try:
        return [await _until(db, "status <> 'running' or owner is distinct from $1", owner)]
    finally:
        process.send_signal(signal.SIGCONT)


async def wide(
    url: str, branches: int, kills: int, workers: int, seed: int, slots: int = SLOTS, *, races: bool = False
) -> Fleet:
    """Let ``workers`` processes do one run of ``branches`` branches, a multiple of four, or as many ``races``, and kill one of them
    ``kills`` times.

    Every other kill is that of whoever works on the run around the branches, as soon as somebody does.
    """
    import asyncpg

    dice = random.Random(seed)
    fleet = Fleet()
    async with AgentFlow(model="offline", tools=[_unused], durable=Durable(url, take_over=False)) as flow:
        program, count = (RACES, branches) if races else (WIDE, branches // 4)
        await flow.start(program, {"N": count}, run_id="r", where="workers")
    db: Any = await asyncpg.connect(url)
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        processes = [worker(url, log, 0, slots) for _ in range(workers)]
        try:
            for process in processes:
                await asyncio.to_thread(ready, process)
            began = time.monotonic()
            for number in range(kills):
                await asyncio.sleep(dice.uniform(0.05, 0.3))
                victim = await _owner_of_parent(db, processes) if number % 2 else None
                victim = victim or dice.choice(processes)
                processes.remove(victim)
                owner = await db.fetchval("select owner from af_owner where pid = $1", victim.pid)
                busy = "select exists (select from af_run where status = 'running' and owner = $1)"
                works = await db.fetchval(busy, owner)
                _end(victim)
                fleet.report.kills += 1
                took = await _until(db, "status <> 'running' or owner is distinct from $1", owner)
                fleet.takeovers += [took] if works else []
                processes.append(worker(url, log, 0, slots))
                await asyncio.to_thread(ready, processes[-1])
            await _until(db, "status in ('done', 'failed', 'cancelled')")
            fleet.seconds = time.monotonic() - began
        finally:
            for process in processes:
                _end(process)
        fleet.report.runs = await db.fetchval("select count(*) from af_run where status = 'done'")
        result = await db.fetchval("select result from af_run where run = 'r' and status = 'done'")
        value = [] if result is None else json.loads(result)["value"]
        if races:
            fleet.report.wrong += _races_wrong(log, value, branches)
        elif value != [[f"<r{round}-p{at}>" for at in range(branches // 4)] for round in range(4)]:
            fleet.report.wrong.append("the values of the branches are others, or in another order")
        elif fleet.report.runs != branches + 1:
            fleet.report.wrong.append(f"{fleet.report.runs} runs have ended, not {branches + 1}")
        if left := await db.fetchval("select count(*) from af_fork"):
            fleet.report.wrong.append(f"{left} forms are left whose branches have all ended")
        fleet.slices = await db.fetchval("select slice from af_run where run = 'r'")
        check_log(log, fleet.report, "fleet")
    await db.close()
    return fleet


def _races_wrong(log: Path, value: list[str], count: int) -> list[str]:
    """What is wrong with races: one that had no winner, or of which more than one winner was acted on."""
    acted = {line.partition(" ")[2] for line in log.read_text().splitlines() if line.endswith("-won")}
    winners = [acted & {f"r{number}-{name}-won" for name in "xy"} for number in range(count)]
    wrong = [f"race {number}: {sorted(names)} were acted on" for number, names in enumerate(winners) if len(names) != 1]
    return wrong or ([] if value == [f"<{name}>" for names in winners for name in names] else ["other values of races"])


async def _unused(at: str) -> str:
    """Look at something for a while."""
    raise AssertionError("whoever leaves a run to workers does none of it")


async def _owner_of_parent(db: Any, processes: list[subprocess.Popen[str]]) -> subprocess.Popen[str] | None:
    """The process that works on the run around the branches, once there is one; None if that takes long."""
    query = "select o.pid from af_run r join af_owner o using (owner) where r.run = 'r' and r.status = 'running'"
    for _ in range(200):
        pid = await db.fetchval(query)
        for process in processes:
            if process.pid == pid:
                return process
        await asyncio.sleep(0.01)
    return None


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


async def _until(db: Any, condition: str, *args: Any) -> float:
    """Wait until a condition holds for every run. Gives the seconds that took. Raises TimeoutError when that comes no nearer."""
    began = changed = time.monotonic()
    before = None
    while left := await db.fetchval(f"select count(*) from af_run where not ({condition})", *args):
        if left != before:
            before, changed = left, time.monotonic()
        if time.monotonic() - changed > STUCK_S:
            left = await db.fetch("select run, status, slice, deaths from af_run where status <> 'done' limit 10")
            raise TimeoutError(f"runs that nobody goes on with: {left}")
        await asyncio.sleep(0.01)
    return time.monotonic() - began


def main() -> None:
    """A campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("--queue", action="store_true")
    parser.add_argument("--empty", type=int, default=0)
    parser.add_argument("--stops", type=int, default=0)
    parser.add_argument("--pauses", type=int, default=0)
    parser.add_argument("--branches", type=int, default=0)
    parser.add_argument("--races", type=int, default=0)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        url, log, count, slots = options.work
        asyncio.run(work(url, log, int(count), int(slots)))
        return
    server = Server()
    try:
        server.start()
        url = server.schema()
        fleet = asyncio.run(
            wide(
                url,
                options.races or options.branches,
                options.kills,
                options.workers,
                options.seed,
                options.slots,
                races=options.races > 0,
            )
            if options.races or options.branches
            else campaign(
                url,
                options.runs,
                options.kills,
                options.workers,
                options.seed,
                slots=options.slots,
                queue=options.queue,
                empty=options.empty,
                stops=options.stops,
                pauses=options.pauses,
                server=server,
            )
        )
    finally:
        server.remove()
    report, took = fleet.report, sorted(fleet.takeovers)
    print(
        f"{report.runs} runs, {report.kills} kills, {report.stored} effects stored: {len(report.repeated)} repeated after that,"
        f" {report.in_flight} that were in flight, {report.unstored} done and not yet stored; {len(report.wrong)} wrong"
    )
    if fleet.slices:
        print(f"the run around the branches was begun or resumed {fleet.slices} times; {fleet.seconds:.1f} s")
    if took:
        late = took[int(len(took) * 0.99)]
        print(f"{len(took)} takeovers: p50 {statistics.median(took):.2f} s, p99 {late:.2f} s, max {took[-1]:.2f} s")
    if fleet.pauses:
        print(f"{len(fleet.pauses)} stood still: their runs were elsewhere after {max(fleet.pauses):.1f} s at most")
    for fault in report.faults[:20]:
        print(" ", fault)
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
