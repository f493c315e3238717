"""The part of a connection to PostgreSQL that the stores use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from agentflow.journal import connection as journal

CONNECT_S = 10
"""Seconds that a connection may take to be opened."""
COMMAND_S = 60
"""Seconds before a statement is cancelled and tried again: the network may have lost it."""
_SESSION = {"jit": "off", "application_name": "agentflow"}


class AsyncpgConnection(journal.DatabaseConnection, Protocol):
    """The methods of asyncpg's connection used here; asyncpg has no type hints."""

    def transaction(self) -> AbstractAsyncContextManager[None]: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...
    def is_closed(self) -> bool: ...
    async def close(self, *, timeout: float | None = None) -> None: ...
    def terminate(self) -> None: ...


async def connect(
    url: str, settings: Mapping[str, str] | None = None, patience_s: float | None = None
) -> AsyncpgConnection:
    """A new connection; ``settings`` are those of its session, ``patience_s`` its maximum duration. Raises the errors of
    asyncpg."""
    patience: dict[str, Any] = {"timeout": patience_s or CONNECT_S, "command_timeout": patience_s or COMMAND_S}
    opening = asyncpg.connect(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        _of_driver(url),
        server_settings={**_SESSION, **(settings or {})},
        **patience,
    )
    return cast(AsyncpgConnection, await opening)


def name_of(url: str) -> str:
    """The target of a URL: server, database and schema, independent of the user."""
    schema = parse_qs(urlsplit(url).query).get("search_path", [""])[-1]
    return f"{shown(url)}/{schema}"


def blobs_in(url: str) -> str | None:
    """The directory of large values that a URL names as ``?blobs=``; None without one."""
    return parse_qs(urlsplit(url).query).get("blobs", [None])[-1]


def _of_driver(url: str) -> str:
    """A URL without our own parameter."""
    address, mark, query = url.partition("?")
    return address + mark + "&".join([each for each in query.split("&") if not each.startswith("blobs=")])


def shown(url: str) -> str:
    """A URL for messages, without user and password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["the default host"])[0]
    return f"{host}/{unquote(parts.path).lstrip('/')}"
