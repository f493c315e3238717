"""The server over standard input and output: one client, which started this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

from agentflow.connect.stdio import stdio_streams
from agentflow.serve.keys import APPROVAL_TTL, Key
from agentflow.serve.mcp.server import FlowMcp
from agentflow.serve.service import Service

_AT_ONCE = 65_536


async def serve_stdio(service: Service) -> None:
    """Serve until the client closes our standard input, then cancel its runs."""
    server = FlowMcp(service, Key("anyone", approval_ttl=APPROVAL_TTL)).server()
    try:
        with own_files() as (source, target):
            async with (
                _pipes(source, target) as pipes,
                stdio_streams(pipes, lambda reason: None) as (incoming, outgoing),
            ):
                await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await service.runs.aclose()


@contextlib.contextmanager
def own_files() -> Generator[tuple[int, int], None, None]:
    """Descriptors of standard input and output reserved for the protocol.

    Meanwhile other output goes to standard error, and commands started by tools read empty input.
    """
    sys.stdout.flush()
    source, target, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield source, target
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(target, 1)
        os.close(source)
        os.close(target)


class _Pipes:
    """The two ends as the transport of JSON lines expects them."""

    def __init__(
        self, read: Callable[[], Coroutine[Any, Any, bytes]], write: Callable[[bytes], Coroutine[Any, Any, None]]
    ) -> None:
        self._read = read
        self._write = write

    async def read(self) -> bytes:
        return await self._read()

    async def write(self, data: bytes) -> None:
        await self._write(data)


@contextlib.asynccontextmanager
async def _pipes(source: int, target: int) -> AsyncGenerator[_Pipes, None]:
    """Both ends: pipes and sockets wait on the loop, files on a worker thread."""
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        if _waits(source):
            reader = asyncio.StreamReader()
            incoming, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(source), "rb", 0)
            )
            stack.callback(incoming.close)

            async def read() -> bytes:
                return await reader.read(_AT_ONCE)
        else:

            async def read() -> bytes:
                return await asyncio.to_thread(os.read, source, _AT_ONCE)

        if _waits(target):
            outgoing, protocol = await loop.connect_write_pipe(
                asyncio.streams.FlowControlMixin, os.fdopen(os.dup(target), "wb", 0)
            )
            writer = asyncio.StreamWriter(outgoing, protocol, None, loop)
            stack.callback(outgoing.abort)

            async def write(data: bytes) -> None:
                writer.write(data)
                await writer.drain()
        else:

            async def write(data: bytes) -> None:
                while data:
                    data = data[await asyncio.to_thread(os.write, target, data) :]

        yield _Pipes(read, write)


def _waits(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


__all__ = ["own_files", "serve_stdio"]
