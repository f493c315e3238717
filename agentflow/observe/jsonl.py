"""Events as JSON lines in a file, one line each, written off the event loop."""

from __future__ import annotations

import asyncio
import json
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiofiles

from agentflow.core.events import Event, RunFinished
from agentflow.lib.private_files import make_private_directory, open_private

_BATCH = 64
_INTERVAL_S = 0.2

Redact = Callable[[Any], Any]
"""Gives JSON data without the secrets in it; ``AgentFlow.redact`` is one."""


def _as_it_is(data: Any) -> Any:
    return data


def event_line(event: Event, redact: Redact = _as_it_is) -> str:
    """``event`` as one JSON line, without the line end.

    ``redact`` takes the secrets out of the event's data, text by text: in the finished line a key whose end is missing
    would take the rest of the line along.
    """
    return json.dumps(redact(event.to_dict()), ensure_ascii=False, default=lambda other: redact(str(other)))


class JsonlWriter:
    """An async observer that appends every event to ``path``; deltas only where ``deltas`` says so.

    Lines are buffered, and written at the latest when a run ends. Parent directories are created at the first write;
    they and the file are closed to other users. ``redact`` is applied to the data of each event. A file that cannot be
    written is left alone from then on, with the reason in :attr:`error`. Call :meth:`aclose` after the last run.
    """

    keeps_all = True

    def __init__(self, path: Path, redact: Redact = _as_it_is, *, deltas: bool = False) -> None:
        self.path = path
        self.deltas = deltas
        self.error: OSError | None = None
        self._redact = redact
        self._lines: list[str] = []
        self._flushed = time.monotonic()
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def __call__(self, event: Event) -> None:
        """Take one event."""
        self._lines.append(event_line(event, self._redact))
        now = time.monotonic()
        if len(self._lines) >= _BATCH or now - self._flushed > _INTERVAL_S or isinstance(event, RunFinished):
            await self.flush()

    async def flush(self) -> None:
        """Write the buffered lines."""
        lines, self._lines = self._lines, []
        self._flushed = time.monotonic()
        if lines and self.error is None:
            try:
                await self._append("\n".join(lines) + "\n")
            except OSError as error:
                self.error = error

    async def open(self) -> None:
        """Create the file, if it is missing. Raises OSError."""
        await self._append("")

    async def _append(self, text: str) -> None:
        # Several runs may be read at once, and each file object of aiofiles belongs to one loop.
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await asyncio.to_thread(make_private_directory, self.path.parent)
            async with aiofiles.open(
                self.path, "a", encoding="utf-8", errors="backslashreplace", opener=open_private
            ) as file:
                await file.write(text)

    async def aclose(self) -> None:
        """Write the buffered lines."""
        await self.flush()
