"""Runs plain functions of the host on worker threads, so that they hold up no event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from agentflow.core.call import CallContext

Limiters: TypeAlias = "WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.CapacityLimiter]"
THREADS = 40
"""Maximum number of worker threads of one plain function."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling ``function`` gives a coroutine: it is an async function, or an object whose ``__call__`` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


class _Limiters:
    """The limits of plain functions that nobody keeps in an async form, while the functions live."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Any, Limiters] = WeakKeyDictionary()

    def of(self, function: Callable[..., Any]) -> Limiters:
        """The limits of a function; methods share those of their function, and what cannot be kept those of its class."""
        key: Any = getattr(function, "__func__", function)
        try:
            return self._of.setdefault(key, WeakKeyDictionary())
        except TypeError:
            return self._of.setdefault(type(key), WeakKeyDictionary())


_LIMITERS = _Limiters()


async def on_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """What ``function`` gives: an async one is awaited here, a plain one runs as that of :func:`as_async`."""
    if is_async(function):
        return await function(*arguments)
    return await _in_thread(function, _LIMITERS.of(function), arguments, {})


def as_async(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """``function`` as an async function; a plain one runs in a worker thread, with a copy of the context.

    A CallContext among its arguments is one whose events are published on the event loop. A cancellation abandons the
    thread and drops its result.
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
    work = functools.partial(function, *plain, **{name: _for_thread(value) for name, value in named.items()})
    result = await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
    return await result if inspect.isawaitable(result) else result


def _for_thread(value: Any) -> Any:
    return value.in_thread() if isinstance(value, CallContext) else value
