"""What agentflow itself costs per effect and per branch, through a whole flow, beside one asyncio task per step.

    python tests/benchmarks/flow_overhead.py

Medians of processor time, of interleaved rounds in one process; events on, nobody listening. Figures to meet: a chain of 100 trivial async
tools at most 15 us each, a fan-out of 100 at most 20 us a branch.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow import AgentFlow
from tests.benchmarks.timing import Work, medians

N = 100
ROUNDS = 60


async def step(n: int) -> int:
    """Give n back."""
    return n


async def baseline() -> None:
    for n in range(N):
        await asyncio.create_task(step(n))


async def baseline_fan_out() -> None:
    async with asyncio.TaskGroup() as group:
        for n in range(N):
            group.create_task(step(n))


async def main() -> None:
    async with AgentFlow(tools=[step]) as flow:
        chain = flow.compile("(loop n (step (n 1)))", bindings={"n": N})
        host = flow.compile("(loop n (f 1))", bindings={"n": N, "f": step})
        fan = flow.compile("(pmap (lambda (x) x) xs)", bindings={"xs": []})
        fan_tools = flow.compile("(pmap (lambda (x) (step (n x))) xs)", bindings={"xs": []})
        xs = list(range(N))
        cases: dict[str, Work] = {
            "asyncio task a step": baseline,
            "asyncio task a branch": baseline_fan_out,
            "chain of tools": lambda: flow.run(chain, bindings={"n": N}),
            "chain of host calls": lambda: flow.run(host, bindings={"n": N, "f": step}),
            "fan-out": lambda: flow.run(fan, bindings={"xs": xs}),
            "fan-out, a tool each": lambda: flow.run(fan_tools, bindings={"xs": xs}),
        }
        taken = await medians(cases, ROUNDS)
    base = taken["asyncio task a step"]
    for name, seconds in taken.items():
        print(f"{name:<24} {seconds / N * 1e6:7.2f} us   {seconds / base:5.2f} x an asyncio task a step")


asyncio.run(main())
