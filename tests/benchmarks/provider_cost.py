"""What a model call costs, beside the bare SDK doing the same in the same run.

    python tests/benchmarks/provider_cost.py [--level adapter|flow] [--only call,tools,...] [--dialects chat,...]

Figures are client CPU (the server runs in a process of its own), ratios to the bare SDK, medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.provider_contenders import Adapter, Bare, Flow
from tests.benchmarks.timing import medians
from tests.support.model_server import model_server_process

CHUNKS = 5_000
TARGETS: dict[tuple[str, bool], dict[str, float]] = {
    ("call", False): {"chat": 0.80, "responses": 0.78, "anthropic": 0.90},
    ("call", True): {"chat": 0.58, "responses": 0.55, "anthropic": 0.68},
    ("tools", False): {"chat": 0.5, "responses": 0.35, "anthropic": 0.9},
    ("tools", True): {"chat": 0.4, "responses": 0.3, "anthropic": 0.7},
    ("chunk", False): {"chat": 0.3, "responses": 0.3, "anthropic": 0.75},
    ("chunk", True): {"chat": 0.2, "responses": 0.2, "anthropic": 0.45},
}


class Table:
    """Rows as they are measured."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, dialect: str, who: str, value: str, ratio: float | None, target: float | None) -> None:
        met = "" if target is None or ratio is None else ("met" if ratio <= target else "MISSED")
        self.rows.append(
            {"what": what, "dialect": dialect, "who": who, "value": value, "ratio": ratio, "target": target}
        )
        shown = "" if ratio is None else f"{ratio:5.2f}"
        goal = "" if target is None else f"<= {target}"
        print(f"{what:18} {dialect:10} {who:16} {value:>22} {shown:>6} {goal:8} {met}", flush=True)


async def contenders(level: str, dialect: str, url: str, tools: bool = False) -> list[Any]:
    made: list[Any] = [Bare(dialect, url)]
    for aiohttp in (False, True):
        if level == "flow":
            made.append(Flow(dialect, url, aiohttp=aiohttp, tools=tools))
        else:
            made.append(Adapter(dialect, url, aiohttp=aiohttp))
    return [await each.__aenter__() for each in made]


async def ratios(table: Table, level: str, dialect: str, what: str, unit: int, times: int, rounds: int) -> None:
    """One scenario: ``what`` of each contender."""
    replies: dict[str, list[Any]] = {
        "call": ["It is a short answer of a few words."],
        "tools": [{"tool_calls": [{"id": f"c{n}", "name": "add", "arguments": {"a": n}}]} for n in range(5)] + ["done"],
        "chunk": [{"chunks": ["word "] * CHUNKS}],
    }
    async with model_server_process(replies[what], by_turn=what == "tools") as url:
        who = await contenders(level, dialect, url, what == "tools")
        works = [{"call": w.call, "tools": w.tool_turns, "chunk": w.stream}[what] for w in who]
        measured = await medians(dict(enumerate(works)), rounds, times)
        for each, seconds in zip(who, measured.values(), strict=True):
            aiohttp = getattr(each, "aiohttp", False)
            target = None if each is who[0] else TARGETS[what, aiohttp][dialect]
            name = each.name + ("+aiohttp" if aiohttp else "")
            table.add(what, dialect, name, f"{seconds / unit * 1e6:.1f} us", seconds / measured[0], target)
        for each in who:
            await each.__aexit__(None, None, None)


async def first_chunk(table: Table, level: str, dialect: str) -> None:
    """Wall time to the first text, of a stream of 20 chunks."""
    async with model_server_process([{"chunks": ["word "] * 20}]) as url:
        who = await contenders(level, dialect, url)
        taken: list[list[float]] = [[] for _ in who]
        for _ in range(60):
            for index, each in enumerate(who):
                taken[index].append((await each.stream())[1])
        base = statistics.median(taken[0][10:])
        for each, times in zip(who, taken, strict=True):
            late = (statistics.median(times[10:]) - base) * 1e3
            name = each.name + ("+aiohttp" if getattr(each, "aiohttp", False) else "")
            verdict = None if each is who[0] else late
            table.add("first chunk", dialect, name, f"{late:+.3f} ms", verdict, None if each is who[0] else 0.2)
            await each.__aexit__(None, None, None)


async def growth(table: Table, level: str, dialect: str) -> None:
    """CPU of a call with 301 messages over one with 1."""
    async with model_server_process(["short"]) as url:
        for each in await contenders(level, dialect, url):
            few, many = (await medians({n: lambda e=each, n=n: e.call(n) for n in (1, 301)}, 5, 20)).values()
            name = each.name + ("+aiohttp" if getattr(each, "aiohttp", False) else "")
            target = None if each.name == "sdk" else 2.0
            table.add("1 -> 301 messages", dialect, name, f"{few * 1e3:.2f} -> {many * 1e3:.2f} ms", many / few, target)
            await each.__aexit__(None, None, None)


async def crowd(table: Table, level: str, dialect: str, count: int, gates: list[int]) -> None:
    """``count`` calls at once against a server that takes 200 ms."""
    async with model_server_process([{"text": "short", "delay_s": 0.2}]) as url:
        base: float | None = None
        for gate in [0, *gates]:
            for aiohttp in [False] if gate == 0 else [False, True]:
                kind = Flow if level == "flow" else Adapter
                one = Bare(dialect, url) if gate == 0 else kind(dialect, url, aiohttp=aiohttp, gate=gate)
                if gate == 0 and count > 1_000:
                    continue
                async with one as who:
                    await who.call()
                    wall, stall, busy, kilobytes, failed = await _crowd(who, count)
                    base = base or wall
                    name = who.name + ("+aiohttp" if aiohttp else "") + (f" gate {gate}" if gate else "")
                    value = f"{wall:.2f} s, stall {stall * 1e3:.0f} ms (CPU {busy * 1e3:.0f}), {kilobytes:.0f} KB"
                    value += f", {failed} failed" if failed else ""
                    target = None if gate == 0 or count > 1_000 else (0.45 if aiohttp else 1.0)
                    table.add(f"{count} at once", dialect, name, value, wall / base, target)


async def _crowd(who: Any, count: int) -> tuple[float, float, float, float, int]:
    """Wall seconds, worst loop stall (wall and CPU seconds), resident KB a run while all wait, failures."""
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    worst, busiest, peak, stop = 0.0, 0.0, before, False

    async def watch() -> None:
        nonlocal worst, busiest, peak
        while not stop:
            began, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.005)
            worst = max(worst, time.perf_counter() - began - 0.005)
            busiest = max(busiest, time.thread_time() - used)
            peak = max(peak, process.memory_info().rss)

    watcher = asyncio.create_task(watch())
    began = time.perf_counter()
    results = await asyncio.gather(*(who.call() for _ in range(count)), return_exceptions=True)
    wall = time.perf_counter() - began
    stop = True
    await watcher
    failures = [result for result in results if isinstance(result, BaseException)]
    if failures:
        print("   ", repr(failures[0])[:200])
    return wall, worst, busiest, (peak - before) / count / 1024, len(failures)


async def main(options: argparse.Namespace) -> list[dict[str, Any]]:
    table = Table()
    chosen, dialects = options.only.split(","), options.dialects.split(",")
    for dialect in dialects:
        if "call" in chosen:
            await ratios(table, options.level, dialect, "call", 1, 100, options.rounds)
        if "tools" in chosen:
            await ratios(table, options.level, dialect, "tools", 1, 20, options.rounds)
        if "chunk" in chosen:
            await ratios(table, options.level, dialect, "chunk", CHUNKS, 1, options.rounds)
        if "first" in chosen:
            await first_chunk(table, options.level, dialect)
        if "growth" in chosen:
            await growth(table, options.level, dialect)
        if "crowd" in chosen:
            await crowd(table, options.level, dialect, 1_000, options.gates)
        if "crowd5" in chosen:
            await crowd(table, options.level, dialect, 5_000, options.gates)
    return table.rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--level", choices=["adapter", "flow"], default="adapter")
    parser.add_argument("--only", default="call,tools,chunk,first,growth,crowd,crowd5")
    parser.add_argument("--dialects", default="chat,responses,anthropic")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--gates", type=lambda text: [int(part) for part in text.split(",")], default=[256])
    parser.add_argument("--json", help="write the rows to this file too")
    given = parser.parse_args()
    rows = asyncio.run(main(given))
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
