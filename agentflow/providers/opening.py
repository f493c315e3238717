"""The SDK clients of an adapter: one set for each live event loop, made on a thread, with errors that say what to set right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agentflow.core.data.errors import AgentflowError, ConfigurationError
from agentflow.lib.start_throttle import StartThrottle
from agentflow.lib.wait_queue import Gate
from agentflow.providers.client_pool import ClientPool
from agentflow.providers.exchange import Sdk, describe
from agentflow.providers.header_text import check_headers
from agentflow.providers.own_servers import Observed


@dataclass(frozen=True, slots=True)
class Opened:
    """The state of an adapter on one event loop: SDK clients, what the exchange needs of the SDK, and the gate."""

    clients: ClientPool
    sdk: Sdk
    gate: Gate
    throttle: StartThrottle
    observed: Observed


class Openings(dict[asyncio.AbstractEventLoop, Opened]):
    """What an adapter has opened, by event loop: a client belongs to the loop on which it was opened.

    Parameters: ``open`` makes the first client, on a worker thread (imports, certificates); ``gate`` gives the maximum number
    of calls in flight; ``provider`` is the provider's name in errors.
    """

    def __init__(self, open: Callable[[], tuple[ClientPool, Sdk]], gate: Callable[[], int], provider: str) -> None:
        super().__init__()
        self._open = open
        self._gate = gate
        self._provider = provider
        self._locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    async def ready(self, loop: asyncio.AbstractEventLoop) -> Opened:
        """What is open on ``loop``, opened now if need be. Raises ConfigurationError where no client can be made."""
        for closed in [closed for closed in tuple(self._locks) if closed.is_closed()]:
            self._locks.pop(closed, None)
            self.pop(closed, None)
        async with self._locks.setdefault(loop, asyncio.Lock()):
            if (opened := self.get(loop)) is None:
                clients, sdk = await asyncio.to_thread(self._made)
                opened = self[loop] = Opened(clients, sdk, Gate(self._gate()), StartThrottle(loop), Observed())
            return opened

    def _made(self) -> tuple[ClientPool, Sdk]:
        try:
            clients, sdk = self._open()
            check_headers(clients.headers, self._provider)
        except AgentflowError:
            raise
        except Exception as error:  # whatever the SDK or the HTTP library finds wrong with arguments and environment
            raise ConfigurationError(
                f"no client for {self._provider} can be made: {describe(error)}",
                code="config/client",
                hint="look at the address, the key and the variables of the environment that the SDK reads",
            ) from error
        return clients, sdk

    async def aclose(self) -> None:
        """Close all connections, those of other live loops on theirs."""
        opened = dict(self)
        self.clear()
        here = asyncio.get_running_loop()
        for loop, each in opened.items():
            if loop is here:
                await each.clients.aclose()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(each.clients.aclose(), loop))


__all__ = ["Opened", "Openings"]
