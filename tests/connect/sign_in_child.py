"""One process of an application whose users sign in: ``start`` begins a run and waits to be killed, ``end`` takes the callback, ``refresh``
calls while its token has to be renewed. Its arguments are the role, the directory and the address of the MCP server."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from agentflow import AgentFlow
from agentflow.mcp import FileTokens, McpHttp, SignIn


async def main() -> None:
    """Play the role."""
    role, directory, url, parameters = (*sys.argv[1:4], json.loads(sys.argv[4]))
    root = Path(directory)
    (root / "workspace").mkdir(exist_ok=True)
    sign_in = SignIn(
        user=lambda ctx: "ada",
        redirect_uri="http://127.0.0.1:8000/callback",
        tokens=FileTokens(root / "tokens"),
    )
    headers = {"Authorization": "Bearer service-token-4f1c"}
    server = McpHttp("sdk", url, headers=headers, credentials=sign_in)
    database = f"sqlite:///{root / 'runs.db'}"
    async with AgentFlow(
        model="offline", root=root / "workspace", mcp=[server], durable=database, sandbox="none"
    ) as flow:
        if role == "start":
            run = await flow.start('(value-of (sdk:shout (text "hi")))', run_id="r")
            assert await run.wait() == "waiting"
            print((await flow.questions("r"))[0].question.splitlines()[0], flush=True)
            await asyncio.sleep(3600)
        elif role == "end":
            assert await flow.mcp.signed_in(parameters, user="ada")
            print(json.dumps((await (await flow.resume("r")).result()).value), flush=True)
        else:
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            calls = [flow.run('(value-of (sdk:shout (text "hi")))') for _ in range(10)]
            print(json.dumps([each.value for each in await asyncio.gather(*calls)]), flush=True)


asyncio.run(main())
