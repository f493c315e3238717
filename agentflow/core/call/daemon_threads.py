"""Worker threads that do not hold the end of the process, for code that may never come back."""

from __future__ import annotations

import atexit
import contextvars
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")
LEAVE_S = 2.0
"""Seconds that the end of the process waits for calls still at work."""
_IDLE_S = 10.0
_log = logging.getLogger("agentflow")


class ThreadCall:
    """A call for a thread, in a copy of the context: ``function`` with its arguments.

    ``name`` names the function, ``where`` the caller (the parts of a path, from the outside in). ``left``: the caller no
    longer waits for it; ``ended``: it has returned.
    """

    __slots__ = ("_arguments", "_context", "_function", "_named", "ended", "left", "name", "where")

    def __init__(
        self, function: Callable[..., Any], arguments: Any = (), named: Any = None, *, where: tuple[str, ...] = ()
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._named: dict[str, Any] = named or {}
        self._context = contextvars.copy_context()
        self.name = _name(function)
        self.where = where
        self.left = self.ended = False

    def __call__(self) -> Any:
        """Carry out the call. Raises the errors of the function."""
        try:
            return self._context.run(self._function, *self._arguments, **self._named)
        except StopIteration as error:  # which no future can hold
            raise RuntimeError(f"{self.name} raised StopIteration") from error
        finally:
            self.ended = True


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        inner: Any = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        in_context = isinstance(getattr(inner, "__self__", None), contextvars.Context)  # as asyncio.to_thread calls it
        function = function.args[0] if in_context else inner
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


class DaemonThreads(ThreadPoolExecutor):
    """An executor of at most ``most`` threads, which the interpreter does not wait for when it ends.

    Calls at work then get :data:`LEAVE_S` seconds; those still running are named in a warning.
    """

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, name)
        self._most = most
        self._name = name
        self.renew()

    def renew(self) -> None:
        """Forget the threads and their calls, which a fork does not take along."""
        self._mutex = threading.Lock()
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._free = threading.Semaphore(0)
        self._count = 0
        self._open: dict[Future[Any], Callable[[], Any]] = {}
        self._registered = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a thread call ``fn``, a :class:`ThreadCall` or any other function."""
        job = fn if isinstance(fn, ThreadCall) else ThreadCall(fn, args, kwargs)
        future: Future[Any] = Future()
        with self._mutex:
            self._open[future] = job
            self._work.put((future, job))
            begin = not self._free.acquire(blocking=False) and self._count < self._most
            self._count += begin
            if not self._registered:
                self._registered = True
                atexit.register(self._leave)
        future.add_done_callback(self._done)
        if begin:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the calls at work, for :data:`LEAVE_S` seconds at most."""
        if wait:
            self._at_work(LEAVE_S)

    def left_at(self, where: tuple[str, ...]) -> list[ThreadCall]:
        """The calls on behalf of ``where``, or of a path below it, still at work although their callers have left."""
        open_jobs = [job for job in list(self._open.values()) if isinstance(job, ThreadCall)]
        return [job for job in open_jobs if job.left and not job.ended and job.where[: len(where)] == where]

    def _done(self, future: Future[Any]) -> None:
        self._open.pop(future, None)

    def _run(self) -> None:
        while True:
            try:
                future, job = self._work.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._mutex:
                    if self._free.acquire(blocking=False):  # else a call is on its way to this thread
                        self._count -= 1
                        return
                continue
            if future.set_running_or_notify_cancel():
                try:
                    result = job()
                except BaseException as error:  # noqa: BLE001 - of any kind: it is raised where the call is awaited
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del future, job
            self._free.release()

    def _at_work(self, seconds: float) -> list[str]:
        """The names of the calls still at work after at most so many seconds."""
        running = [future for future in list(self._open) if future.running()]
        late = wait(running, seconds).not_done if running else set[Future[Any]]()
        return [getattr(self._open.get(future), "name", "") for future in late]

    def _leave(self) -> None:
        began = time.monotonic()
        for name in self._at_work(LEAVE_S):
            _log.warning(
                "%s has not come back after %.0f s; the process ends without it", name, time.monotonic() - began
            )
