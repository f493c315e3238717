"""The interface of a database for the stores.

Statements are written in the SQL of PostgreSQL, with parameters ``$1``. The file's connection rewrites them
(:mod:`agentflow.journal.sqlite`), so that each is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

Row: TypeAlias = Sequence[Any]


class DatabaseConnection(Protocol):
    """The methods of asyncpg's connection that both databases have. On a file they wait for nothing."""

    async def execute(self, query: str, *args: Any) -> str: ...
    async def executemany(self, command: str, args: Sequence[Row]) -> None: ...
    async def fetch(self, query: str, *args: Any) -> list[Row]: ...
    async def fetchrow(self, query: str, *args: Any) -> Row | None: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...


C = TypeVar("C", bound=DatabaseConnection)
Work: TypeAlias = Callable[[C], Coroutine[Any, Any, Any]]
"""Work within one transaction; it may be repeated if the commit fails."""


def changed(status: str) -> int:
    """The number of rows that a statement changed, from the value of :meth:`Connection.execute`."""
    return int(status.rpartition(" ")[2])
