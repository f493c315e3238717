"""What the index costs, beside a plain FTS5 table of the same files: ``python -m tests.benchmarks.memory_cost TREE``.

    python -m tests.benchmarks.memory_cost TREE --files 20000 --make SOURCES...
    python -m tests.benchmarks.memory_cost TREE --files 100000 --cut 2500 --make SOURCES...

make a tree: files chosen by the hash of their names from directories of unpacked sources (Debian source packages, say),
cut to so many bytes. Without ``--make`` the tree is measured: the plain table (path and text, FTS5's own tokeniser) and the
index, each in a process of its own, in turns; of ``--rounds`` the best counts. Both are asked the same questions: up to
eight words of a line of prose in some file. All figures are processor time, of all threads. A hold of the loop is what
passes between two turns of it, in processor time or by the clock, whichever is less, beyond what it asked to sleep.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentflow.memory import FileMemory
from agentflow.memory.file_walk import RootReader, walk
from agentflow.memory.rules import IndexRules, decode, is_binary
from tests.support.peak import peak_bytes

MANY = 50_000
"""A tree of more files is judged by the bounds for 100,000."""
QUESTIONS = 120
WARM_UP = 5
TURN_S = 0.002
PROSE = re.compile(r"[\s#/*;-]*(?:[A-Za-z]{2,}[ ,.]+){5,}[A-Za-z]{2,}\W*")

BOUNDS: dict[str, float] = {
    "build / plain": 2.5,
    "question p95 ms": 60.0,
    "unchanged look s": 0.3,
    "peak MB": 250.0,
    "hold building ms": 50.0,
    "hold asking ms": 50.0,
    "database / text": 0.7,
}
BOUNDS_MANY = {**BOUNDS, "question p95 ms": 200.0, "unchanged look s": 0.3 * 5}


def texts(sources: Sequence[Path]) -> Iterator[Path]:
    """The text files below ``sources`` that an index would take."""
    for source in sources:
        for directory, _, names in os.walk(source):
            for name in names:
                path = Path(directory, name)
                if path.is_file() and not path.is_symlink() and 0 < path.stat().st_size <= 1_000_000:
                    yield path


def make(tree: Path, sources: Sequence[Path], files: int, cut: int | None) -> None:
    """Copy ``files`` files, chosen by the hash of their paths."""
    top = os.path.commonpath([source.resolve() for source in sources])
    named = {os.path.relpath(path.resolve(), top): path for path in texts(sources)}
    copied = 0
    for name in sorted(named, key=lambda name: hashlib.blake2b(os.fsencode(name)).digest()):
        data = named[name].read_bytes()
        if is_binary(data):
            continue
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data[:cut])
        copied += 1
        if copied == files:
            return
    raise SystemExit(f"the sources have {copied:,} text files only")


def listed(tree: Path) -> list[str]:
    """The files that the index would take, sorted, so that the plain table has no others."""
    rules = IndexRules()
    with RootReader(str(tree)) as reader:
        names = [name for name, _ in walk(reader, rules, lambda path, reason: None, lambda: None)]
    return sorted(os.path.join(tree, name) for name in names if rules.refuse(name) is None)


def questions(tree: Path) -> list[str]:
    """Up to eight words of a line of prose, comments included, of files spread over the tree."""
    chance = random.Random(5)
    paths = listed(tree)
    asked: list[str] = []
    for path in paths[:: max(1, len(paths) // (QUESTIONS * 3))]:
        lines = [line for line in decode(Path(path).read_bytes()).split("\n") if PROSE.fullmatch(line)]
        if lines:
            asked.append(" ".join(re.findall(r"[A-Za-z]{2,}", chance.choice(lines))[:8]))
    return asked[:QUESTIONS]


def percentiles(taken: Sequence[float]) -> dict[str, float]:
    ordered = sorted(taken)
    return {"question median ms": ordered[len(ordered) // 2], "question p95 ms": ordered[int(len(ordered) * 0.95)]}


def plain(tree: Path, database: Path, asked: Sequence[str]) -> dict[str, float]:
    db = sqlite3.connect(database, isolation_level=None)
    db.execute("create virtual table plain using fts5(path, body)")
    paths = listed(tree)
    began = time.process_time()
    size = 0
    db.execute("begin")
    for path in paths:
        with open(path, "rb") as file:
            data = file.read()
        size += len(data)
        db.execute("insert into plain values (?, ?)", (path, decode(data)))
    db.execute("commit")
    build = time.process_time() - began
    taken: list[float] = []
    for question in (*asked[:WARM_UP], *asked):
        began = time.process_time()
        words = " OR ".join(f'"{word}"' for word in question.split())
        db.execute("select path from plain where plain match ? order by rank limit 20", (words,)).fetchall()
        taken.append((time.process_time() - began) * 1e3)
    return {
        "build s": build,
        **percentiles(taken[WARM_UP:]),
        "text MB": size / 1e6,
        "database / text": database.stat().st_size / size,
    }


class Holds:
    """How long the loop was not reached, while it is asked for a turn every :data:`TURN_S` seconds."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def run(self) -> None:
        while True:
            cpu, clock = time.process_time(), time.perf_counter()
            await asyncio.sleep(TURN_S)
            late = min(time.perf_counter() - clock, time.process_time() - cpu) - TURN_S
            self.longest_ms = max(self.longest_ms, late * 1e3)


async def ours(tree: Path, cache: Path, asked: Sequence[str]) -> dict[str, float]:
    memory = FileMemory({"cache_dir": cache, "refresh_s": 3_600}, roots=[tree])
    gc.collect()

    async def held(work: Callable[[], Any]) -> tuple[float, float]:
        """Processor seconds of ``work`` and the longest hold of the loop meanwhile, in milliseconds."""
        holds = Holds()
        ticking = asyncio.create_task(holds.run())
        await asyncio.sleep(0)
        began = time.process_time()
        await work()
        taken = time.process_time() - began
        ticking.cancel()
        return taken, holds.longest_ms

    build, building = await held(memory.update_global_index)
    look = min([(await held(memory.update_global_index))[0] for _ in range(3)])
    for question in asked[:WARM_UP]:
        await memory.search(question)
    taken: list[float] = []
    for question in asked:
        began = time.process_time()
        await memory.search(question)
        taken.append((time.process_time() - began) * 1e3)

    async def ask_all() -> None:
        for question in asked:
            await memory.search(question)

    _, asking = await held(ask_all)
    files = await memory.index.count()
    await memory.aclose()
    return {
        "build s": build,
        **percentiles(taken),
        "unchanged look s": look,
        "files": files,
        "peak MB": peak_bytes() / 1e6,
        "hold building ms": building,
        "hold asking ms": asking,
        "database MB": sum(entry.stat().st_size for entry in os.scandir(cache) if entry.name.endswith(".db")) / 1e6,
    }


def measured(part: str, tree: Path) -> dict[str, float]:
    """One part in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.memory_cost", "--part", part, str(tree)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def figures(tree: Path, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """``(plain, ours)``: the best of ``rounds`` for what is processor time."""
    both: list[dict[str, float]] = []
    turns = [(measured("plain", tree), measured("ours", tree)) for _ in range(rounds)]
    for part in zip(*turns, strict=True):
        both.append({name: min(each[name] for each in part) for name in part[0]})
    table, index = both
    index["build / plain"] = index["build s"] / table["build s"]
    index["database / text"] = index.pop("database MB") / table["text MB"]
    return table, index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--make", type=Path, nargs="+", metavar="SOURCES", help="make TREE of files below these")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--cut", type=int, help="bytes kept of each file")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--part", choices=("plain", "ours"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        return make(options.tree, options.make, options.files, options.cut)
    if options.part:
        with tempfile.TemporaryDirectory() as scratch:
            asked = questions(options.tree)
            if options.part == "plain":
                print(json.dumps(plain(options.tree, Path(scratch, "plain.db"), asked)))
            else:
                print(json.dumps(asyncio.run(ours(options.tree, Path(scratch), asked))))
        return None
    table, index = figures(options.tree, options.rounds)
    bounds = BOUNDS if index["files"] <= MANY else BOUNDS_MANY
    print(f"{index['files']:,.0f} files, {table['text MB']:.0f} MB of text")
    for name, value in sorted(index.items()):
        beside = f"plain {table[name]:.2f}" if name in table else ""
        bound = bounds.get(name)
        met = "" if bound is None else f"at most {bound:g}: {'met' if value <= bound else 'MISSED'}"
        print(f"{name:20} {value:10.2f}   {beside:16} {met}")
    return None


if __name__ == "__main__":
    main()
