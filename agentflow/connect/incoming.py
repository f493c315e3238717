"""Filters a server's messages: accepts what the protocol allows and the SDK refuses, and bounds unanswered requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agentflow.connect.bounds import MAX_ASKED, MAX_PARTS
from agentflow.connect.items import check_items

_DATA = frozenset({"structuredContent", "inputSchema", "outputSchema", "requestedSchema", "_meta", "data"})
"""Fields whose contents the SDK does not parse into objects."""


@asynccontextmanager
async def read_streams(
    streams: AbstractAsyncContextManager[tuple[Any, Any]], version: Callable[[], str | None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The two streams of messages. ``version()`` is the revision spoken, None before it is known.

    In the newer revision, and before, a result without a type is taken to be complete. Wrong items of a result are left out.

    At most :data:`MAX_ASKED` unanswered requests of the server are accepted: the SDK starts a task for each, so a server
    that sends them endlessly and reads no answers would fill the memory.
    """
    async with streams as (incoming, outgoing):
        asked: set[str] = set()
        sent: dict[str, str] = {}
        yield _Incoming(incoming, version, asked, sent), _Outgoing(outgoing, asked, sent)


class _Stream:
    """A ``stream`` of messages in one direction.

    ``asked`` holds the ids of the server's unanswered requests, ``sent`` the methods of ours by their ids.
    """

    def __init__(self, stream: Any, asked: set[str], sent: dict[str, str]) -> None:
        self._stream = stream
        self._asked = asked
        self._sent = sent

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.aclose()


class _Incoming(_Stream):
    """Messages from a server."""

    def __init__(self, stream: Any, version: Callable[[], str | None], asked: set[str], sent: dict[str, str]) -> None:
        super().__init__(stream, asked, sent)
        self._version = version

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, if the stream records it."""
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
            self._asked.discard(
                str((message.params or {}).get("requestId"))
            )  # the SDK sends no answer to a cancelled request
        return True

    def _complete(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if not isinstance(item, SessionMessage) or not isinstance(item.message, JSONRPCResponse | JSONRPCError):
            return item
        method = self._sent.pop(str(item.message.id), None)
        if isinstance(item.message, JSONRPCError):
            return item
        if _is_crowded(item.message.result):
            error = ErrorData(code=PARSE_ERROR, message=f"the answer has more than {MAX_PARTS:,} parts")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error), item.metadata)
        version = self._version()
        if version is None or version in MODERN_PROTOCOL_VERSIONS:
            item.message.result.setdefault("resultType", "complete")
        if version is not None and method is not None:
            check_items(method, version, item.message.result)
        return item


def _is_crowded(value: Any) -> bool:
    """Whether a message has more than :data:`MAX_PARTS` objects that the SDK would parse at once."""
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
        if isinstance(item.message, JSONRPCRequest):
            self._sent[str(item.message.id)] = item.message.method
        elif isinstance(item.message, JSONRPCNotification) and item.message.method == "notifications/cancelled":
            self._sent.pop(str((item.message.params or {}).get("requestId")), None)  # no answer is waited for
        await self._stream.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._asked.discard(str(item.message.id))


__all__ = ["read_streams"]
