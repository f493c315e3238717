"""Results that other runs use again, and figures from the database of runs. You need no key: the model is scripted.

Ten concurrent equal calls make one request, and a run tomorrow makes none.
"""

import asyncio
import os
import sqlite3
import tempfile
from pathlib import Path

import agentflow
from agentflow import AgentFlow, ScriptedProvider


@agentflow.task(reuse="7d")
async def classify(mail: str) -> str:
    """Which folder does this go to? {{mail}}"""
    ...


@agentflow.workflow
async def classify_all(mails: list[str]) -> list[str]:
    return await asyncio.gather(*[classify(mail) for mail in mails])


MAILS = ["the invoice of May"] * 10

real = "AGENTFLOW_MODEL" in os.environ  # then that model answers


async def main(directory: Path) -> None:
    model = ScriptedProvider(lambda request: "bills")
    database = directory / "runs.db"
    for day in ("monday", "tuesday"):  # two lives of the program
        async with AgentFlow(
            provider=None if real else model, durable=f"sqlite:///{database}", tasks=[classify_all]
        ) as flow:
            handle = await flow.start(classify_all(MAILS), run_id=day)
            result = await handle.result()
            requests = result.usage.requests, handle.saved.requests
            print(f"{day}: {len(result.value)} answers, requests made and saved: {requests}")

    async with AgentFlow(provider=model, durable=f"sqlite:///{database}") as flow:
        print(sorted(f"{run.run_id} {run.status}" for run in await flow.runs()))
    with sqlite3.connect(database) as db:  # or: agentflow runs show monday --db sqlite:///runs.db
        for row in db.execute("select run, count(*) from af_effect where kind = 'task' group by run order by run"):
            print(*row)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
