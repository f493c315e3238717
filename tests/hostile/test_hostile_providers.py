"""Attacks by model servers, and cancellation in the middle of everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from tests.hostile.arena import SECRET, Arena

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
PROGRAM = '(progn (defatom t (params (x)) (instructions "{{x}}")) (value-of (t (x "hello"))))'


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """A server that answers every request with ``answer``; its address. Connections end with it."""
    live: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        live.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
                )
                await reader.readexactly(length)
                await answer(head, writer)
        finally:
            live.discard(task)
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for task in list(live):
            task.cancel()
        await asyncio.gather(*live, return_exceptions=True)


def reply(status: str, body: bytes | str, kind: str = "application/json", headers: str = "") -> Answer:
    data = body if isinstance(body, bytes) else body.encode()

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n{headers}connection: close\r\n\r\n".encode()
        )
        writer.write(data)
        await writer.drain()

    return answer


def streaming(*events: bytes, then: bytes = b"", times: int = 1) -> Answer:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for _ in range(times):
            for event in events:
                writer.write(event)
            await writer.drain()
        writer.write(then)
        await writer.drain()

    return answer


def chat(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', 'created': 1, 'model': 'm', 'choices': [choice]})}\n\n".encode()


async def hang(head: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def reset(head: bytes, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def header_flood(head: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(200_000):
        writer.write(f"x-{number}: {'y' * 100}\r\n".encode())
        await writer.drain()


ERROR = json.dumps(
    {"error": {"message": f"Incorrect API key provided: {SECRET}", "type": "auth", "code": "invalid_api_key"}}
)

SERVERS: dict[str, Answer] = {
    "key_in_401": reply("401 Unauthorized", ERROR),
    "key_in_400": reply("400 Bad Request", ERROR),
    "key_in_500_page": reply("500 Oops", f"<html>{SECRET}</html>", "text/html"),
    "key_in_stream_error": streaming(b"data: " + ERROR.encode() + b"\n\n"),
    "html_for_200": reply("200 OK", "<html>hello</html>", "text/html"),
    "cut_off": streaming(chat("half an ans")),
    "half_an_event": streaming(chat("half"), then=b'data: {"id": "x", "cho'),
    "bad_json": streaming(b"data: {nope}\n\n"),
    "bad_utf8": streaming(b"data: \xff\xfe\xff\n\n"),
    "deep_json": streaming(b"data: " + b"[" * 100_000 + b"\n\n"),
    "giant_line": streaming(b"data: " + b"x" * 65_536, times=1_200),
    "endless_short_lines": streaming(b": x\n" * 4_096, times=5_000),
    "redirect": reply("302 Found", "", headers="location: http://127.0.0.1:1/steal\r\n"),
    "reset": reset,
    "hang": hang,
    "header_flood": header_flood,
    "wrong_length": reply("200 OK", b"", headers="content-length: 1000000\r\n"),
}


@pytest.fixture(autouse=True, scope="module")
def warm() -> None:
    """One call beforehand: the first import of an SDK and its first client hold up any loop, and are not a case of this file."""

    async def call() -> None:
        async with serving(SERVERS["bad_json"]) as url:
            async with AgentFlow("openai-chat:m", base_url=url, api_key="x") as flow:
                with suppress(AgentflowError):
                    await flow.run(PROGRAM)

    asyncio.run(call())


@pytest.mark.parametrize("name", SERVERS)
async def test_a_hostile_model_server(name: str, arena: Arena) -> None:
    """Whatever the server does: a typed error, in time, nothing left open, and the key in none of it."""
    async with serving(SERVERS[name]) as url:
        flow = AgentFlow("openai-chat:m", base_url=url, api_key=SECRET, root=arena.root, limits=Limits(wall_s=4))
        async with flow:
            flow.subscribe(lambda event: arena.saw(json.dumps(event.to_dict(), default=str)))
            async with flow.stream(PROGRAM) as run:
                async for event in run:
                    arena.saw(event)
                await arena.refused(run.value())


async def test_a_model_that_says_the_key(arena: Arena) -> None:
    """A key that comes back in a model's text, cut anywhere, is in no event."""
    pieces = [SECRET[at : at + 5] for at in range(0, len(SECRET), 5)]
    events = [chat(piece) for piece in ("it is ", *pieces, " indeed")]
    async with serving(streaming(*events, chat("", "stop"), then=b"data: [DONE]\n\n")) as url:
        async with AgentFlow("openai-chat:m", base_url=url, api_key=SECRET, root=arena.root) as flow:
            shown = ""
            async with flow.stream(PROGRAM) as run:
                async for event in run:
                    arena.saw(event)
                    shown += getattr(event, "text", "") if event.type == "text_delta" else ""
            arena.saw(shown)
            assert shown.startswith("it is ") and shown.endswith(" indeed")


SLOW = 'system:execute_shell_command (command "sleep 30")'
MIDDLES: dict[str, tuple[str, Any]] = {
    "command": (f"({SLOW})", ()),
    "commands_in_branches": (f"(parallel ({SLOW}) ({SLOW}) (while true 1))", ()),
    "command_in_pmap": (f"(pmap (lambda (x) ({SLOW})) (range 30) 8)", ()),
    "race": (f"(race ({SLOW}) ({SLOW}))", ()),
    "finally": (f"(try ({SLOW}) (finally ({SLOW})))", ()),
    "retry": (f"(retry 5 (timeout 20 ({SLOW})))", ()),
    "computing": ("(while true 1)", ()),
    "deep": ("(define (f n) (if (= n 0) (while true 1) (+ 1 (f (- n 1))))) (f 5000)", ()),
    "reading": ('(while true (system:read_files (file_paths (list "a.txt" "dir/b.txt"))))', ()),
    "writing": ('(while true (system:write_file (file_path "w") (content "x") (overwrite true)))', ()),
    "looking": ('(while true (system:get_context (query "inside")))', ()),
    "model": (PROGRAM, "slow"),
    "models_in_branches": (
        '(progn (defatom t (params (x)) (instructions "{{x}}")) (pmap (lambda (i) (t (x i))) (range 20)))',
        "slow",
    ),
    "eval": (f"(eval-program '({SLOW}) (allow system:execute_shell_command))", ()),
}


class Slow(ScriptedProvider):
    """A model that never ends its answer."""

    async def stream(self, request: Any) -> Any:
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                yield delta
                await asyncio.sleep(30)


@pytest.mark.parametrize("after", [0.02, 0.3])
@pytest.mark.parametrize("name", MIDDLES)
async def test_a_cancelled_run_leaves_nothing(name: str, after: float, arena: Arena) -> None:
    """Cancelled in the middle, a run ends what it started: processes, files, model calls, branches."""
    program, kind = MIDDLES[name]
    provider = Slow(lambda request: "one two three") if kind else ScriptedProvider([])
    async with AgentFlow(provider=provider, root=arena.root, approve=lambda request: True) as flow:
        work = asyncio.ensure_future(flow.run(program))
        await asyncio.sleep(after)
        work.cancel()
        ended, _ = await asyncio.wait([work], timeout=5)
        assert ended, "the run did not end"
        with suppress(asyncio.CancelledError, AgentflowError):
            arena.saw(work.result())


async def test_leaving_the_stream_early_leaves_nothing(arena: Arena) -> None:
    """The same when the reader of events walks away."""
    async with AgentFlow(provider=ScriptedProvider([]), root=arena.root) as flow:
        async with flow.stream(f"(parallel ({SLOW}) ({SLOW}))") as run:
            async for event in run:
                if event.type == "tool_started":
                    break


async def test_a_time_limit_ends_commands(arena: Arena) -> None:
    """The run's wall time ends a command, and the error names the limit."""
    async with AgentFlow(provider=ScriptedProvider([]), root=arena.root) as flow:
        error = await arena.refused(flow.run(f"({SLOW})", limits=Limits(wall_s=0.5)))
        assert error.code.startswith("limits/")


async def test_an_approver_that_fails_means_no(arena: Arena) -> None:
    """An approver that raises approves nothing."""

    def broken(request: Any) -> bool:
        raise RuntimeError("no")

    async with AgentFlow(provider=ScriptedProvider([]), root=arena.root, approve=broken) as flow:
        with suppress(Exception):
            arena.saw(
                await flow.run('(system:write_file (file_path "made.txt") (content "x"))', allow=["system:write_file"])
            )
    assert not (arena.root / "made.txt").exists()
