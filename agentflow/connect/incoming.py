"""What a server sends, read as the protocol says it is to be read, where the SDK is stricter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse


@asynccontextmanager
async def with_result_types(
    streams: AbstractAsyncContextManager[tuple[Any, Any]], applies: Callable[[], bool]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The two streams of messages, where a result that does not say its type is a complete one while it ``applies``."""
    async with streams as (incoming, outgoing):
        yield _Incoming(incoming, applies), outgoing


class _Incoming:
    """Messages of a ``stream``."""

    def __init__(self, stream: Any, applies: Callable[[], bool]) -> None:
        self._stream = stream
        self._applies = applies

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, if the stream knows it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._complete(await self._stream.receive())

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._complete(await self._stream.__anext__())

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Incoming:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.aclose()

    def _complete(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse) and self._applies():
            item.message.result.setdefault("resultType", "complete")
        return item


__all__ = ["with_result_types"]
