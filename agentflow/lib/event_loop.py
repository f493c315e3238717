"""Access to the running event loop, with an error for programs that run none or another kind."""

from __future__ import annotations

import asyncio

from agentflow.core.data.errors import ConfigurationError


def running_loop() -> asyncio.AbstractEventLoop:
    """The running asyncio loop. Raises ConfigurationError if there is none, as under Trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(
            "no asyncio event loop is running: agentflow runs on asyncio, not on Trio",
            code="config/no-asyncio",
            hint="start it with asyncio.run(...), or under Trio inside of trio_asyncio.open_loop()",
        ) from None
