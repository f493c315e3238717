"""What a tool costs a question: ``python tests/benchmarks/tools_cost.py``.

CPU of ``flow.ask`` over a scripted model without tools, with a tool that stays, and with a new closure at each call; interleaved,
medians, and the ratio to the first.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow import AgentFlow, ScriptedProvider
from tests.benchmarks.timing import medians

ROUNDS, ASKS = 9, 200


def account(user: str) -> Any:
    """A tool of one user."""

    async def balance(currency: str = "EUR") -> str:
        """The balance of this user, in ``currency``."""
        return f"{user} {currency}"

    return balance


async def main() -> None:
    """Print the figures."""
    model = ScriptedProvider(
        lambda request: model.requests.clear() or "yes"
    )  # what it keeps would be searched for rubbish
    async with AgentFlow(provider=model) as flow:
        stays = account("anna")

        async def bare() -> None:
            await flow.ask("How much?")

        async def kept() -> None:
            await flow.ask("How much?", tools=[stays])

        async def fresh() -> None:
            await flow.ask("How much?", tools=[account("anna")])

        works = {"no tool": bare, "one that stays": kept, "a new closure": fresh}
        seconds = await medians(works, ROUNDS, ASKS)
    for name, each in seconds.items():
        print(f"{name:16} {each * 1e6:8.1f} us  {each / seconds['no tool']:5.2f}")


if __name__ == "__main__":
    asyncio.run(main())
