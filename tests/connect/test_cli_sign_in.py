"""``agentflow mcp sign-in``: a person signs in to a server in the browser, and the other commands use the tokens."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import sys
from pathlib import Path

import httpx2
import pytest

from agentflow import AgentFlow
from agentflow.mcp import FileTokens, McpHttp, SignIn
from tests.support.children import HANG_S
from tests.support.oauth_server import StrictAuthorizationServer, strict_servers

pytestmark = pytest.mark.slow
BROWSER = """
import sys, urllib.request
headers = {"x-user": "somebody at the server"} | ({"x-refuse": "1"} if %r else {})
urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers)).read()
"""
SHOUT = '(value-of (sdk:shout (text "hi")))'


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


class Shell:
    """The command in one home directory, with a browser in which somebody agrees, or ``refuses``."""

    def __init__(self, home: Path, *, refuses: bool = False) -> None:
        self.home = home
        script = home / "browser.py"
        script.write_text(BROWSER % refuses)
        (home / "work").mkdir()
        browser = f"{sys.executable} {script} %s"
        self._environment = {**os.environ, "XDG_STATE_HOME": str(home / "state"), "BROWSER": browser, "COLUMNS": "400"}

    async def __call__(self, *words: str) -> tuple[int, str]:
        """The exit code of a command, and all that it printed."""
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "agentflow", *words],
            cwd=self.home / "work",
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(HANG_S):
            out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()


async def test_a_person_signs_in_and_the_other_commands_are_signed_in(tmp_path: Path) -> None:
    """Before, the tools cannot be listed, and the error names the command. The tokens are private files, which a flow of Python finds
    too; ``sign-out`` deletes them. The strict servers have no fault to note."""
    shell, port = Shell(tmp_path), str(free_port())
    async with strict_servers() as (authority, server):
        url = f"{server.url}/mcp"
        named = ("--mcp", f"sdk={url}")
        code, said = await shell("mcp", "list", *named)
        assert code == 1 and f"agentflow mcp sign-in {url}" in said
        code, said = await shell("mcp", "sign-in", url, "--port", port)
        assert code == 0 and f"you are signed in to {url}" in said, said
        code, said = await shell("mcp", "list", *named)
        assert code == 0 and "sdk:shout" in said, said
        code, said = await shell("run", *named, "--approve", "always", "-e", SHOUT)
        assert code == 0 and '"HI"' in said, said
        config = tmp_path / "work" / "servers.json"
        config.write_text(json.dumps({"mcpServers": {"sdk": {"url": url}}}))
        filed = ("--mcp-config", str(config))
        assert (await shell("mcp", "sign-in", "sdk", *filed, "--port", port))[1].startswith("you are signed in")
        code, said = await shell("run", *filed, "--approve", "always", "-e", SHOUT)
        assert code == 0 and '"HI"' in said, said
        directory = tmp_path / "state" / "agentflow" / "tokens"
        assert {stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()} == {0o600}
        sign_in = SignIn(
            user=lambda ctx: "local",
            redirect_uri="https://app.example/back",
            tokens=FileTokens(directory),
            lists_as="local",
        )
        mine = McpHttp("sdk", url, credentials=sign_in, approve="none")
        async with AgentFlow(model="offline", root=tmp_path / "work", mcp=[mine], settings=None) as flow:
            assert (await flow.run(SHOUT)).value == {"result": "HI"}
        assert (await shell("mcp", "sign-out", url))[0] == 0
        code, said = await shell("mcp", "list", *filed)
        assert code == 1 and "sign-in" in said
    assert authority.faults == [] and set(server.seen) == {"somebody at the server"}


async def test_a_refusal_and_strangers_at_the_port(tmp_path: Path) -> None:
    """Requests of others are answered and ignored; one who refuses in the browser is not signed in. A port in use is an error."""
    shell, port = Shell(tmp_path, refuses=True), free_port()
    async with strict_servers(StrictAuthorizationServer()) as (authority, server):
        url = f"{server.url}/mcp"
        signing = asyncio.create_task(shell("mcp", "sign-in", url, "--port", str(port), "--no-browser"))
        async with httpx2.AsyncClient() as client:
            while True:
                try:
                    answer = await client.get(f"http://127.0.0.1:{port}/callback?state=wrong&code=x")
                    break
                except httpx2.ConnectError:
                    await asyncio.sleep(0.02)
            assert answer.status_code == 200
            assert (await client.get(f"http://127.0.0.1:{port}/favicon.ico")).status_code == 404
        code, said = await shell("mcp", "sign-in", url, "--port", str(port))
        assert code == 2 and "--port" in said
        assert not signing.done()
        signing.cancel()
        code, said = await shell("mcp", "sign-in", url, "--port", str(free_port()))
        assert code == 1 and "it was refused" in said, said
    assert authority.faults == []
