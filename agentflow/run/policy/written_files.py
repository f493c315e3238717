"""Where files that runs wrote came from: it is kept beside what is recorded, and is read again with the files.

A flow with a policy knows of each file that one of its runs wrote from values with sources. The files themselves say nothing of that.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from agentflow.core.data.labels import NO_SOURCES, Sources, joined
from agentflow.lib.file_writer import make_private_directory, open_private


class WrittenFiles:
    """The sources of files by their real paths, in the file ``path``, whose last line about a file counts.

    It is read once, when it is first asked for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Sources] | None = None

    def sources_of(self, real: str) -> Sources:
        """Where the content of a file came from, besides the file itself. Blocking for some milliseconds, once."""
        return self._read().get(real, NO_SOURCES)

    @asynccontextmanager
    async def writing(self, real: str, sources: Sources) -> AsyncGenerator[None]:
        """A block that writes a file: when it ends the file is from ``sources``, until then from what it was from, too.

        A block that raises has left the file as it was. Raises OSError, before anything is written, where this cannot be kept.
        """
        before = self.sources_of(real)
        if before == sources == NO_SOURCES:
            yield
            return
        await self._put(real, joined(before, sources))
        try:
            yield
        except (
            Exception
        ):  # of any kind, raised again: a block that failed wrote nothing. One that was cancelled may have.
            await self._put(real, before)
            raise
        await self._put(real, sources)

    async def _put(self, real: str, sources: Sources) -> None:
        stored = self._read()
        if stored.get(real, NO_SOURCES) == sources:
            return
        await asyncio.to_thread(self._append, json.dumps([real, sorted(sources)]) + "\n")
        stored[real] = sources

    def _append(self, line: str) -> None:
        make_private_directory(self._path.parent)
        file = open_private(str(self._path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def _read(self) -> dict[str, Sources]:
        if self._known is None:
            self._known = {}
            try:
                lines = self._path.read_bytes().splitlines()
            except FileNotFoundError:
                lines = []
            for line in lines:
                read: Any = json.loads(line)
                self._known[read[0]] = frozenset(cast("list[str]", read[1]))
        return self._known
