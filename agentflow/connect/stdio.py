"""Transport to a server run as a program: bounded lines of JSON over its standard input and output."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from agentflow.connect.depth import readable
from agentflow.connect.size_limits import MAX_MESSAGE, is_too_large
from agentflow.core.ports.service_port import Pipes

_log = logging.getLogger(__name__)
Incoming = SessionMessage | Exception
_ANSWERED = re.compile(rb'"id"\s*:\s*(\d{1,9})\b')
ENDED = "it ended"
TOO_LARGE = f"it sent a message of more than {MAX_MESSAGE:,} bytes, or of too many values"


@asynccontextmanager
async def stdio_streams(
    process: Pipes, over: Callable[[str], None]
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
    """The two streams of messages from and to ``process``, as the SDK's client takes them.

    ``over`` takes the reason when no more messages will come. The caller stops the process.
    """
    received, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    async with received, incoming, outgoing, sent, anyio.create_task_group() as group:
        group.start_soon(_read, process, received, over)
        group.start_soon(_write, process, sent, over)
        yield incoming, outgoing
        group.cancel_scope.cancel()


async def _read(process: Pipes, received: MemoryObjectSendStream[Incoming], over: Callable[[str], None]) -> None:
    """Pass on the program's messages, one per line, until its output ends or a message exceeds the limits."""
    async with received:
        try:
            line = bytearray()
            while piece := await process.read():
                *ended, rest = piece.split(b"\n")
                for end in ended:
                    line += end
                    if is_too_large(line):
                        return over(TOO_LARGE)
                    await _pass_on(bytes(line), received)
                    line.clear()
                line += rest
                if len(line) > MAX_MESSAGE:
                    return over(TOO_LARGE)
            over(ENDED)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            over("the connection is closed")


async def _pass_on(line: bytes, received: MemoryObjectSendStream[Incoming]) -> None:
    """Pass on one line as a message. Anything else is dropped: some programs print other output here."""
    if not line.strip():
        return
    try:
        message = jsonrpc_message_adapter.validate_json(readable(line), by_name=False)
    except ValueError:
        _log.debug("an MCP server wrote a line that is not a message (%d bytes)", len(line))
        answered = _ANSWERED.search(line, 0, 1_000) if line.startswith(b"{") else None
        if answered is None:
            await anyio.lowlevel.checkpoint()
            return
        # an unreadable answer, its data perhaps nested too deeply: fail the request now instead of at its time-out
        error = ErrorData(code=PARSE_ERROR, message="the answer cannot be read")
        message = JSONRPCError(jsonrpc="2.0", id=int(answered[1]), error=error)
    await received.send(SessionMessage(message))


async def _write(process: Pipes, sent: MemoryObjectReceiveStream[SessionMessage], over: Callable[[str], None]) -> None:
    async with sent:
        try:
            async for each in sent:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.write(f"{text}\n".encode())
        except OSError:
            over("it takes no more input")
