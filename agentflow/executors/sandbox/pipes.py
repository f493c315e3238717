"""Reads pipes on the event loop: command outputs, kept in part, and status reports."""

from __future__ import annotations

import asyncio
import os
from collections import deque


class Output(asyncio.Protocol):
    """Drains a pipe, keeps ``keep`` bytes of its tail and as many of its head (or ``head``), and counts all bytes.

    ``done`` is set at end of file or when the transport is closed.
    """

    def __init__(self, keep: int, *, head: int | None = None) -> None:
        self.total = 0
        self.done = asyncio.Event()
        self._keep = keep
        self._keep_head = keep if head is None else head
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0

    def data_received(self, data: bytes) -> None:
        self.total += len(data)
        if room := self._keep_head - len(self._head):
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= self._keep:
            self._tail_bytes -= len(self._tail.popleft())

    def connection_lost(self, exc: Exception | None) -> None:
        self.done.set()

    def text(self) -> str:
        """The kept output as text: head, a line with the missing amount, tail."""
        tail = b"".join(self._tail)[-self._keep :] if self._tail else b""
        missing = self.total - len(self._head) - len(tail)
        if missing <= 0:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        return (
            self._head.decode("utf-8", "replace")
            + f"\n... {missing} bytes left out ...\n"
            + tail.decode("utf-8", "replace")
        )


class Status(asyncio.Protocol):
    """Collects all data of a short status pipe; sets ``line`` when the first line is complete, ``done`` at the end."""

    LIMIT = 65_536

    def __init__(self) -> None:
        self.data = bytearray()
        self.line = asyncio.Event()
        self.done = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data += data[: self.LIMIT - len(self.data)]
        if b"\n" in data:
            self.line.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.line.set()
        self.done.set()


async def attach(read_end: int, protocol: asyncio.Protocol) -> asyncio.ReadTransport:
    """Connect the descriptor ``read_end``, which the transport then owns, to ``protocol``."""
    try:
        file = os.fdopen(read_end, "rb", buffering=0)
    except BaseException:  # close the descriptor, then raise again
        os.close(read_end)
        raise
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)
    except BaseException:  # close the file, even when cancelled
        file.close()
        raise
    return transport
