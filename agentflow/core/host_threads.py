"""Runs plain functions of the host on worker threads, so that they hold up no event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from agentflow.core.call import CallContext

THREADS = 40
"""Maximum number of worker threads of one plain function."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling ``function`` gives a coroutine: it is an async function, or an object whose ``__call__`` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def as_async(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """``function`` as an async function; a plain one runs in a worker thread, with a copy of the context.

    A CallContext among its arguments is one whose events are published on the event loop. A cancellation abandons the
    thread and drops its result.
    """
    if is_async(function):
        return function

    # One limit per function and loop: a stuck function blocks threads of its own only.
    limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.CapacityLimiter] = WeakKeyDictionary()

    async def in_thread(*arguments: Any, **named: Any) -> Any:
        loop = asyncio.get_running_loop()
        limiter = limiters.get(loop)
        if limiter is None:
            limiter = limiters[loop] = anyio.CapacityLimiter(THREADS)
        plain = [_for_thread(value) for value in arguments]
        work = functools.partial(function, *plain, **{name: _for_thread(value) for name, value in named.items()})
        result = await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
        return await result if inspect.isawaitable(result) else result

    return in_thread


def _for_thread(value: Any) -> Any:
    return value.in_thread() if isinstance(value, CallContext) else value
