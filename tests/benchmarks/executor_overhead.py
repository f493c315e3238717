"""What walls cost: commands in each sandbox against the bare process, a confined read against a plain one.

Run with ``python tests/benchmarks/executor_overhead.py``. Every figure has its baseline from the same run; the rounds
of what is compared take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from agentflow.executors.command_executor import CommandExecutor
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.sandbox.selection import backends

Action = Callable[[], Awaitable[object]]


async def compare(actions: dict[str, Action], rounds: int, repeat: int = 1) -> dict[str, tuple[float, float]]:
    """The seconds of one call of each action: the median, and the fastest, which a busy machine disturbs least."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        await action()
    for _ in range(rounds):
        for name, action in actions.items():
            began = time.perf_counter()
            for _ in range(repeat):
                await action()
            taken[name].append((time.perf_counter() - began) / repeat)
    return {name: (statistics.median(times), min(times)) for name, times in taken.items()}


async def commands(root: str, rounds: int) -> None:
    async def bare() -> None:
        process = await asyncio.create_subprocess_exec(
            "/bin/true",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await process.communicate()

    actions: dict[str, Action] = {"bare process": bare}
    executors: list[CommandExecutor] = []
    for name, make in backends().items():
        if make().missing() is None:
            executor = CommandExecutor(root, sandbox=name)
            executors.append(executor)
            actions[name] = lambda executor=executor: executor.execute_command_safely("true")
    found = await compare(actions, rounds)
    base = found["bare process"]
    for name, seconds in found.items():
        median, least = ((now - then) * 1e3 for now, then in zip(seconds, base, strict=True))
        print(
            f"command  {name:14} {seconds[0] * 1e3:7.2f} ms   overhead: median {median:6.2f} ms, least {least:6.2f} ms"
        )
    for executor in executors:
        await executor.aclose()


async def reads(root: str, rounds: int) -> None:
    path = Path(root) / "four-kilobytes.txt"
    path.write_text("x" * 4_096)

    def plain() -> str:
        with open(path, "rb") as file:
            return file.read().decode()

    async with FileAccessManager(root) as files, FileAccessManager(root, kernel=False) as walking:
        actions: dict[str, Action] = {
            "plain threaded": lambda: asyncio.to_thread(plain),
            "confined": lambda: files.read("four-kilobytes.txt"),
            "confined, walk": lambda: walking.read("four-kilobytes.txt"),
        }
        found = await compare(actions, rounds, 100)
    base = found["plain threaded"]
    for name, seconds in found.items():
        median, least = (now / then for now, then in zip(seconds, base, strict=True))
        print(f"4 KB read {name:15} {seconds[0] * 1e6:7.1f} us   ratio: median {median:5.2f}, least {least:5.2f}")


async def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.TemporaryDirectory() as root:
        await commands(root, rounds)
        await reads(root, rounds)


if __name__ == "__main__":
    asyncio.run(main())
