"""A loopback model server speaking Anthropic Messages, OpenAI Chat Completions and OpenAI Responses.

In a test::

    async with ModelServer(["first answer", {"tool_calls": [{"name": "add", "arguments": {"a": 1}}]}]) as server:
        adapter = open_provider("anthropic", base_url=server.url, api_key="k")

``server.url`` serves as base URL for all dialects; ``server.requests`` records what was asked. Replies are text, dicts
(see :class:`Reply`), Reply objects, handlers writing raw bytes, or one function of the request; the last one repeats
when ``repeat`` is set, else running out answers 500. ``by_turn`` takes reply n for a conversation with n tool results.
With ``cache`` requests in Anthropic's dialect are charged as its prompt cache would (:mod:`tests.support.prompt_cache`).
``about`` is what the server says of itself, by path, where it is asked with GET (``looks``).
A request that breaks a rule which any vendor of its dialect has is refused with the vendor's words
(:func:`tests.support.vendors.rules.general`), unless ``strict`` is False.

As a process (command line tests, benchmarks): ``python -m tests.support.model_server --script replies.json --repeat``;
it prints its URL on the first line and ends when its standard input closes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.model_server_wire import Dialect, Reply, body, error_body, events
from tests.support.prompt_cache import SimulatedCache

_ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Request:
    """What a client asked: ``dialect``, ``path``, lower-case ``headers``, the JSON ``body`` the ``query`` of the address and the ``method``."""

    dialect: Dialect
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    query: str = ""
    method: str = "POST"

    @property
    def streams(self) -> bool:
        """Whether a stream was asked for."""
        return bool(self.body.get("stream"))


Handler = Callable[[Request, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Writes a whole raw answer; the connection is closed afterwards."""


@dataclass
class Raw:
    """A reply written by a function instead of rendered."""

    handler: Handler


@dataclass
class ModelServer:
    """The server; an async context manager. ``live`` counts open connections, ``connections`` all; ``heads`` are requests for headers."""

    script: list[Any] | Callable[[Request], Any]
    repeat: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    live: int = 0
    record: bool = True
    by_turn: bool = False
    cache: SimulatedCache | None = None
    strict: bool = True
    about: dict[str, Any] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)
    heads: list[Request] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._next = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._rendered: dict[tuple[int, str, str], list[bytes]] = {}
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Base URL for every dialect."""
        return f"http://{self.host}:{self.port}"

    async def __aenter__(self) -> ModelServer:
        self._server = await asyncio.start_server(self._connection, self.host, self.port, backlog=8192)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.live += 1
        self.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                if not await self._answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # this is the task's outermost frame; asyncio logs a cancelled connection callback as an error
        finally:
            self.live -= 1
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if request.method == "HEAD":
            self.heads.append(request)
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 99\r\n\r\n")
            await writer.drain()
            return True
        if (
            request.method == "GET"
        ):  # a question about the server, which has nothing to say of itself but what ``about`` holds
            self.looks.append(request.path)
            about = self.about.get(request.path)
            _write_json(writer, 404 if about is None else 200, about or {"error": {"message": "not found"}}, {})
            await writer.drain()
            return True
        if self.record:
            self.requests.append(request)
        if request.path.endswith(("/count_tokens", "/input_tokens")):
            _write_json(writer, 200, {"input_tokens": 42}, {})
            await writer.drain()
            return True
        if self.strict and (refused := _refusal(request)):
            error = {"type": "invalid_request_error", "message": refused}
            _write_json(writer, 400, error_body(request.dialect, error), {})
            await writer.drain()
            return True
        made = self._take(request)
        if isinstance(made, Raw):
            await made.handler(request, reader, writer)
            return False
        reply = Reply.of(made)
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        if reply.status != 200:
            error = reply.error or {"type": "api_error", "message": f"scripted failure {reply.status}"}
            _write_json(writer, reply.status, error_body(request.dialect, error), reply.headers)
            await writer.drain()
            return True
        if self.cache is not None and request.dialect == "anthropic":
            try:
                reply = replace(reply, usage={**reply.usage, **self.cache.read(request.body)})
            except ValueError as refused:
                error = {"type": "invalid_request_error", "message": str(refused)}
                _write_json(writer, 400, error_body(request.dialect, error), {})
                await writer.drain()
                return True
        if request.streams:
            return await self._stream(request, reply, writer)
        model = str(request.body.get("model", ""))
        _write_json(writer, 200, body(request.dialect, reply, model), reply.headers)
        await writer.drain()
        return True

    def _take(self, request: Request) -> Any:
        if callable(self.script):
            return self.script(request)
        index = _results(request.body) if self.by_turn else self._next
        self._next += 1
        if index < len(self.script):
            return self.script[index]
        if self.repeat and self.script:
            return self.script[-1]
        return Reply(status=500, error={"type": "api_error", "message": f"the script has only {index} replies"})

    async def _stream(self, request: Request, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        model = str(request.body.get("model", ""))
        key = (id(reply), request.dialect, model)
        rendered = self._rendered.get(key)
        if rendered is None:
            rendered = [_chunk(event) for event in events(request.dialect, reply, model)]
            if self.repeat:
                self._rendered[key] = rendered
        writer.write(stream_head(reply.headers))
        for index, piece in enumerate(rendered):
            if reply.cut is not None and index >= reply.cut:
                break
            if reply.pace is not None:
                await writer.drain()
                await reply.pace(index)
            writer.write(piece)
            if reply.chunk_s:
                await writer.drain()
                await asyncio.sleep(reply.chunk_s)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _refusal(request: Request) -> str:
    """Why a vendor of the dialect refuses a request; empty if it does not."""
    from tests.support.vendors.rules import broken, general
    from tests.support.vendors.view import Asked

    vendor, rules = general(request.dialect)
    found = broken(Asked(vendor, request.path, request.headers, json.dumps(request.body).encode()), rules)
    return found[0][1] if found else ""


def _results(body: dict[str, Any]) -> int:
    """Tool results in a conversation: which turn of its tool loop a request is."""
    count = 0
    for item in body.get("messages") or body.get("input") or ():
        content = item.get("content")
        count += item.get("role") == "tool" or item.get("type") == "function_call_output"
        if isinstance(content, list):
            count += sum(block.get("type") == "tool_result" for block in content)
    return count


def stream_head(headers: dict[str, str] | None = None, status: str = "200 OK") -> bytes:
    """The head of a chunked event stream."""
    return _head(status, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **(headers or {})})


def _head(status: str, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status}", "request-id: req_1", "x-request-id: req_1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _write_json(writer: asyncio.StreamWriter, status: int, data: Any, headers: dict[str, str]) -> None:
    content = json.dumps(data).encode()
    head = {"content-type": "application/json", "content-length": str(len(content)), **headers}
    writer.write(_head(f"{status} X", head) + content)


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
    path, _, query = first.split(" ")[1].partition("?")
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    dialect: Dialect = "anthropic"
    if "/responses" in path:
        dialect = "responses"
    elif "/chat/completions" in path:
        dialect = "chat"
    return Request(dialect, path, headers, json.loads(content or b"{}"), query, first.split(" ")[0])


@contextlib.asynccontextmanager
async def model_server_process(replies: list[Any], *, repeat: bool = True, by_turn: bool = False) -> AsyncIterator[str]:
    """The same server in a process of its own; gives its URL. For benchmarks, so that client CPU is the client's."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.model_server",
        "--script",
        "-",
        *(["--repeat"] if repeat else []),
        *(["--by-turn"] if by_turn else []),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=_ROOT,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(replies).encode() + b"\n")
        await process.stdin.drain()
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def main() -> None:
    """Serve until standard input closes."""
    parser = argparse.ArgumentParser(description="A loopback model server for tests.")
    parser.add_argument("--script", required=True, help="JSON file with a list of replies; - reads one line of stdin")
    parser.add_argument("--repeat", action="store_true", help="repeat the last reply")
    parser.add_argument("--by-turn", action="store_true", help="reply number = tool results in the conversation")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    text = sys.stdin.readline() if options.script == "-" else Path(options.script).read_text(encoding="utf-8")
    asyncio.run(_serve([Reply.of(value) for value in json.loads(text)], options))


async def _serve(script: list[Any], options: argparse.Namespace) -> None:
    async with ModelServer(
        script, repeat=options.repeat, port=options.port, record=False, by_turn=options.by_turn
    ) as server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    main()
