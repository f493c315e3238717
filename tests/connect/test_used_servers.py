"""MCP servers that people use, from the registries of npm and PyPI: started as the documentation says, behind the walls of each
sandbox, and over HTTP.

They are downloaded by each start, as they are for a user whose cache is not readable to them. Where a registry cannot be
reached, or a program is missing, the tests skip and say so.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.events.questions import Question
from agentflow.events import ToolProgress, Warning
from agentflow.mcp import McpHttp, McpStdio
from tests.connect.flows import seen
from tests.connect.http_servers import running
from tests.hostile.backends import CONFINING, needed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
START_S = 180
IN_BASE64 = re.compile(r"[A-Za-z0-9+/]{80}")
SOMEBODY = {
    f"GIT_{who}_{what}": said
    for who in ("AUTHOR", "COMMITTER")
    for what, said in (("NAME", "Ada"), ("EMAIL", "ada@example.com"))
}


@dataclass(frozen=True)
class Used:
    """A server: its ``command``, the ``options`` that it is given, and ``calls`` with a part of what each gives.

    ``refused`` is a call that its own rules refuse, with a part of why; ``tools`` are some of those it lists.
    """

    command: list[str]
    tools: set[str]
    calls: list[tuple[str, str]]
    refused: tuple[str, str]
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def _npx(name: str, *arguments: str) -> list[str]:
    return ["npx", "-y", f"@modelcontextprotocol/server-{name}@2026.8.31", *arguments]


def _uvx(name: str, version: str, *arguments: str) -> list[str]:
    return ["uvx", f"mcp-server-{name}@{version}", *arguments]


USED = {
    "filesystem": Used(
        _npx("filesystem", "."),
        {"read_text_file", "write_file", "directory_tree", "read_media_file"},
        [
            ('(s:list_directory (path "."))', "[FILE] a.txt"),
            ('(s:read_text_file (path "a.txt"))', "hello"),
            ('(s:write_file (path "out/b.txt") (content "written"))', "Successfully wrote"),
            ('(s:read_text_file (path "out/b.txt"))', "written"),
            ('(s:read_media_file (path "pixel.png"))', "[image: image/png]"),
        ],
        ('(s:read_text_file (path "/etc/passwd"))', "outside allowed directories"),
        {"writable": ["out"]},
    ),
    "sequential-thinking": Used(
        _npx("sequential-thinking"),
        {"sequentialthinking"},
        [
            (
                f'(s:sequentialthinking (thought "{at}") (thoughtNumber {at}) (totalThoughts 2) (nextThoughtNeeded true))',
                f'"thoughtHistoryLength": {at}',
            )
            for at in (1, 2)
        ],
        ('(s:sequentialthinking (thought "t") (thoughtNumber 0) (totalThoughts 1) (nextThoughtNeeded true))', "thoughtNumber"),
    ),
    "memory": Used(
        _npx("memory"),
        {"create_entities", "read_graph", "search_nodes"},
        [
            ('(s:create_entities (entities (list (dict "name" "Ada" "entityType" "person" "observations" (list "counts")))))', "Ada"),
            ('(s:search_nodes (query "counts"))', "Ada"),
            ("(s:read_graph)", '"person"'),
        ],
        ('(s:add_observations (observations (list (dict "entityName" "Bob" "contents" (list "x")))))', "not found"),
        {"writable": ["out"], "env": {"MEMORY_FILE_PATH": "ROOT/out/memory.jsonl"}},
    ),
    "everything": Used(
        _npx("everything"),
        {"echo", "get-sum", "get-tiny-image", "trigger-long-running-operation"},
        [
            ('(s:echo (message "hi"))', "Echo: hi"),
            ("(s:get-sum (a 1) (b 2))", "is 3"),
            ("(s:get-tiny-image)", "[image: image/png]"),
            ('(s:get-structured-content (location "Chicago"))', '"temperature"'),
            ('(s:get-annotated-message (messageType "error") (includeImage true))', "[image: image/png]"),
            ("(s:get-roots-list)", "file://"),
            ("(s:get-resource-links (count 2))", "demo://resource/dynamic/"),
            ('(s:get-resource-reference (resourceType "Blob") (resourceId 1))', "demo://resource/dynamic/blob/1"),
            ("(s:list_resources)", "demo://resource/static/"),
            ('(s:read_resource (uri "demo://resource/dynamic/text/1"))', "plaintext resource"),
            ('(s:get_prompt (name "simple-prompt"))', "simple prompt"),
            ('(s:get_prompt (name "args-prompt") (arguments (dict "city" "Rome")))', "Rome"),
            ("(s:trigger-elicitation-request)", "Ada"),
            ('(s:trigger-sampling-request (prompt "Say it.") (maxTokens 20))', "A sampled answer."),
        ],
        ('(s:get-resource-reference (resourceType "Text") (resourceId -1))', "resourceId"),
        {"sampling": True},
    ),
    "time": Used(
        _uvx("time", "2026.10.19"),
        {"get_current_time", "convert_time"},
        [('(s:convert_time (source_timezone "Asia/Tokyo") (time "12:00") (target_timezone "Asia/Seoul"))', "+0.0h")],
        ('(s:get_current_time (timezone "Mars/Crater"))', "Invalid timezone"),
    ),
    "fetch": Used(
        _uvx("fetch", "2026.10.24", "--allow-private-ips"),
        {"fetch"},
        [('(s:fetch (url "PAGE"))', "what the page says")],
        ('(s:fetch (url "PAGE/none"))', "404"),
    ),
    "git": Used(
        _uvx("git", "2026.10.19", "--repository", "."),
        {"git_status", "git_add", "git_commit", "git_log"},
        [
            ('(s:git_status (repo_path "."))', "a.txt"),
            ('(s:git_add (repo_path ".") (files (list "a.txt")))', "staged"),
            ('(s:git_commit (repo_path ".") (message "first"))', "committed"),
            ('(s:git_log (repo_path "."))', "Ada"),
        ],
        ('(s:git_status (repo_path "/tmp"))', "outside the allowed repository"),
        {"writable": ["."], "env": SOMEBODY},
    ),
}  # fmt: skip


@cache
def _missing(program: str) -> str | None:
    """Why a server cannot be had by ``program``: it is not installed, or its registry does not answer. None if it can."""
    if shutil.which(program) is None:
        return f"{program} is not installed"
    ask = ["npm", "view", "@modelcontextprotocol/server-everything", "version"]
    if program == "uvx":
        ask = ["uv", "pip", "compile", "--quiet", "--no-deps", "--no-header", "-"]
    try:
        done = subprocess.run(
            ask, input="mcp-server-time", capture_output=True, text=True, timeout=START_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"its registry cannot be asked: {error}"
    return f"its registry does not answer: {done.stderr[-300:]}" if done.returncode else None


def needed_server(name: str) -> Used:
    """A server of :data:`USED`; skips, with the reason, where it cannot be had."""
    used = USED[name]
    if (missing := _missing(used.command[0])) is not None:
        pytest.skip(f"{used.command[0]}: {missing}")
    return used


@pytest.fixture
def root(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    (workspace / "out").mkdir(parents=True)
    (workspace / "a.txt").write_text("hello\n")
    (workspace / "pixel.png").write_bytes(PIXEL)
    subprocess.run(["git", "init", "-q", workspace], check=True)
    return workspace


def described(used: Used, root: Path) -> McpStdio:
    """The server as the page on MCP has it."""
    env = {name: value.replace("ROOT", str(root)) for name, value in used.options.get("env", {}).items()}
    options = {"network": True, "connect_s": START_S, "timeout_s": 30, **used.options, "env": env}
    return McpStdio("s", used.command, **options)


@asynccontextmanager
async def flow_of(root: Path, server: Any, backend: str = "none", **options: Any) -> AsyncIterator[AgentFlow]:
    """A flow with one server, whose questions are answered and whose samples a script gives."""
    model = ScriptedProvider(lambda request: "A sampled answer.")
    given = {"root": root, "provider": model, "mcp": [server], "sandbox": backend, "answer": _answered, **options}
    async with AgentFlow(**given) as flow:
        yield flow


async def _answered(question: Question) -> Any:
    return {"name": "Ada"}


def processes_of(word: str) -> list[psutil.Process]:
    """What this process started, and what that started, whose command has ``word``."""
    every = psutil.Process().children(recursive=True)
    return [each for each in every if each.is_running() and any(word in part for part in _command(each))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def kill(name: str) -> int:
    """Kill the processes of a server, and not its walls; gives how many there were."""
    victims = [each for each in processes_of(f"server-{name}") if _command(each)[:1] != [shutil.which("bwrap")]]
    for each in victims:
        with suppress(psutil.NoSuchProcess):  # its parent took it along
            each.kill()
    return len(victims)


@pytest.mark.parametrize("backend", CONFINING)
@pytest.mark.parametrize("name", USED)
async def test_a_server_that_people_use(name: str, backend: str, root: Path) -> None:
    """Its tools are listed, and those that the protocol lets it list are all offered; they work, an error is the call's, and with
    the flow ends what it started."""
    needed(backend)
    used = needed_server(name)
    page = PlainTextResponse("what the page says")
    async with running(Starlette(routes=[Route("/", lambda request: page)])) as port:
        address = f"http://127.0.0.1:{port}"
        async with flow_of(root, described(used, root), backend) as flow:
            listed = {tool.name.removeprefix("s:") for tool in flow.mcp.tools_of("s")}
            assert used.tools <= listed, listed
            _, events = await seen(flow, "1")
            warned = [event.message for event in events if isinstance(event, Warning)]
            assert all("only as a task" in message for message in warned), warned
            for program, part in used.calls:
                result = (await flow.run(program.replace("PAGE", address))).value
                assert not result.failed and part in result.content, (program, result)
                assert not IN_BASE64.search(result.content), "pictures are parts, and no text"
            program, why = used.refused
            error = ((await flow.run(program.replace("PAGE", address))).value).notes.error
            assert why in error.message and error.reason in ("tool_execution_error", "input_validation_failure"), error
            assert processes_of(f"server-{name}")
        assert not processes_of(f"server-{name}")


@pytest.mark.parametrize("backend", CONFINING)
@pytest.mark.parametrize(
    ("name", "program", "part"),
    [
        ("everything", '(s:echo (message "hi"))', "Echo: hi"),
        ("time", '(s:get_current_time (timezone "Asia/Tokyo"))', "+09:00"),
    ],
)
async def test_a_server_that_was_killed_is_reached_again(
    name: str, program: str, part: str, backend: str, root: Path
) -> None:
    """By the next call, which is repeated, or has failed and says so where the tool may have done something."""
    needed(backend)
    async with flow_of(root, described(needed_server(name), root), backend) as flow:
        assert part in ((await flow.run(program)).value).content
        assert kill(name)
        again = (await flow.run(program)).value
        if again.failed:
            assert again.notes.error.details["code"] == "mcp/connection-lost", again
            again = (await flow.run(program)).value
        assert part in again.content, again


@pytest.mark.parametrize("backend", CONFINING)
async def test_a_call_that_is_cancelled(backend: str, root: Path) -> None:
    """It ends at once, its server is told and goes on: what it works for is progress, and the next call is answered by the same
    process."""
    needed(backend)
    async with flow_of(root, described(needed_server("everything"), root), backend) as flow:
        before = {each.pid for each in processes_of("server-everything")}
        await left(flow)
        assert "is 3" in ((await flow.run("(s:get-sum (a 1) (b 2))")).value).content
        assert {each.pid for each in processes_of("server-everything")} == before


async def left(flow: AgentFlow) -> None:
    """Begin a call that takes ten minutes, and leave it once it has said how far it is."""
    async with flow.stream("(s:trigger-long-running-operation (duration 600) (steps 1200))") as run:
        async for event in run:
            if isinstance(event, ToolProgress):
                break


async def test_a_server_over_http(root: Path) -> None:
    """The same server at an address: tools, a picture, progress, a cancelled call; and when it was killed and is there again, its
    forgotten session is renewed by the next call, which is repeated."""
    needed_server("everything")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with AsyncExitStack() as flows:
        async with served(port):
            server = McpHttp("s", f"http://127.0.0.1:{port}/mcp", timeout_s=30, sampling=True)
            flow = await flows.enter_async_context(flow_of(root, server))
            for program, part in USED["everything"].calls:
                if "roots" in program:
                    continue  # only programs are told them
                result = (await flow.run(program)).value
                assert not result.failed and part in result.content, (program, result)
            _, events = await seen(flow, "(s:trigger-long-running-operation (duration 1) (steps 2))")
            assert [event.progress for event in events if isinstance(event, ToolProgress)][:1] == [1]
            await left(flow)
            assert "Echo: hi" in ((await flow.run('(s:echo (message "hi"))')).value).content
        down = (await flow.run('(s:echo (message "hi"))')).value
        assert down.failed and down.notes.error.reason == "connection_error", down
        async with served(port, **DOWNLOADED):
            assert "Echo: again" in ((await flow.run('(s:echo (message "again"))')).value).content
        async with served(port, **DOWNLOADED):
            assert "Echo: at once" in ((await flow.run('(s:echo (message "at once"))')).value).content


DOWNLOADED = {"npm_config_offline": "true"}
"""What npm is told about a server that it has started before: it would ask its registry anew, and wait for minutes."""


@asynccontextmanager
async def served(port: int, **env: str) -> AsyncIterator[None]:
    """The server at a port, once it answers; after the block none of its processes runs, and nobody answers there."""
    process = await asyncio.create_subprocess_exec(
        *_npx("everything", "streamableHttp"),
        env={**os.environ, "PORT": str(port), **env},
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(START_S):
            while not await _answers(port):
                assert process.returncode is None, "the server ended"
                await asyncio.sleep(0.05)
        yield
    finally:
        # as a group: while npm starts, its command is just "npm", and it has no child yet
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        async with asyncio.timeout(START_S):
            while await _answers(port):  # a killed process is connected to until the kernel has closed its sockets
                await asyncio.sleep(0.01)


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
