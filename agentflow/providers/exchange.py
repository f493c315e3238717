"""One exchange with a model server: the call that is made, and its answer read under clocks and caps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from agentflow.core.errors import (
    CallTimeout,
    ConnectionLost,
    FirstByteTimeout,
    IdleTimeout,
    ProtocolError,
    ProviderError,
    clip,
)
from agentflow.core.messages import ModelRequest
from agentflow.providers.clocks import Clocks, Watch
from agentflow.providers.wire import Decoder, ToolNames

_FAIR_S = 0.005
_DRAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class SdkErrors:
    """The exception classes of one SDK, and those of its transport."""

    status: type[Exception]
    timeout: type[Exception]
    base: type[Exception]
    transport: tuple[type[Exception], ...]
    connect_timeout: Any
    response: Any
    stream: Any


class HttpCall:
    """One model call in progress: what is sent, by when it must end, and what is known of the answer so far."""

    __slots__ = (
        "body",
        "clocks",
        "deadline",
        "decoder",
        "headers",
        "loop",
        "names",
        "path",
        "request",
        "request_id",
        "status",
        "streaming",
        "watch",
    )

    def __init__(self, request: ModelRequest, clocks: Clocks) -> None:
        self.request = request
        self.clocks = clocks
        self.names = ToolNames(request)
        self.loop = asyncio.get_running_loop()
        self.watch = Watch()
        wall = request.timeout_s if request.timeout_s is not None else clocks.wall_s
        self.deadline = None if wall is None else self.loop.time() + wall
        self.streaming = request.stream
        self.path = ""
        self.body = b""
        self.headers: dict[str, str] = {}
        self.decoder: Decoder | None = None
        self.request_id: str | None = None
        self.status: int | None = None

    def due(self, *waits: float | None) -> float | None:
        """Loop time after the sum of ``waits`` (None: unbounded), or the call's deadline if that comes first."""
        if None in waits:
            return self.deadline
        at = self.loop.time() + sum(wait or 0.0 for wait in waits)
        return at if self.deadline is None or at < self.deadline else self.deadline

    @property
    def remaining(self) -> float | None:
        """Seconds left of the whole call."""
        return None if self.deadline is None else self.deadline - self.loop.time()

    def resume(self, paused: float) -> None:
        """The consumer had what came since loop time ``paused``: that time is not the provider's."""
        if self.deadline is not None:
            self.deadline += self.loop.time() - paused

    def timed_out(self, otherwise: type[ProviderError], what: str) -> ProviderError:
        """The error of the clock that ran out: the wall clock, or the one that was being watched."""
        if self.deadline is not None and self.loop.time() >= self.deadline:
            return CallTimeout(
                "the model call took longer than its time limit", hint="raise timeout_s or Clocks(wall_s=...)"
            )
        return otherwise(what)


class Answer:
    """A response body read chunk by chunk under the clocks and caps."""

    __slots__ = ("_call", "_due", "_errors", "_fair", "_first", "_iterator", "_left", "response")

    def __init__(self, response: Any, call: HttpCall, errors: SdkErrors, limit: int) -> None:
        self.response = response
        self._call = call
        self._errors = errors
        self._left = limit
        encoded = response.headers.get("content-encoding", "identity") != "identity"
        self._iterator: AsyncIterator[bytes] = response.aiter_bytes() if encoded else response.aiter_raw()
        self._first = True
        clocks = call.clocks
        self._due = call.due(clocks.first_byte_s if call.streaming else clocks.plain_first_byte_s)
        self._fair = call.loop.time()

    def progress(self) -> None:
        """Something other than a ping came: the idle clock starts anew."""
        self._due = self._call.due(self._call.clocks.idle_s)

    async def read(self) -> bytes:
        """The next chunk, empty at the end. Raises ProviderError: a clock, a cap, or a broken connection."""
        call = self._call
        watch = call.watch
        if call.loop.time() - self._fair > _FAIR_S:
            # A server faster than we read never makes us wait, and others would not get the loop.
            await asyncio.sleep(0)
            self._fair = call.loop.time()
        watch.arm(self._due)
        try:
            chunk = await anext(self._iterator)
        except StopAsyncIteration:
            return b""
        except asyncio.CancelledError:
            if watch.expired():
                kind = FirstByteTimeout if self._first else IdleTimeout
                raise call.timed_out(kind, "the model sent nothing in time") from None
            raise
        except self._errors.transport as error:
            raise ConnectionLost(f"the connection broke while the model answered: {describe(error)}") from error
        except ValueError as error:
            raise ProtocolError(f"the body cannot be decoded: {describe(error)}") from error
        finally:
            watch.disarm()
        if self._first:
            self._first = False
            self.progress()
        self._left -= len(chunk)
        if self._left < 0:
            raise ProtocolError(
                "the server sent more than a model's answer can be",
                code="provider/too-large",
                hint="check what the base URL points to",
            )
        return chunk

    async def drain(self) -> None:
        """Read what follows the terminal event, briefly, so that the connection can be used again."""
        watch = self._call.watch
        watch.arm(self._call.loop.time() + _DRAIN_S)
        try:
            async for _ in self._iterator:
                pass
        except asyncio.CancelledError:
            if not watch.expired():
                raise
        except (*self._errors.transport, ValueError):
            pass  # The answer is complete; only the connection is lost, and the pool notices by itself.
        finally:
            watch.disarm()

    async def aclose(self) -> None:
        """Give the connection back, or close it when the body was not read to its end."""
        try:
            await self._iterator.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            await self.response.aclose()
        except self._errors.transport:
            pass  # It broke before; that has been reported where it mattered.


async def read_whole(answer: Answer) -> bytes:
    """The whole body."""
    pieces: list[bytes] = []
    while chunk := await answer.read():
        pieces.append(chunk)
        answer.progress()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def describe(error: BaseException) -> str:
    """The innermost cause in a few words: SDK errors say no more than that there was one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return clip(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 300)
