"""How fast the index is built, asked and brought up to date.

    python tests/benchmarks/memory_speed.py [--files 2500] [--database] [--made]

Indexes a copy of installed Python packages (``--made``: small made-up files, for very large numbers) in a git repository
with a history of made-up commits; asks 200 questions; changes one file 30 times. The bounds are those of the
requirements: first index of 2,500 files under 10 s, query p95 at most 30 ms, one-file update at most 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow.memory import FileIndex

WORDS = [
    "read",
    "write",
    "parse",
    "index",
    "query",
    "stream",
    "error",
    "handler",
    "token",
    "config",
    "file",
    "path",
    "json",
    "cache",
    "retry",
    "socket",
    "user",
]


def sources(count: int, made: bool, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    if made:
        for number in range(count):
            text = "".join(f"def {chance.choice(WORDS)}_{number}_{i}(): pass\n" for i in range(8))
            yield f"d{number % 300}/f{number}.py", text.encode()
        return
    top = Path(sysconfig.get_paths()["purelib"])
    found = sorted(path for path in top.rglob("*.py") if path.stat().st_size < 200_000)
    for path in itertools.islice(found, count):
        yield str(path.relative_to(top)), path.read_bytes()


def prepare(root: Path, count: int, made: bool) -> list[str]:
    chance = random.Random(1)
    names: list[str] = []
    for name, data in sources(count, made, chance):
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        names.append(name)
    stream: list[str] = []
    for number in range(2_000):
        message = f"{' '.join(chance.choices(WORDS, k=2))} {' '.join(Path(n).stem for n in chance.sample(names, 3))}"
        stream.append(f"commit refs/heads/main\ncommitter x <x@example.invalid> {10**9 + number} +0000")
        stream.append(f"data {len(message)}\n{message}")
        for name in chance.sample(names, 3):
            stream.append(f"M 644 inline {name}\ndata {len(str(number))}\n{number}")
    subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "fast-import", "--quiet"], input="\n".join(stream).encode(), check=True)
    return names


async def measure(root: Path, names: list[str], database: Path | None) -> None:
    chance = random.Random(2)
    index = FileIndex(database)
    report = await index.update(root)
    print(f"first index   {report.duration_s:8.2f} s   {report.files:,} files, {report.commits:,} commits")
    lags: list[float] = []
    ticking = asyncio.create_task(tick(lags))
    times: list[float] = []
    busy = time.process_time()
    for _ in range(200):
        stems = [Path(name).stem for name in chance.sample(names, 2)]
        question = f"how does {' '.join(chance.sample(WORDS, 3))} work with {' and '.join(stems)}"
        began = time.perf_counter()
        await index.search(question, 20)
        times.append((time.perf_counter() - began) * 1e3)
    busy = (time.process_time() - busy) * 1e3 / len(times)
    times.sort()
    print(
        f"query         {times[100]:8.1f} ms  median, {times[190]:.1f} ms p95, {times[-1]:.1f} ms max, {busy:.1f} ms of CPU on average"
    )
    updates: list[float] = []
    for name in chance.sample(names, 30):
        with (root / name).open("a") as file:
            file.write("\nchanged_value = 1\n")
        began = time.perf_counter()
        await index.update_paths(root, [name])
        updates.append((time.perf_counter() - began) * 1e3)
    updates.sort()
    print(f"update one    {updates[15]:8.1f} ms  median, {updates[-1]:.1f} ms max")
    again = await index.update(root)
    print(f"look again    {again.duration_s * 1e3:8.1f} ms  nothing changed: {not again.changed}")
    ticking.cancel()
    print(f"loop lag      {max(lags) * 1e3:8.1f} ms  max while asked and brought up to date")
    await index.aclose()


async def tick(lags: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        lags.append(time.perf_counter() - began - 0.005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2_500)
    parser.add_argument("--database", action="store_true", help="keep the index in a file")
    parser.add_argument("--made", action="store_true", help="made-up files instead of installed packages")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp())
    try:
        names = prepare(place / "root", given.files, given.made)
        asyncio.run(measure(place / "root", names, place / "index.db" if given.database else None))
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
