"""A model writes a workflow, which is checked, run, saved as a file, and used again without the model. You need no key.

The model's program may call only the tools that you allow, within the limits of the run.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.tasks.workflows import Workflow

PRICES = {"apples": 2.0, "bread": 3.5, "cheese": 6.0}


async def price(item: str) -> float:
    """The price of an item, in euros.

    Args:
        item: One of apples, bread, cheese.
    """
    return PRICES[item]


GOAL = """What does a shopping list cost? `basket` is a list of lists, each an item and how many of it are bought.
Give the sum of price times number over the whole list."""

WRITTEN = """
```lisp
(define (cost entry)
  (* (value-of (price (item (first entry)))) (nth entry 1)))
(apply + (pmap cost basket))
```
"""


real = "AGENTFLOW_MODEL" in os.environ
limits = Limits(usd=0.50, wall_s=120)


async def first_day(directory: str) -> None:
    """The model is asked for a program. One that is wrong goes back to it, with what is wrong."""
    model = None if real else ScriptedProvider([WRITTEN])
    async with AgentFlow(provider=model, tools=[price], workflows=directory, limits=limits) as flow:
        basket = [["apples", 3], ["bread", 1]]
        solve = '(solve goal (allow "price") (max-rounds 3) (inputs (dict "basket" basket)))'
        solved = (await flow.run(solve, bindings={"goal": GOAL, "basket": basket})).value
        if solved.failed:
            sys.exit(f"no program came of it: {solved.content}")
        print("solved:", solved.parsed_content)
        params = {"basket": {"type": "array", "description": "items and how many of each"}}
        await flow.workflows.save(Workflow.from_result(solved, "basket-cost", params=params))


async def every_other_day(directory: str) -> None:
    """The workflow is called by name, and no model is asked. It may still call ``price`` and nothing else."""
    model = None if real else ScriptedProvider([])
    async with AgentFlow(provider=model, tools=[price], workflows=directory, limits=limits) as flow:
        call = "(value-of (call-workflow basket-cost (basket basket)))"
        result = await flow.run(call, bindings={"basket": [["cheese", 2], ["bread", 2]]})
        print("again:", result.value, "with", result.usage.requests, "model calls")


with tempfile.TemporaryDirectory() as directory:
    asyncio.run(first_day(directory))
    print(Path(directory, "basket-cost.sexp").read_text())
    asyncio.run(every_other_day(directory))
