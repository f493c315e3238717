"""What following values costs: ``python tests/benchmarks/provenance_cost.py``.

Processor time of programs in a flow with a policy, over bare values and with their data in boxes, as a ratio of the same program without one.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from agentflow import AgentFlow, Labelled, Limits, Provenance, ScriptedProvider, Sink

ROUNDS = 5
PROGRAMS: dict[str, str] = {
    "fib 18": "(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (fib n)",
    "loop of 100,000": "(let go ((i 0)) (if (< i (* n 5555)) (go (+ i 1)) i))",
    "map and filter of 20,000": "(length (filter (lambda (x) (> x 5)) (map (lambda (x) (* x 2)) (range 20000))))",
    "building of 5,000 texts": '(reduce (lambda (s i) (string-append "a" (number->string i))) "" (range 5000))',
    "updates of 5,000 dicts": "(reduce (lambda (d i) (put d (modulo i 20) i)) (dict) (range 5000))",
    "1,000 tools": '(for-each (lambda (i) (echo (text "x"))) (range 1000))',
}


async def seconds(flow: AgentFlow, program: str, bindings: dict[str, Any]) -> float:
    """Processor time of one run."""
    start = time.process_time()
    await flow.run(program, bindings=bindings)
    return time.process_time() - start


def flow_with(policy: Provenance | None) -> AgentFlow:
    """A flow with a tool that does nothing."""
    flow = AgentFlow(
        provider=ScriptedProvider(), provenance=policy, limits=Limits(steps=100_000_000, effects=1_000_000)
    )

    @flow.tool(source="web")
    def echo(text: str) -> str:
        """Nothing."""
        return text

    @flow.tool
    async def answer(text: str) -> str:
        """Nothing, on the loop."""
        return text

    return flow


async def main() -> None:
    """Print the table."""
    async with flow_with(None) as off, flow_with(Provenance(rules=[Sink("send", "to")])) as on:
        print(f"{'':28}{'off, ms':>10}{'bare':>8}{'boxes':>8}")
        for name, program in PROGRAMS.items():
            text = program.replace("echo", "answer")
            times: dict[str, list[float]] = {"off": [], "bare": [], "boxes": []}
            for _ in range(ROUNDS):
                times["off"].append(await seconds(off, text, {"n": 18}))
                times["bare"].append(await seconds(on, text, {"n": 18}))
                times["boxes"].append(await seconds(on, text, {"n": Labelled(18, "web")}))
            middle = {key: statistics.median(each) for key, each in times.items()}
            print(
                f"{name:28}{1000 * middle['off']:10.1f}{middle['bare'] / middle['off']:8.2f}{middle['boxes'] / middle['off']:8.2f}"
            )


if __name__ == "__main__":
    asyncio.run(main())
