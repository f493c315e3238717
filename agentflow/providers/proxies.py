"""The proxies that the environment names, as the HTTP libraries read them: for checks before a client is made, and for errors."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.lib.own_threads import own_thread
from agentflow.providers.dialects.address import without_credentials


class PooledClient:
    """An SDK client with its own connection pool, and the number of its calls in flight."""

    __slots__ = ("active", "base_url", "client")

    def __init__(self, client: Any) -> None:
        self.client = client
        self.base_url = str(client.base_url).rstrip("/")
        self.active = 0


class ClientPool:
    """Enough clients for the calls in flight, with at most ``size`` calls each.

    Parameters: ``client`` the first SDK client, over the HTTP client ``http``; ``make`` builds the HTTP client for a further
    one, a copy of it otherwise; ``size`` connections per client.
    """

    def __init__(self, client: Any, http: Any, make: Callable[[], Any], size: int) -> None:
        self._http = http
        self._make = make
        self._size = size
        self._clients = [PooledClient(client)]
        address = urlsplit(self._clients[0].base_url)
        self.server = address.netloc.rpartition("@")[2]
        """The host of the server, with its port unless it is the default of the scheme."""

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

    async def connect(self) -> None:
        """Open a connection that the first call finds, by asking for the headers of the server's address, without a key. Raises
        the errors of the transport."""
        address = self._clients[0].base_url
        asked = await own_thread(proxy_of, address)
        # The event loop resolves names on threads that hold the exit of a process, as long as a resolver does not answer
        await own_thread(socket.getaddrinfo, urlsplit(address if asked is None else asked.url).hostname, None)
        await self._http.head(address)

    async def aclose(self) -> None:
        """Close every client."""
        await asyncio.gather(*(pooled.client.close() for pooled in self._clients))


_SCHEMES = ("http", "https", "socks5", "socks5h")


@frozen
class Proxy:
    """A proxy: its ``url``, and the ``variable`` that names it."""

    variable: str
    url: str

    @property
    def is_socks(self) -> bool:
        """Whether it speaks SOCKS rather than HTTP."""
        return self.url.startswith("socks5")

    def __str__(self) -> str:
        return f"the proxy {without_credentials(self.url)} ({self.variable})"


def proxies() -> Iterator[Proxy]:
    """The proxies of the environment, none if everything is exempt from them."""
    from urllib.request import getproxies  # loaded with the SDK of the asking client

    named = getproxies()
    if "*" in [host.strip() for host in named.get("no", "").split(",")]:
        return
    for scheme in ("http", "https", "all"):
        if url := named.get(scheme):
            names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY")
            variable = next((name for name in names if os.environ.get(name)), "the system's settings")
            yield Proxy(variable, url if "://" in url else f"http://{url}")


def proxy_of(url: str) -> Proxy | None:
    """The proxy for ``url``; None if it is reached directly."""
    from urllib.request import proxy_bypass

    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    by_scheme = {proxy.variable.partition("_")[0].lower(): proxy for proxy in proxies()}
    return by_scheme.get(parts.scheme) or by_scheme.get("all")


def check_proxies(*, aiohttp: bool | None) -> bool:
    """Raise ConfigurationError (``config/proxy``) for a proxy that no client can be made for.

    ``aiohttp`` is the choice of transport. Returns whether one of the proxies speaks SOCKS, which the aiohttp transport does not.
    """
    socks = False
    for proxy in proxies():
        try:
            parts = urlsplit(proxy.url)
            valid = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0 and proxy.url.isprintable()
        except ValueError:
            valid = False
        if not valid:
            raise ConfigurationError(
                f"{proxy} is not the address of a proxy",
                code="config/proxy",
                hint=f"write {proxy.variable}=http://host:3128, or unset it; hosts in NO_PROXY are reached without it",
            )
        socks = socks or proxy.is_socks
        if proxy.is_socks and (aiohttp or find_spec("socksio") is None):
            raise ConfigurationError(
                f"{proxy} speaks SOCKS, which "
                + ("the aiohttp transport does not" if aiohttp else "needs a package that is not installed: socksio"),
                code="config/proxy",
                hint="leave aiohttp=True out" if aiohttp else "pip install socksio, or name an HTTP proxy",
            )
    return socks
