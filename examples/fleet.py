"""Three workers review 500 documents, one of them is killed, and you watch live. You need no key: the model is scripted.

You need a PostgreSQL database and agentflow[cli,scale]: DATABASE_URL=postgresql://app@localhost/app python examples/fleet.py
"""

import asyncio
import os
import sys
from pathlib import Path

from agentflow import AgentFlow, ScriptedProvider

COUNT = int(os.environ.get("DOCUMENTS", "500"))
DESK = Path(os.environ.get("REVIEWS", "reviews.txt")).absolute()


async def answer(request: object) -> str:
    await asyncio.sleep(0.1)
    return "It does not say who pays for the horses."


flow = AgentFlow(
    provider=None if "AGENTFLOW_MODEL" in os.environ else ScriptedProvider(answer),
    durable=os.environ.get("DATABASE_URL", "postgresql://localhost/agentflow"),
    record=True,  # so that you can watch a worker from elsewhere
)


@flow.tool
async def file_review(document: str, verdict: str) -> str:
    """File a review."""
    with DESK.open("a") as desk:
        desk.write(f"{document}: {verdict}\n")
    return "filed"


@flow.task
async def review(text: str) -> str:
    """Say in a line what is wrong with this contract:
    {{text}}"""
    ...


@flow.workflow
async def review_document(document: str, text: str) -> str:
    verdict = await review(text)
    await flow.call_tool("file_review", document=document, verdict=verdict)
    return verdict


async def worker() -> asyncio.subprocess.Process:
    """What runs on each machine: the command, which imports the flow above."""
    command = [sys.executable, "-m", "agentflow", "worker", "fleet:flow", "--slots", "10"]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=Path(__file__).parent,
        env={**os.environ, "REVIEWS": str(DESK)},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    await process.stderr.readline()  # it says that it works
    return process


async def main() -> None:
    workers = await asyncio.gather(*[worker() for _ in range(3)])
    async with flow:
        documents = [f"contract-{number}" for number in range(1, COUNT + 1)]
        runs = await asyncio.gather(
            *[
                flow.start(review_document(name, "..."), run_id=name, where="workers", tenant="legal")
                for name in documents
            ]
        )
        print(f"{len(runs)} documents are left to {len(workers)} workers")

        results = [asyncio.create_task(run.result()) for run in runs]
        await asyncio.gather(*results[: COUNT // 5])
        workers[0].kill()
        print("a worker is killed")

        last = documents[-1]
        async for event in flow.watch(last):  # its worker is any of those that are left
            if event["type"] in ("model_started", "tool_started"):
                print(f"{last}: {event['type']} {event.get('name') or ''}".rstrip())

        verdicts = [(await result).value for result in results]
        print(len(verdicts), "verdicts, the last:", verdicts[-1])
        filed = {line.partition(":")[0] for line in DESK.read_text().splitlines()}
        print(len(set(documents) - filed), "documents were lost")

    for process in workers[1:]:
        process.terminate()  # active runs may end, and no new ones begin
    print("the others ended with", [await process.wait() for process in workers[1:]])
    await workers[0].wait()


if __name__ == "__main__":
    import fleet  # the module that the workers import, and not the script __main__

    asyncio.run(fleet.main())
