"""How an application and its streams learn that the server stops.

ASGI servers wait for open responses first and notify an application only afterwards. A stream of events that lasts until
its run has ended would keep both waiting for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentflow.serve.streaming import leave

LAST_WORDS_S = 2.0
"""Seconds that responses have to send the end of their runs."""


@contextlib.contextmanager
def hearing(stop: Callable[[], None]) -> Generator[None, None, None]:
    """Within the block, call ``stop`` on the loop when the process is asked to end (SIGTERM, Ctrl-C).

    A handler that is installed already, that of the ASGI server, still runs; without one nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, over = asyncio.get_running_loop(), False

    def chained(before: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
        def hear(number: int, frame: FrameType | None) -> None:
            if not over:
                loop.call_soon_threadsafe(stop)
            before(number, frame)

        return hear

    handlers: dict[signal.Signals, tuple[Any, Any]] = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        if callable(before) and before is not signal.default_int_handler:
            handlers[number] = before, chained(before)
            signal.signal(number, handlers[number][1])
    try:
        yield
    finally:
        over = True
        for number, (before, ours) in handlers.items():
            if signal.getsignal(number) is ours:
                signal.signal(number, before)


class OpenResponses:
    """The requests of an application that are being answered. Once they are ended, each learns that its client is gone."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._over = asyncio.Event()

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Have ``app`` answer a request."""

        async def receive_until_over() -> Message:
            getting: asyncio.Task[Any] = asyncio.ensure_future(receive())  # pyright: ignore[reportArgumentType]
            ending: asyncio.Task[Any] = asyncio.create_task(self._over.wait())
            try:
                await asyncio.wait([getting, ending], return_when=asyncio.FIRST_COMPLETED)
                return cast(Message, getting.result()) if getting.done() else {"type": "http.disconnect"}
            finally:
                await leave(getting, ending)

        self._count += 1
        try:
            await app(scope, receive_until_over, send)
        finally:
            self._count -= 1
            if not self._count:
                self._idle.set()

    async def end(self) -> None:
        """End all responses, those that say how their runs ended after they have said so."""
        self._idle.clear()
        if self._count:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._idle.wait()
        self._over.set()
