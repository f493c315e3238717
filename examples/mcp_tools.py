"""The tools of an MCP server, called by a program and by a model. You need the extra ``mcp``.

The server is a program that runs in the sandbox: it may read its start directory, and write only the directories that you name. A tool
that does not declare that it only reads waits for your approval. You can use any server: ``npx -y some-server``, or an address.
"""

import asyncio
import sys
import tempfile

from agentflow import AgentFlow, ApprovalRequest, ScriptedProvider
from agentflow.mcp import McpStdio

SERVER = '''
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("notes", log_level="ERROR")
file = Path(sys.argv[1], "notes.txt")

@server.tool()
def add_note(text: str) -> str:
    """Keep a note."""
    with file.open("a") as notes:
        notes.write(f"{text}\\n")
    return "kept"

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_notes() -> list[str]:
    """All notes, the oldest first."""
    return file.read_text().splitlines()

server.run()
'''


def approve(request: ApprovalRequest) -> bool:
    print("asked for:", request.text.splitlines()[0])
    return True


async def main() -> None:
    model = ScriptedProvider(
        [
            {"tool_calls": [{"name": "notes:add_note", "arguments": {"text": "buy milk"}}]},
            "I have noted it.",
        ]
    )
    with tempfile.TemporaryDirectory() as kept:
        notes = McpStdio("notes", [sys.executable, "-c", SERVER, kept], writable=[kept], connect_s=60)
        async with AgentFlow(provider=model, mcp=[notes], approve=approve) as flow:
            print(", ".join(name for name in flow.tools.names() if name.startswith("notes:")))

            await flow.call_tool("notes:add_note", text="water the plants")

            result = await flow.handler.execute_prompt("Note that I have to buy milk.")
            print("model:", result.content)

            print((await flow.call_tool("notes:list_notes"))["result"])


asyncio.run(main())
