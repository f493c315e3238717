"""What calls from Python cost beside the same calls of programs: ``python -m tests.benchmarks.python_cost``.

Processor time, the median of several rounds, each way in turn. A program's call gives a result, ``value-of`` of it what
``flow.call_tool`` gives; both are shown. Goals: a tool call from Python at most 1.3 times one of a program,
``flow.ask`` at most 1.2 times ``flow.run`` of the program of one task, and no module more in ``import agentflow``.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys

from agentflow import AgentFlow, ScriptedProvider
from tests.benchmarks.timing import medians

CALLS = 2_000
ASKS = 150
ROUNDS = 9
PROGRAM = "(define (count n) (if (= n 0) 0 (begin {} (count (- n 1))))) (count times)"
ONE_TASK = '(defatom ask (params (prompt string)) (instructions "{{prompt}}")) (value-of (ask (prompt "Why?")))'


async def measure() -> None:
    """Print the ratios."""
    async with AgentFlow(provider=ScriptedProvider(lambda request: "because")) as flow:

        @flow.tool
        async def nothing() -> int:
            """Nothing."""
            return 0

        @flow.workflow
        async def count(times: int) -> int:
            """Call the tool so many times."""
            for _ in range(times):
                await flow.call_tool("nothing")
            return 0

        async def programs() -> None:
            for _ in range(ASKS):
                await flow.run(ONE_TASK)

        async def asks() -> None:
            for _ in range(ASKS):
                await flow.ask("Why?")

        tools = await medians(
            {
                "program": lambda: flow.run(PROGRAM.format("(nothing)"), bindings={"times": CALLS}),
                "value-of": lambda: flow.run(PROGRAM.format("(value-of (nothing))"), bindings={"times": CALLS}),
                "python": lambda: count(CALLS),
            },
            ROUNDS,
        )
        asked = await medians({"program": programs, "python": asks}, ROUNDS)
    micro = {name: 1e6 * seconds / CALLS for name, seconds in tools.items()}
    print(f"a tool call: program {micro['program']:.1f} us, flow.call_tool {micro['python']:.1f} us,", end=" ")
    print(f"ratio {tools['python'] / tools['program']:.2f} (at most 1.3);", end=" ")
    print(f"with value-of {micro['value-of']:.1f} us, ratio {tools['python'] / tools['value-of']:.2f}")
    micro = {name: 1e6 * seconds / ASKS for name, seconds in asked.items()}
    print(f"one task: flow.run {micro['program']:.0f} us, flow.ask {micro['python']:.0f} us,", end=" ")
    print(f"ratio {asked['python'] / asked['program']:.2f} (at most 1.2)")


def imported() -> None:
    """Print which modules of this package ``import agentflow`` loads."""
    code = "import sys, agentflow; print(*sorted(name for name in sys.modules if name.startswith('agentflow')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(f"import agentflow loads: {done.stdout.strip()}")


if __name__ == "__main__":
    asyncio.run(measure())
    imported()
