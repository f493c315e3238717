"""Reads every file of a directory, asks one typed question about each in parallel, and adds up the answers. You need no key.

python examples/map_reduce.py [DIRECTORY]      AGENTFLOW_MODEL=... for a real model
"""

import asyncio
import json
import os
import sys
from typing import Literal

from pydantic import BaseModel

from agentflow import AgentFlow, Limits, ScriptedProvider


class Summary(BaseModel):
    """What one file is about."""

    purpose: str
    kind: Literal["code", "prose", "data"]
    risks: list[str] = []


class Overview(BaseModel):
    """What all of them are about together."""

    headline: str
    most_urgent: str


def model(request):  # a stand-in that answers by the question
    prompt = request.messages[-1].text
    if prompt.startswith("Sum up"):
        summaries = json.loads(prompt.splitlines()[1])
        risks = [risk for summary in summaries for risk in summary["risks"]]
        return json.dumps({"headline": f"{len(summaries)} files", "most_urgent": risks[0] if risks else "nothing"})
    is_code = "def " in prompt
    risks = ["no size limit"] if "stream.read()" in prompt else []
    return json.dumps(
        {"purpose": "reads" if is_code else "tells", "kind": "code" if is_code else "prose", "risks": risks}
    )


real = "AGENTFLOW_MODEL" in os.environ
flow = AgentFlow(
    provider=None if real else ScriptedProvider(model),
    root=sys.argv[1] if sys.argv[1:] else ".",
    limits=Limits(usd=0.50, wall_s=300),
)


@flow.task
async def summarise(path: str, text: str) -> Summary:
    """What is the file {{path}} for, and what in it is risky?

    {{text}}
    """
    ...


@flow.task
async def sum_up(summaries: list[Summary]) -> Overview:
    """Sum up, and name what is the most urgent of all:
    {{summaries}}
    """
    ...


async def summary_of(path: str) -> Summary:
    return await summarise(path, await flow.call_tool("system:read_files", file_paths=[path]))


@flow.workflow
async def overview() -> tuple[dict[str, Summary], Overview]:
    names = await flow.call_tool("system:list_directory", directory_path=".")
    paths = sorted(name for name in names if name.endswith((".py", ".md")))
    summaries = await flow.map(summary_of, paths, limit=8)  # a branch each; the first failure cancels the others
    return dict(zip(paths, summaries, strict=True)), await sum_up(summaries)


async def main() -> None:
    async with flow:
        result = await flow.run(overview())
        by_path, total = result.value
        for path, summary in by_path.items():
            print(f"{path:12} {summary.kind:6} {summary.purpose} {summary.risks or ''}")
        print(f"{total.headline}; most urgent: {total.most_urgent}; {result.usage.requests} model calls")


asyncio.run(main())
