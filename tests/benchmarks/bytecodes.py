"""What a tree executes more than another, in bytecodes: ``python tests/benchmarks/bytecodes.py BEFORE AFTER``.

BEFORE and AFTER are work trees, the figures those of ``figures.py``. Unlike times, counts are the same on a loaded machine, but for
what depends on time itself: the turns of the loop, and the pauses of a run that keeps it. So each figure is printed with the
functions in which the counts differ, one by one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve()
ROUNDS = 10
"""Times that the work of a figure is done while its bytecodes are counted."""
TIMED = "asyncio/", "selectors.py", "run/strand/budget.py"
"""Beginnings of the names of what depends on time, which are left out."""


async def counted(name: str) -> dict[str, float]:
    """The bytecodes of one unit of a figure, by function, in the package that is imported here."""
    from figures import FIGURES

    found: Counter[str] = Counter()

    def entered(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        code = frame.f_code
        file = code.co_filename.rpartition("/agentflow/")[2].rpartition(
            f"python{sys.version_info[0]}.{sys.version_info[1]}/"
        )[2]
        key = f"{file}:{code.co_qualname}"
        frame.f_trace_opcodes, frame.f_trace_lines = True, False

        def stepped(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
            found[key] += event == "opcode"
            return stepped

        return stepped

    figure = FIGURES[name]
    async with figure.open("http://127.0.0.1:9") as (work, _):
        for _ in range(3):
            await work()
        sys.settrace(entered)
        for _ in range(ROUNDS):
            await asyncio.ensure_future(work())
        sys.settrace(None)
    return {key: count / ROUNDS / figure.units for key, count in found.items() if not key.startswith(TIMED)}


def of_tree(tree: Path, name: str) -> dict[str, float]:
    """The same of another tree."""
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{HERE.parent}", "PYTHONHASHSEED": "0"}
    words = [sys.executable, "-P", str(HERE), "--here", name]
    return json.loads(subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def main(arguments: Sequence[str] | None = None) -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--here", metavar="FIGURE", help="count in this process, and print JSON")
    parser.add_argument("trees", type=Path, nargs="*")
    parser.add_argument("--figures", default="call,chain,fan-out")
    options = parser.parse_args(arguments)
    if options.here:
        print(json.dumps(asyncio.run(counted(options.here))))
        return
    for name in options.figures.split(","):
        before, after = [of_tree(tree.resolve(), name) for tree in options.trees]
        print(
            f"{name}: {sum(before.values()):.0f} before, {sum(after.values()) / sum(before.values()):.4f} times that after"
        )
        changes = {key: after.get(key, 0) - before.get(key, 0) for key in before | after}
        for key in sorted(changes, key=lambda key: -abs(changes[key])):
            if abs(changes[key]) >= 1:
                print(f"  {changes[key]:+8.1f}  of {before.get(key, 0):.1f}  {key}")


if __name__ == "__main__":
    main()
