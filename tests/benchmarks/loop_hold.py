"""How long programs hold the event loop, and how much memory they take, at default limits: ``python loop_hold.py``.

Each case of :mod:`tests.support.loop_cases` and its Python twins runs in a process of its own, under an ``asyncio.timeout(1)`` that the host
sets. Beside it a task counts the turns of the loop and the processor time of the loop's thread between them, less what
a full garbage collection takes, which is reported apart. Columns: the outcome (a value's type, an error code, or
``timeout``), turns, p99 and longest hold in ms, longest collection in ms, growth of the process in MB, processor time of
all threads in ms, and how many ms of the loop's own thread passed between the end of the timeout and the end of the run.

Options: names of cases; ``--json``; ``--no-timeout`` lets each case run to its end (at most 60 s); ``--recorded`` has the
events of each case searched for secrets and recorded in files; ``--durable`` has each case started as a durable run;
``--labelled`` runs it in a flow with a policy, with its bindings in boxes, ``--strict`` in one with a strict policy; ``--first`` makes it the
first run of its process, whose imports hold no loop either (bytecode has to be there); ``--served`` has a server do it, for a client in the same process that reads all of its events.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.loop_cases import CASES, Case
from tests.support.peak import peak_bytes
from tests.support.python_loop_cases import PYTHON_CASES

ALL = {**CASES, **PYTHON_CASES}
"""All cases by name, in both languages."""
HOLD_P99_MS = 25.0
HOLD_WORST_MS = 100.0
MEMORY_MB = 512 * 1.2
ENDS_MS = 200.0


class Ticker:
    """Counts turns of the loop and the processor time between them."""

    def __init__(self) -> None:
        self.holds: list[float] = []
        self.collections: list[float] = []
        self._began = 0.0
        self._pause = 0.0

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """A callback for ``gc.callbacks``."""
        if phase == "start":
            self._began = time.thread_time()
        else:
            taken = time.thread_time() - self._began
            self._pause += taken
            self.collections.append(taken)

    async def run(self) -> None:
        """Tick until cancelled."""
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.holds.append(max(0.0, now - before - self._pause))
            self._pause = 0.0
            before = time.thread_time()


async def measure(
    case: Case,
    timeout_s: float | None,
    record: str | None = None,
    durable: str | None = None,
    *,
    labelled: bool = False,
    strict: bool = False,
    served: bool = False,
    first: bool = False,
) -> dict[str, Any]:
    """Run one case and give its figures; ``record`` is the directory of its events, ``durable`` the URL of its journal."""
    from agentflow import AgentFlow, Labelled, Provenance, ScriptedProvider
    from agentflow.core.data.source import Source

    async def take(value: Any = None) -> int:
        """A tool that takes anything.

        Args:
            value: what it takes
        """
        return 1

    async def give(n: int) -> list[int]:
        """A tool that gives much.

        Args:
            n: how much
        """
        return list(range(n))

    async def total(values: list[int]) -> int:
        """A tool that takes many numbers.

        Args:
            values: the numbers
        """
        return len(values)

    ticker = Ticker()
    bindings = case.bindings()
    if labelled or strict:
        bindings = {name: Labelled(value, "web") for name, value in bindings.items()}
    replies = case.replies()
    provider = ScriptedProvider(replies)
    own = AgentFlow(
        provider=provider,
        tools=[take, give, total],
        record=record or False,
        durable=durable,
        provenance=Provenance(strict=strict) if labelled or strict else None,
    )
    front = _front(own, case, bindings) if served else contextlib.nullcontext()
    async with own as flow, front as client:
        # Its compiler is imported here: where Python may write no bytecode, that takes 100 ms.
        if not first:
            await flow.run("1" if case.cold else Source.unnamed("1", case.surface))
        gc.collect()
        before = _resident()
        gc.callbacks.append(ticker.collected)
        beside = asyncio.create_task(ticker.run())
        await asyncio.sleep(0)  # it has begun before the case does
        ended_late = 0.0
        began, turning = time.process_time(), time.thread_time()
        try:
            async with asyncio.timeout(timeout_s) as scope:
                try:
                    if served:
                        value = await _served(client, "case")
                    elif durable is None:
                        value = (await flow.run(case.source, bindings=bindings, allow=case.allow)).value
                    else:
                        value = (await (await flow.start(case.source, bindings=bindings)).result()).value
                    outcome = value if served else type(value).__name__
                except BaseException as error:
                    outcome = str(getattr(error, "code", type(error).__name__))
                    if scope.when() is not None:
                        ended_late = time.thread_time() - turning
                    raise
        except TimeoutError:
            outcome = "timeout"
        except Exception:
            pass
        cpu = time.process_time() - began
        await asyncio.sleep(0)  # the ticker's turn: the last hold counts too
        await asyncio.sleep(0)
        beside.cancel()
        await asyncio.wait([beside])
        gc.callbacks.remove(ticker.collected)
    holds = sorted(ticker.holds) or [0.0]
    return {
        "case": case.name,
        "outcome": outcome,
        "turns": len(holds),
        "p99_ms": 1e3 * holds[min(len(holds) - 1, int(len(holds) * 0.99))],
        "worst_ms": 1e3 * holds[-1],
        "gc_ms": 1e3 * max(ticker.collections, default=0.0),
        "growth_mb": max(0.0, peak_bytes() / 2**20 - before),
        "cpu_ms": 1e3 * cpu,
        "late_ms": 1e3 * max(0.0, ended_late - (timeout_s or 1e9)),
    }


@contextlib.asynccontextmanager
async def _front(flow: Any, case: Case, bindings: dict[str, Any]) -> AsyncGenerator[Any, None]:
    """A client of a server of the flow that offers the case, and has served something already."""
    import httpx2

    from agentflow.serve import Export, FlowServer

    export = Export(program=case.source, parameters={}, bindings=bindings, allow=case.allow)
    server = FlowServer(flow, {"case": export, "first": Export(program="(+ 1 1)", parameters={})})
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(server), base_url="http://127.0.0.1", timeout=None)
    async with server, client:
        await _served(client, "first")
        yield client


async def _served(client: Any, export: str) -> str:
    """The status of the run of a server, or the code of its error, for a client that has read its events."""
    begun = await client.post("/runs", json={"export": export, "bindings": {}})
    run = f"/runs/{begun.json()['run_id']}"
    await client.get(f"{run}/events")
    told = await asyncio.to_thread((await client.get(run)).json)  # the client's own work holds no loop of a server
    return str(told["status"] if told.get("error") is None else told["error"].get("code"))


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def run_case(
    name: str,
    timeout_s: float | None = 1.0,
    patience_s: float = 60.0,
    *,
    recorded: bool = False,
    durable: bool = False,
    labelled: bool = False,
    strict: bool = False,
    served: bool = False,
    first: bool = False,
) -> dict[str, Any]:
    """The figures of one case, measured in a process of its own; ``outcome`` ``hung`` when it had to be killed."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", name]
    command += [] if timeout_s is not None else ["--no-timeout"]
    command += ["--recorded"] if recorded else []
    command += ["--durable"] if durable else []
    command += ["--labelled"] if labelled else []
    command += ["--strict"] if strict else []
    command += ["--served"] if served else []
    command += ["--first"] if first else []
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False)
    except subprocess.TimeoutExpired:
        return {"case": name, "outcome": "hung", "turns": 0, **dict.fromkeys(_FIGURES, patience_s * 1e3)}
    if ended.returncode:
        return {"case": name, "outcome": f"died ({ended.returncode})", "turns": 0, **dict.fromkeys(_FIGURES, 0.0)}
    return json.loads(ended.stdout.splitlines()[-1])


_FIGURES = ("p99_ms", "worst_ms", "gc_ms", "growth_mb", "cpu_ms", "late_ms")


def passes(row: dict[str, Any], margin: float = 1.0) -> bool:
    """Whether the figures of a case are within the bounds, times ``margin``; memory has no margin but its own."""
    return (
        row["turns"] > 0
        and row["p99_ms"] <= HOLD_P99_MS * margin
        and row["worst_ms"] <= HOLD_WORST_MS * margin
        and row["growth_mb"] <= MEMORY_MB
        and row["late_ms"] <= ENDS_MS * margin
    )


def _print(row: dict[str, Any]) -> None:
    """Print the line of a case as soon as there is one: all of them take some minutes."""
    mark = "" if passes(row) else "  <--"
    print(
        f"{row['case']:<26}{row['outcome'][:25]:<26}{row['turns']:>8}{row['p99_ms']:>8.1f}{row['worst_ms']:>9.1f}"
        f"{row['gc_ms']:>8.1f}{row['growth_mb']:>7.0f}{row['cpu_ms']:>8.0f}{row['late_ms']:>7.0f}{mark}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-timeout", action="store_true")
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--labelled", action="store_true")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--served", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--child")
    options = parser.parse_args()
    timeout_s = None if options.no_timeout else 1.0
    if options.child:
        with tempfile.TemporaryDirectory() as directory:
            record = directory if options.recorded else None
            durable = f"sqlite:///{directory}/runs.db" if options.durable else None
            figures = measure(
                ALL[options.child],
                timeout_s,
                record,
                durable,
                labelled=options.labelled,
                strict=options.strict,
                served=options.served,
                first=options.first,
            )
            print(json.dumps(asyncio.run(figures)))
        return
    if not options.json:
        print(f"{'case':<26}{'outcome':<26}{'turns':>8}{'p99':>8}{'worst':>9}{'gc':>8}{'MB':>7}{'cpu':>8}{'late':>7}")
    rows: list[dict[str, Any]] = []
    for name in options.names or ALL:
        row = run_case(
            name,
            timeout_s,
            recorded=options.recorded,
            durable=options.durable,
            labelled=options.labelled,
            strict=options.strict,
            served=options.served,
            first=options.first,
        )
        rows.append(row)
        if not options.json:
            _print(row)
    if options.json:
        print(json.dumps(rows))
        return
    print(
        f"{sum(map(passes, rows))} of {len(rows)} within {HOLD_P99_MS:g} / {HOLD_WORST_MS:g} ms and {MEMORY_MB:.0f} MB"
    )


if __name__ == "__main__":
    main()
