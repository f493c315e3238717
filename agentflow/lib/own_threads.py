"""The library's own worker threads, for files, the index and commands.

``asyncio.to_thread`` shares one pool with everything else in the process: behind forty blocking jobs of the host, a file of
one byte waited for seconds. Work here waits only for other work of the library.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import ParamSpec, TypeVar

from agentflow.core.call.daemon_threads import DaemonThreads, ThreadCall

T = TypeVar("T")
P = ParamSpec("P")
THREADS = 32
"""Maximum number of these threads in a process."""


# Own threads: behind forty blocking jobs of the host, one byte was read after 3.6 s (decision 33)
_OWN = DaemonThreads(THREADS, "agentflow")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_OWN.renew)


async def own_thread(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """The result of ``function``, called on one of these threads with a copy of the context; otherwise like
    ``asyncio.to_thread``."""
    return await asyncio.get_running_loop().run_in_executor(_OWN, ThreadCall(function, arguments, named))


# Imported on use, on a thread: few flows need the index, policies or a sandbox (decision 50)
async def loaded(module: str) -> None:
    """Import a module, on a thread unless it is there: an import may take a second, which the event loop cannot spare.

    The place that uses it then names it by an ordinary import, which finds it.
    """
    if not is_imported(module):
        await own_thread(import_module, module)


def is_imported(module: str) -> bool:
    """Whether a module is there as a whole: another thread may be importing it."""
    imported = sys.modules.get(module)
    return imported is not None and not getattr(imported.__spec__, "_initializing", False)
