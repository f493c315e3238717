"""Tasks that work beside each other for as long as an object lives: the end of one is nothing to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskTable:
    """The tasks of one event loop that nobody awaits one by one; they are kept until they end.

    Unlike in a task group, a task that fails ends alone: its error goes to the loop's exception handler.
    """

    __slots__ = ("_tasks", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """Start ``work``, in a task with this name."""
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self) -> None:
        """Wait until all have ended, also those that others begin meanwhile. A cancellation cancels them, and is raised when they have."""
        cancelled: asyncio.CancelledError | None = None
        while self._tasks:
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError as error:
                cancelled = error
                for task in self._tasks:
                    task.cancel()
        if cancelled is not None:
            raise cancelled

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(
            error, KeyboardInterrupt
        ):  # which has ended the loop's own turn by then
            context = {"message": f"{task.get_name()} ended with an error", "exception": error, "task": task}
            self.loop.call_exception_handler(context)
