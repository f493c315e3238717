"""The SDK clients of one adapter on one event loop: enough for its calls in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit


class PooledClient:
    """An SDK client with its own connection pool, and the number of its calls in flight."""

    __slots__ = ("active", "base_url", "client")

    def __init__(self, client: Any) -> None:
        self.client = client
        self.base_url = str(client.base_url).rstrip("/")
        self.active = 0


class ClientPool:
    """Enough clients for the calls in flight, with at most ``size`` calls each.

    Parameters: ``client`` the first SDK client; ``make`` builds the HTTP client for a further one, a copy of it
    otherwise; ``size`` connections per client.
    """

    def __init__(self, client: Any, make: Callable[[], Any], size: int) -> None:
        self._make = make
        self._size = size
        self._clients = [PooledClient(client)]
        address = urlsplit(self._clients[0].base_url)
        self.server = address.netloc.rpartition("@")[2]
        """The host of the server, with its port unless that is the default of the scheme."""

    @property
    def headers(self) -> dict[str, object]:
        """The headers of every request as the first client has them, with those that authenticate it."""
        client = self._clients[0].client
        key = getattr(client, "api_key", None)
        return {**({"api-key": key} if isinstance(key, str) else {}), **client.auth_headers, **client.default_headers}

    def take(self) -> PooledClient:
        """The first client with a free connection. Return it by decrementing ``active``."""
        for pooled in self._clients:
            if pooled.active < self._size:
                break
        else:
            pooled = PooledClient(self._clients[0].client.copy(http_client=self._make()))
            self._clients.append(pooled)
        pooled.active += 1
        return pooled

    async def aclose(self) -> None:
        """Close every client."""
        await asyncio.gather(*(pooled.client.close() for pooled in self._clients))
