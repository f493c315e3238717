"""Reviews a file with tools: reads it, runs a check that you approve first, and returns typed findings. You need no key.

python examples/review_bot.py [FILE]      asks on a terminal; without one it approves only the command that compiles the file
"""

import asyncio
import json
import os
import sys

from pydantic import BaseModel

from agentflow import AgentFlow, ApprovalRequest, Limits, ScriptedProvider
from agentflow.events import ToolStarted


class Finding(BaseModel):
    line: int
    problem: str


class Review(BaseModel):
    """What a reviewer says of a file."""

    compiles: bool
    findings: list[Finding]


FILE = sys.argv[1] if sys.argv[1:] else "reader.py"


def call(name: str, **arguments):
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


SCRIPT = [
    call("system:read_files", file_paths=[FILE]),
    call("system:execute_shell_command", command=f"rm {FILE}"),
    call("system:execute_shell_command", command=f"python -m py_compile {FILE}"),
    json.dumps({"compiles": True, "findings": [{"line": 3, "problem": "reads a stream of any size into memory"}]}),
]


async def approve(request: ApprovalRequest) -> bool:
    """Ask whoever sits at the terminal; what is approved is bound to exactly this command and these files."""
    question = (
        f"may it run {request.text.splitlines()[0]!r}? "  # the whole text says program, directory and digests too
    )
    if sys.stdin.isatty():
        return (await asyncio.to_thread(input, question)).strip().lower() in ("y", "yes")
    answer = "-m py_compile" in request.text
    print(question + ("yes" if answer else "no"))
    return answer


real = "AGENTFLOW_MODEL" in os.environ
flow = AgentFlow(
    provider=None if real else ScriptedProvider(SCRIPT), approve=approve, limits=Limits(usd=0.50, turns=12, wall_s=300)
)


@flow.task(tools=["system:read_files", "system:execute_shell_command"])
async def review(path: str) -> Review:
    """Review the Python file {{path}}: read it, see whether it compiles, and name what is wrong with it.

    A command that is refused is not to be tried again.
    """
    ...


async def main() -> None:
    async with flow, flow.stream(review(FILE)) as run:
        async for event in run.of(ToolStarted):
            print(f"{event.name} {event.arguments}")
        answer = await run.value()
    for finding in answer.findings:
        print(f"{FILE}:{finding.line}: {finding.problem}")
    print("compiles" if answer.compiles else "does not compile")


asyncio.run(main())
