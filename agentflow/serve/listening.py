"""A listening server: uvicorn around a :class:`FlowServer`, with an orderly stop.

On Ctrl-C or SIGTERM it starts no more runs, gives active ones a grace period, cancels the rest and waits for their
clean-up; only then does it close connections, so that every reader sees how its run ended. A second signal skips the
grace period.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Generator

import uvicorn

from agentflow.core.data.errors import ConfigurationError
from agentflow.lib.loopback import is_loopback
from agentflow.serve.server import FlowServer

GRACE_S = 10.0
"""Seconds that active runs may continue when the server is asked to stop."""
_CLOSING_S = 5


def is_local(host: str) -> bool:
    """Whether a server that listens on ``host`` can be reached from this machine only."""
    return is_loopback(host.strip("[]"))


def open_socket(host: str, port: int) -> socket.socket:
    """A socket bound to ``host`` and ``port``. Raises ConfigurationError (``serve/address``) if impossible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}",
            code="serve/address",
            hint="another program may use the port; --port 0 picks a free one",
        ) from error


async def listen(
    server: FlowServer, sock: socket.socket, *, grace_s: float = GRACE_S, ready: Callable[[str], object] | None = None
) -> None:
    """Serve on ``sock`` until the process is asked to stop; active runs then have ``grace_s`` seconds.

    ``ready`` is called with the address once the server listens.
    """
    server.grace = None  # the signals are heard here
    config = uvicorn.Config(
        server, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=_CLOSING_S
    )
    host, port = sock.getsockname()[:2]
    written = f"[{host}]" if ":" in host else host
    await _Stoppable(config, server, grace_s, lambda: ready and ready(f"http://{written}:{port}")).serve([sock])


class _Stoppable(uvicorn.Server):
    """uvicorn, stopped through signal handlers of the event loop, and only after the runs have ended."""

    def __init__(self, config: uvicorn.Config, server: FlowServer, grace_s: float, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._flow_server = server
        self._grace_s = grace_s
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._flow_server.stop(self._grace_s)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        if sys.platform == "win32":
            with super().capture_signals():
                yield
            return
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self._stop)
        try:
            yield
        finally:
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(each)

    def _stop(self) -> None:
        if self.should_exit:
            self._flow_server.hurry()
        self.should_exit = True
