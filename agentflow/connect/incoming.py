"""What a server sends, read as the protocol says it is to be read, where the SDK is stricter, and no more of it at once than is answered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from agentflow.connect.bounds import MAX_ASKED, MAX_PARTS

_DATA = frozenset({"structuredContent", "inputSchema", "outputSchema", "requestedSchema", "_meta", "data"})
"""What is read as it stands."""


@asynccontextmanager
async def read_streams(
    streams: AbstractAsyncContextManager[tuple[Any, Any]], untyped: Callable[[], bool]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The two streams of messages. A result that does not say its type is a complete one while it may be ``untyped``.

    Of the server's requests only so many are let in as may be open at once: the SDK has a task for each, and a server that
    asks without end, and reads no answer, would fill the memory with them.
    """
    async with streams as (incoming, outgoing):
        asked: set[str] = set()
        yield _Incoming(incoming, untyped, asked), _Outgoing(outgoing, asked)


class _Stream:
    """A ``stream`` of messages in one direction; ``asked`` has the ids of the requests that are not answered."""

    def __init__(self, stream: Any, asked: set[str]) -> None:
        self._stream = stream
        self._asked = asked

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.aclose()


class _Incoming(_Stream):
    """Messages of a server."""

    def __init__(self, stream: Any, untyped: Callable[[], bool], asked: set[str]) -> None:
        super().__init__(stream, asked)
        self._untyped = untyped

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, if the stream knows it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while not self._is_let_in(item := await self._stream.receive()):
            pass
        return self._complete(item)

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._is_let_in(item := await self._stream.__anext__()):
            pass
        return self._complete(item)

    def _is_let_in(self, item: SessionMessage | Exception) -> bool:
        message = None if isinstance(item, Exception) else item.message
        if isinstance(message, JSONRPCRequest | JSONRPCNotification) and _is_crowded(message.params):
            return False
        if isinstance(message, JSONRPCRequest):
            if len(self._asked) >= MAX_ASKED or str(message.id) in self._asked:
                return False
            self._asked.add(str(message.id))
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._asked.discard(str((message.params or {}).get("requestId")))  # which the SDK does not answer then
        return True

    def _complete(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if not isinstance(item, SessionMessage) or not isinstance(item.message, JSONRPCResponse):
            return item
        if _is_crowded(item.message.result):
            error = ErrorData(code=PARSE_ERROR, message=f"the answer has more than {MAX_PARTS:,} parts")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error), item.metadata)
        if self._untyped():
            item.message.result.setdefault("resultType", "complete")
        return item


def _is_crowded(value: Any) -> bool:
    """Whether there are more objects in what the SDK reads of a message than one at a time should be."""
    left = MAX_PARTS
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += cast("list[Any]", each)
        elif isinstance(each, dict):
            left -= 1
            if left < 0:
                return True
            pending += [part for key, part in cast("dict[str, Any]", each).items() if key not in _DATA]
    return False


class _Outgoing(_Stream):
    """Messages to a server."""

    async def send(self, item: SessionMessage) -> None:
        await self._stream.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._asked.discard(str(item.message.id))


__all__ = ["read_streams"]
