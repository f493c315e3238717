"""Worker threads of the library's own, for files, the index and commands.

``asyncio.to_thread`` shares one pool with everything else in the process: behind forty jobs of the host that block, a file of one
byte waited for seconds. What is done here waits only for its like.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
THREADS = 32
"""Maximum number of these threads in a process."""


class _Pool:
    """The threads, which are started when they are needed; a forked process has its own."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(THREADS, "agentflow")

    def renew(self) -> None:
        """Forget the threads, which a fork does not take along."""
        self.executor = ThreadPoolExecutor(THREADS, "agentflow")


_POOL = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.renew)


async def own_thread(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """What ``function`` gives, on one of these threads with a copy of the context; otherwise as ``asyncio.to_thread``."""
    context = contextvars.copy_context()
    work = functools.partial(context.run, function, *arguments, **named)
    return await asyncio.get_running_loop().run_in_executor(_POOL.executor, work)
