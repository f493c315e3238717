"""Lifecycle events of a run as the progress of a tool call, at most ten times a second."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server.context import ServerRequestContext

from agentflow.core.events.events import (
    BranchStarted,
    Event,
    FinishedBase,
    TaskFinished,
    TaskStarted,
    ToolFinished,
    ToolStarted,
)
from agentflow.serve.mcp.tools import sendable

_PAUSE_S = 0.1
_MAX_TEXT = 200


class Progress:
    """The progress of a run: the number of tasks and tools that started and ended, and a text about the last of them."""

    def __init__(self) -> None:
        self._branches: dict[int, str] = {}
        self._open: dict[int, str] = {}
        self._count = 0
        self._words = ""
        self._news = anyio.Event()

    def take(self, event: Event) -> None:
        """Process an event of the run."""
        match event:
            case BranchStarted():
                count = "" if event.count is None else f" of {event.count}"
                self._branches[event.seq] = f" {event.index + 1}{count}"
            case TaskStarted() | ToolStarted():
                kind = "task" if isinstance(event, TaskStarted) else "tool"
                words = f"{kind} {event.name[:_MAX_TEXT]}{self._branches.get(event.parent or 0, '')}"
                self._open[event.seq] = words
                self._say(words)
            case TaskFinished() | ToolFinished():
                words = self._open.pop(event.started, event.name)
                self._say(f"{words} {'ended' if event.outcome == 'ok' else event.outcome}")
            case FinishedBase():
                self._branches.pop(event.started, None)
            case _:
                pass

    def _say(self, words: str) -> None:
        self._count += 1
        self._words = sendable(words)
        self._news.set()

    async def report(self, context: ServerRequestContext[Any, Any]) -> None:
        """Send progress to the client until cancelled, if the client asked for it."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await context.session.report_progress(float(self._count), message=self._words)
            await anyio.sleep(_PAUSE_S)


__all__ = ["Progress"]
