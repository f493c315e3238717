"""Makes waits visible: a pair of events and, after a while, a warning."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agentflow.core.call.call import CallContext
from agentflow.core.events.events import WaitReason, WaitStarted

PATIENCE_S = 1.0
"""Seconds of waiting after which a warning is published."""


@asynccontextmanager
async def waiting(call: CallContext, reason: WaitReason, *, code: str, message: str) -> AsyncGenerator[None, None]:
    """A block that waits: WaitStarted and WaitFinished at the path of ``call``, and a Warning after a while."""
    with call.scope(WaitStarted, call.path, reason=reason) as scope:
        late = asyncio.get_running_loop().call_later(PATIENCE_S, scope.call.warn, code, message)
        try:
            yield
        finally:
            late.cancel()
