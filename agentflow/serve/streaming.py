"""Server-sent events to a client that may be slow or gone: LF line ends, pings, and a limit on waiting for readers.

A handler learns that its client has disconnected only by watching ``receive``. A silent server would keep a dead connection
for hours, hence a ping every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PING_S = 15.0
"""Seconds without an event before a comment is sent."""
SEND_S = 30.0
"""Seconds that a client may take to accept data before it is given up."""
_PING = b": ping\n\n"
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


async def disconnected(receive: Receive) -> None:
    """Wait until the client disconnects, after its request was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def leave(*tasks: asyncio.Task[object]) -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


class EventStream(Response):
    """A stream of server-sent events; it ends with ``chunks``, or when the client disconnects or stops reading.

    ``chunks`` yields whole events and is closed in any case. ``after`` is awaited when the stream is over, for any reason,
    even if nothing was sent. ``ping_s`` and ``send_s`` are in seconds.
    """

    media_type = "text/event-stream"
    charset = "utf-8"

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        headers: Mapping[str, str] | None = None,
        *,
        after: Callable[[], Awaitable[None]] | None = None,
        ping_s: float = PING_S,
        send_s: float = SEND_S,
    ) -> None:
        super().__init__(headers={**_HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._chunks = chunks
        self._after = after
        self._ping_s = ping_s
        self._send_s = send_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone: asyncio.Task[object] = asyncio.create_task(disconnected(receive))
        sending: asyncio.Task[object] = asyncio.create_task(self._send(send))
        try:
            await asyncio.wait([gone, sending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await leave(gone, sending)
                await self._chunks.aclose()
            finally:
                if self._after is not None:
                    await self._after()

    async def _send(self, send: Send) -> None:
        """Send the events, in a task of its own, cancelled when the client disconnects."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        following: asyncio.Task[bytes | None] | None = None
        try:
            while True:
                following = following or asyncio.create_task(self._next())
                await asyncio.wait([following], timeout=self._ping_s)
                chunk: bytes | None = _PING
                if following.done():
                    chunk, following = following.result(), None
                if chunk is None:
                    break
                async with asyncio.timeout(self._send_s):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return  # the ASGI server closes a connection after an incomplete response
        finally:
            if following is not None:
                await leave(following)

    async def _next(self) -> bytes | None:
        return await anext(self._chunks, None)
