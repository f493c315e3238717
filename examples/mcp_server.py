"""Your program as a tool for MCP clients: editors, desktop assistants, other agents. You need the extra ``mcp``.

    agentflow mcp serve greet.sexp        # the command of the server in a client's configuration

Here the client is the MCP SDK's own, which starts that command and calls the tool. The same tools are at ``/mcp`` of
``agentflow serve``.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult

GREET = """(string-append "Hello, " (or message (ask-human "Whom?" {"type" "string"})) "!")"""


async def answer(context, question):  # a client shows its user a form; this one answers itself
    print("asked:", question.message)
    return ElicitResult(action="accept", content={"answer": "Grace"})


async def main(directory: str) -> None:
    command = ["-m", "agentflow", "mcp", "serve", "greet.sexp", "--model", "offline", "--no-record"]
    server = StdioServerParameters(command=sys.executable, args=command, cwd=directory)
    async with Client(server, elicitation_callback=answer) as client:
        print("tools:", ", ".join(tool.name for tool in (await client.list_tools()).tools))
        for message in ("Ada", ""):
            result = await client.call_tool("greet", {"message": message})
            print("said:", result.content[0].text)


with tempfile.TemporaryDirectory() as directory:
    Path(directory, "greet.sexp").write_text(GREET)
    asyncio.run(main(directory))
