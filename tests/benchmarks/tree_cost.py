"""What the terminal's tree costs over 1,000 branches at work: ``python tests/benchmarks/tree_cost.py``.

Processor time. Figure to meet: at most 20 ms in a second in which nothing happens but drawing. What an event costs is told
beside it.
"""

from __future__ import annotations

import asyncio
import io
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console

from agentflow.cli.shared.progress import RunTree
from agentflow.cli.shared.terminal import LiveRows
from tests.cli.test_tree import branches, end

BRANCHES, SECONDS, FIGURE_MS = 1_000, 5.0, 20.0


async def main() -> None:
    tree = RunTree()
    began = time.process_time()
    scopes = branches(tree, BRANCHES)
    for each in scopes[: BRANCHES // 2]:
        end(each)
    events = BRANCHES * 3 + BRANCHES // 2 * 3
    print(f"an event                      {(time.process_time() - began) / events * 1e6:8.2f} us, building it included")
    live = LiveRows(Console(file=io.StringIO(), width=100, height=40, force_terminal=True), tree.rows)
    live.start()
    await asyncio.sleep(0.5)
    began = time.process_time()
    await asyncio.sleep(SECONDS)
    taken = (time.process_time() - began) / SECONDS * 1e3
    live.stop()
    print(
        f"a second of drawing           {taken:8.2f} ms  <= {FIGURE_MS:g} ms  {'met' if taken <= FIGURE_MS else 'MISSED'}"
    )


if __name__ == "__main__":
    asyncio.run(main())
