"""A process that pays from a purse: ``python -m tests.run.purse_child DATABASE PURSE CALLS RUNS [hang]``.

It prints how many of its runs were answered. With ``hang`` its model says "at work" and never answers.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator

from agentflow import AgentFlow, Allowance, Purses
from agentflow.core.data.messages import ModelDelta, ModelRequest
from agentflow.errors import PurseEmpty
from tests.support.metered_model import MeteredModel


class Hanging(MeteredModel):
    """A model that is at work for good."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Never an answer."""
        print("at work", flush=True)
        await asyncio.Event().wait()
        yield ModelDelta("never")


async def main(database: str, purse: str, calls: int, runs: int, *, hangs: bool) -> None:
    """Ask ``runs`` times at once."""
    model = Hanging() if hangs else MeteredModel()
    purses = Purses({"*": Allowance(model_calls=calls, per="1d")})
    async with AgentFlow(provider=model, durable=database, purses=purses) as flow:

        async def one() -> None:
            await flow.ask("Write 3", purse=purse)

        ends = await asyncio.gather(*[one() for _ in range(runs)], return_exceptions=True)
        wrong = [each for each in ends if isinstance(each, BaseException) and not isinstance(each, PurseEmpty)]
        assert not wrong, wrong
        print(model.finished, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), hangs=sys.argv[5:] == ["hang"]))
