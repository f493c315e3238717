"""The proxies that the environment names, as the HTTP libraries read them: for checks before a client is made, and for errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from agentflow.core.data.errors import ConfigurationError
from agentflow.providers.dialects.address import without_credentials

_SCHEMES = ("http", "https", "socks5", "socks5h")


@dataclass(frozen=True, slots=True)
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
    named = getproxies()
    if "*" in [host.strip() for host in named.get("no", "").split(",")]:
        return
    for scheme in ("http", "https", "all"):
        if url := named.get(scheme):
            names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY")
            variable = next((name for name in names if os.environ.get(name)), "the system's settings")
            yield Proxy(variable, url if "://" in url else f"http://{url}")


def proxy_of(url: str) -> Proxy | None:
    """The proxy through which ``url`` is reached; None if it is reached directly."""
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


__all__ = ["Proxy", "check_proxies", "proxies", "proxy_of"]
