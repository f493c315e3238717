"""Addresses of model servers: valid forms, and how a request's path is joined to one."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit, urlunsplit

from agentflow.core.data.errors import ConfigurationError, clip

_OWN_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")


def check_base_url(url: str, where: str = "") -> None:
    """Raise ConfigurationError (``config/base-url``) unless it is an ``http`` or ``https`` address of a server.

    It may have a path and a query, but no fragment and no credentials. ``where`` says where it comes from, if not from an
    argument.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        problem = "" if valid else "is not the address of a server"
    except ValueError:
        parts, problem = None, "is not the address of a server"
    hint = "write the full URL, for example http://localhost:8080/v1"
    if not problem and parts is not None:
        if not url.isprintable() or " " in url or "\\" in url:
            problem, hint = (
                "contains a blank, a line end or a backslash",
                "strip it; a file's text often ends in a line end",
            )
        elif parts.fragment or url.endswith("#"):
            problem, hint = "has a fragment", "leave out the # and the rest: it is not sent to servers"
        elif "@" in parts.netloc:
            problem, hint = (
                "contains credentials",
                "pass the key as api_key=, or another credential as "
                "settings={'extra_headers': {'Authorization': 'Basic ...'}}",
            )
    if problem:
        shown = clip(without_credentials(url), 200)
        raise ConfigurationError(
            f"the base URL {shown!r}{f' in {where}' if where else ''} {problem}", code="config/base-url", hint=hint
        )


def split_query(url: str) -> tuple[str, str]:
    """An address without its query and a final slash, and the query with its question mark: paths of requests go between."""
    parts: SplitResult = urlsplit(url)
    return urlunsplit((*parts[:2], parts.path.rstrip("/"), "", "")), f"?{parts.query}" if parts.query else ""


def is_host_of(url: str, ends: tuple[str, ...]) -> bool:
    """Whether the host of an address is one of ``ends``, or below one."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    return any([host == end or host.endswith(f".{end}") for end in ends])


def is_own(url: str) -> bool:
    """Whether an address is on this machine or on a private network, judged by its text, without asking a name server.

    Names without a dot (a container, a machine on the same network) and names under ``.localhost``, ``.local``,
    ``.internal``, ``.lan`` and ``.home.arpa`` are (RFC 6761, 6762, 8375, and ICANN's reservation of ``.internal``).
    """
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_OWN_NAMES)
    address = getattr(address, "ipv4_mapped", None) or address
    return not address.is_global


def without_credentials(url: str) -> str:
    """``url`` for display, without user name and password."""
    head, mark, rest = url.partition("://")
    host = (rest if mark else head).partition("/")[0]
    if "@" not in host:
        return url
    return url.replace(host.rpartition("@")[0] + "@", "***@", 1)
