"""Skills: folders with instructions, which a model reads when it needs them. Any folder in the format of Agent Skills works.

The model sees names and descriptions, and reads the rest with one tool. A script of a skill runs only as a command: under the
command policy, with your approval, in the sandbox.
"""

import asyncio
import tempfile
from pathlib import Path

from agentflow import AgentFlow, ApprovalRequest, ScriptedProvider

SKILL = """---
name: release-notes
description: Writes release notes in the style of the house. Use it for any change log.
---
Count the changes with `python skills/release-notes/count.py`, then write one line for each,
in the order of references/ORDER.md.
"""
FILES = {
    "SKILL.md": SKILL,
    "references/ORDER.md": "Fixes come last.",
    "count.py": "print('2 changes')\n",
}


def approve(request: ApprovalRequest) -> bool:
    print("asked for:", request.text.splitlines()[0].partition(" in ")[0])
    return True


def calls(name: str, /, **arguments: str) -> dict[str, object]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def write(folder: Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def main() -> None:
    model = ScriptedProvider(
        [
            calls("read_skill", name="release-notes"),
            calls("read_skill", name="release-notes", file="references/ORDER.md"),
            calls("system:execute_shell_command", command="python skills/release-notes/count.py"),
            "2 changes: skills, and a fix.",
        ]
    )
    with tempfile.TemporaryDirectory() as root:
        write(Path(root, "skills", "release-notes"))
        async with AgentFlow(provider=model, root=root, approve=approve) as flow:
            answer = await flow.ask(
                "Write the release notes.",
                skills=[Path(root, "skills")],
                tools=["system:execute_shell_command"],
            )
            print("model:", answer)
    print("\nThe end of the system prompt:\n" + model.requests[0].system)
    print("\nThe instructions that it read:")
    print(model.requests[1].messages[-1].parts[0].text)


if __name__ == "__main__":
    asyncio.run(main())
