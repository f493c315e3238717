"""Events as JSON lines in a file, one line each, written on a worker thread."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from agentflow.core.events import Event, RunFinished

_BATCH = 64
_INTERVAL_S = 0.2


def event_line(event: Event, redact: Callable[[str], str] = str) -> str:
    """``event`` as one JSON line, without the line end, with secrets taken out by ``redact``."""
    return redact(json.dumps(event.to_dict(), ensure_ascii=False, default=str))


class JsonlWriter:
    """An async observer that appends every event to ``path``.

    Lines are buffered, and written at the latest when a run ends. Parent directories are created at the first
    write. ``redact`` is applied to each line. Call :meth:`aclose` after the last run.
    """

    def __init__(self, path: Path, redact: Callable[[str], str] = str) -> None:
        self.path = path
        self._redact = redact
        self._lines: list[str] = []
        self._flushed = time.monotonic()
        self._file: TextIO | None = None

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
        if lines:
            await asyncio.to_thread(self._write, "\n".join(lines) + "\n")

    def _write(self, text: str) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")
        self._file.write(text)
        self._file.flush()

    async def aclose(self) -> None:
        """Write the buffered lines and close the file."""
        await self.flush()
        file, self._file = self._file, None
        if file is not None:
            await asyncio.to_thread(file.close)
