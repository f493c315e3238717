"""Addresses of model servers: what one may be, and how a request's path is joined to it."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit, urlunsplit

from agentflow.core.errors import ConfigurationError, clip


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
            problem, hint = "has a fragment", "leave out the # and what follows: servers are not sent it"
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


def without_credentials(url: str) -> str:
    """``url`` for display, without user name and password."""
    head, mark, rest = url.partition("://")
    host = (rest if mark else head).partition("/")[0]
    if "@" not in host:
        return url
    return url.replace(host.rpartition("@")[0] + "@", "***@", 1)


__all__ = ["check_base_url", "split_query", "without_credentials"]
