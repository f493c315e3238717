"""The connection to PostgreSQL of the writer's thread, and which of its errors are temporary."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import asyncpg

from agentflow.core.data.errors import AgentflowError, JournalError
from agentflow.journal.postgres.connection import CONNECT_S, AsyncpgConnection, connect, shown
from agentflow.journal.postgres.schema import migrate
from agentflow.journal.writer import Put, Unavailable, WriteJob

_PASSING = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.LockNotAvailableError,
    asyncpg.PostgresSystemError,
    OSError,  # TimeoutError too
)
"""Errors of an unavailable server (away, starting, stopping, full), or one that had to undo one transaction for another."""
_STARTING = (asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError)
T = TypeVar("T")


class Blocking:
    """An event loop that runs during one call at a time, on the calling thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work`` and return its result."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Close the loop."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()


class DatabaseLink:
    """One connection to a database with the tables of this version, opened on demand and again after a loss.

    After ``patience_s`` seconds a silent server counts as unavailable.
    """

    def __init__(self, url: str, patience_s: float | None = None) -> None:
        self.name = f"the PostgreSQL database {shown(url)}"
        self._url = url
        self._patience_s = patience_s
        self._db: AsyncpgConnection | None = None
        self._ever = False

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncpgConnection]:
        """A transaction. Raises Unavailable, and JournalError (``durable/database``, ``durable/version``)."""
        async with self.connection() as db, db.transaction():
            yield db

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncGenerator[AsyncpgConnection]:
        """The connection, in the mode that commits each statement by itself. Raises the errors of :meth:`transaction`."""
        db = self._db if self._db is not None and not self._db.is_closed() else await self._open()
        try:
            yield db
        except _PASSING as error:
            raise Unavailable(str(error) or type(error).__name__) from error
        except asyncpg.InterfaceError as error:
            if not db.is_closed():
                raise
            raise Unavailable(str(error)) from error
        except asyncpg.PostgresError as error:
            raise self._unusable(error) from error

    async def _open(self) -> AsyncpgConnection:
        try:
            db = await connect(self._url, patience_s=self._patience_s)
        except _STARTING as error:
            raise Unavailable(str(error)) from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
            if self._ever and isinstance(error, _PASSING):
                raise Unavailable(str(error)) from error
            raise self._unusable(error) from error
        try:
            await migrate(db, self.name)
        except _PASSING as error:
            db.terminate()
            raise Unavailable(str(error)) from error
        except asyncpg.PostgresError as error:
            db.terminate()
            raise self._unusable(error) from error
        except BaseException:  # the connection is closed, and the error raised again
            db.terminate()
            raise
        self._db, self._ever = db, True
        return db

    def _unusable(self, error: Exception) -> JournalError:
        return JournalError(
            f"{self.name} cannot be used for durable runs: {error}",
            code="durable/database",
            hint="durable='postgresql://user@host/database', where the user may create tables",
        )

    async def aclose(self) -> None:
        """Close the connection."""
        db, self._db = self._db, None
        if db is not None and not db.is_closed():
            with contextlib.suppress(*_PASSING, asyncpg.InterfaceError):
                await db.close(timeout=CONNECT_S)


class PostgresDatabase:
    """The :class:`~agentflow.journal.writer.Database` behind ``link``.

    ``put`` stores records, all or none: neighbouring records together, in one transaction or one statement. Every other job
    is separate. ``refused`` is the number of jobs with records of a run that another process had taken over.
    """

    def __init__(self, link: DatabaseLink, put: Callable[[AsyncpgConnection, Sequence[Put]], Awaitable[None]]) -> None:
        self.refused = 0
        self._link = link
        self._put = put
        self._blocking = Blocking()

    def transact(self, jobs: Sequence[WriteJob]) -> None:
        self._blocking.run(self._transact(jobs))

    async def _transact(self, jobs: Sequence[WriteJob]) -> None:
        puts: list[Put] = []
        for job in jobs:
            if job.done:
                continue
            if isinstance(job, Put):
                puts.append(job)
                continue
            await self._store(puts)
            puts = []
            await self._do(job)
        await self._store(puts)

    async def _store(self, puts: Sequence[Put]) -> None:
        if not puts:
            return
        for job in puts:
            job.error = None
        async with self._link.connection() as db:
            await self._put(db, puts)
        for job in puts:
            job.done = True
            self.refused += isinstance(job.error, JournalError) and job.error.code == "durable/owned"

    async def _do(self, job: WriteJob) -> None:
        assert job.work is not None
        job.error = None
        try:
            async with self._link.transaction() if job.atomic else self._link.connection() as db:
                job.result = await job.work(db)
        except (AgentflowError, TypeError, ValueError, RecursionError) as error:  # the latter: no JSON data
            job.error = error
        job.done = True

    def close(self) -> None:
        self._blocking.run(self._link.aclose())
        self._blocking.close()
