"""Runs plain functions of the host on worker threads, so that they hold up no event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import anyio

from agentflow.core.call.call import CallContext, executing_call
from agentflow.core.call.daemon_threads import DaemonThreads, ThreadCall

Limiters: TypeAlias = "WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.CapacityLimiter]"
THREADS = 40
"""Maximum number of worker threads of one plain function."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling ``function`` returns a coroutine: it is an async function, or an object with an async ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


class _Limiters:
    """The limits of plain functions without a stored async form, as long as the functions live."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Any, Limiters] = WeakKeyDictionary()

    def of(self, function: Callable[..., Any]) -> Limiters:
        """The limits of a function; methods share those of their function, and objects that cannot carry them those of
        their class."""
        key: Any = getattr(function, "__func__", function)
        try:
            return self._of.setdefault(key, WeakKeyDictionary())
        except TypeError:
            return self._of.setdefault(type(key), WeakKeyDictionary())


_LIMITERS = _Limiters()
_HOST = DaemonThreads(1_000_000, "agentflow tool")
"""The threads of all plain functions, bounded by :data:`THREADS`."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_HOST.renew)


def left_at_work(call: CallContext) -> frozenset[ThreadCall]:
    """The abandoned calls of plain functions below ``call`` still at work on their threads."""
    return frozenset(_HOST.left_at(_where(call)))


def _where(call: CallContext | None) -> tuple[str, ...]:
    return () if call is None else (call.run_id, *call.path.split("/"))


async def on_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of ``function``: an async one is awaited here, a plain one runs as by :func:`as_async`."""
    if is_async(function):
        return await function(*arguments)
    return await _in_thread(function, _LIMITERS.of(function), arguments, {})


def as_async(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """``function`` as an async function; a plain one runs in a worker thread, with a copy of the context.

    A CallContext among its arguments is replaced by one that publishes its events on the event loop. A cancellation abandons the
    thread and drops its result; :func:`left_at_work` lists it. It does not delay the end of the process.
    """
    if is_async(function):
        return function

    # One limit per function and loop: a stuck function blocks threads of its own only.
    limiters: Limiters = WeakKeyDictionary()

    async def in_thread(*arguments: Any, **named: Any) -> Any:
        return await _in_thread(function, limiters, arguments, named)

    return in_thread


async def _in_thread(
    function: Callable[..., Any], limiters: Limiters, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    loop = asyncio.get_running_loop()
    limiter = limiters.get(loop)
    if limiter is None:
        limiter = limiters[loop] = anyio.CapacityLimiter(THREADS)
    plain = [_for_thread(value) for value in arguments]
    kept = {name: _for_thread(value) for name, value in named.items()}
    job = ThreadCall(function, plain, kept, where=_where(executing_call()))
    async with limiter:
        future = loop.run_in_executor(_HOST, job)
        try:
            if future.done():  # from Python 3.14 on, when the thread was faster: its events wait in the loop
                await asyncio.sleep(0)
            result = await future
        except asyncio.CancelledError:
            job.left = not job.ended
            raise
    return await result if inspect.isawaitable(result) else result


def _for_thread(value: Any) -> Any:
    return value.in_thread() if isinstance(value, CallContext) else value
