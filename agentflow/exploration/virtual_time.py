"""An event loop without waits: when only timers are left, the clock jumps to the next one."""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _SkippingSelector(selectors.DefaultSelector):
    """Waits for results of threads, and skips waits for timers. ``busy`` counts the running threads."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0
        self.busy = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0 or self.busy:
            return super().select(timeout)
        events = super().select(0)
        if not events:
            self.skipped += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with timers that take no time. Its clock also advances while code runs."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return super().time() + self._skipping.skipped

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        self._skipping.busy += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _: object) -> None:
        self._skipping.busy -= 1


async def in_virtual_time(work: Callable[[Callable[[], bool]], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` on a loop and a thread of its own, in an empty context, and return its result.

    ``work`` takes a function that returns whether to stop: true after a cancellation here, which waits for the end of ``work``.
    """
    stopped = threading.Event()

    def in_thread() -> T:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(work(stopped.is_set))

    running = asyncio.get_running_loop().run_in_executor(None, contextvars.Context().run, in_thread)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.wait([running])
        raise
