"""Slips that a type checker finds: each line marked so is an error, and no other line is."""

from __future__ import annotations

import agentflow
from agentflow import AgentFlow

flow = AgentFlow()


@flow.task
async def review(path: str, strict: bool = False) -> int:
    """Review {{path}} ({{strict}})."""
    raise NotImplementedError


@flow.workflow
async def audit(paths: list[str]) -> str:
    """Audit."""
    await review(1)  # slip
    await review("a", strikt=True)  # slip
    await review("a").upper()  # slip
    await flow.map(review, [1, 2])  # slip
    text: str = await review("a")  # slip
    await flow.step(len, 3)  # slip
    return text


@flow.tool
def measure(text: str) -> int:
    """Measure."""
    return len(text)


@flow.tool(approval=True, timeout_s=5)
def send(to: str) -> bool:
    """Send."""
    return bool(to)


class Support:
    @agentflow.task
    async def reply(self, question: str) -> int:
        """{{question}}"""
        raise NotImplementedError


async def without_a_flow(support: Support) -> None:
    await support.reply(3)  # slip
    await support.reply("Why?").upper()  # slip
    await Support.reply("Why?")  # slip
    agentflow.task(instructions="Be brief.")  # slip
    support.reply.with_options(temperature=0)  # slip
    agentflow.task(system=3)  # slip


async def main() -> None:
    send(3)  # slip
    flow.tool(needs_approval=True)  # slip
    flow.task(instructions="Be brief.")  # slip
    flow.ask("Why?", instructions="Be brief.")  # slip
    flow.ask("Why?", name="why")  # slip
    review.with_options(temperature=0)  # slip
    await flow.run(audit("a.py"))  # slip
    await flow.start(audit(["a.py"]), priority="high")  # slip
    value: int = (await flow.run(audit(["a.py"]))).value  # slip
    measure(value)  # slip
    await flow.run(review("a"), limit=3)  # slip
