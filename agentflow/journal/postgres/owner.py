"""The owner of a run among the processes of all machines: a lock of a PostgreSQL session, which ends with the process.

The lock is on a random number, the *owner*, which is stored with the runs it owns. A killed process frees it at once, a
lost machine once it no longer answers the server's probes. A process that hangs keeps its session, and is recognised by the
time of its last beat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import secrets
import threading

import asyncpg

from agentflow.journal.postgres.connection import AsyncpgConnection, connect
from agentflow.journal.rows import escape
from agentflow.journal.writer import Writer

BEAT_S = 5.0
"""Seconds between two beats of an owner."""
STALE_S = 15.0
"""Seconds without a beat before an owner loses its session."""
_RETRY_S = 1.0
_KEEPALIVE = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
_STALE = """
with stale as materialized (select owner from af_owner where seen < now() - make_interval(secs => $1))
select owner, l.pid from stale left join pg_locks l on l.locktype = 'advisory' and l.objsubid = 1 and l.granted
  and l.mode = 'ExclusiveLock' and l.database = (select oid from pg_database where datname = current_database())
  and l.classid = (owner >> 32)::oid and l.objid = (owner & 4294967295)::oid
"""

_log = logging.getLogger(__name__)


class OwnerSession:
    """The lock of this process, on its own connection and thread, so that a busy event loop does not count as dead.

    ``id`` is the owner, ``build`` and ``slots`` describe it once it is a worker, ``lost`` is the number of lost sessions. A
    lost session is opened again; an owner that took over a run meanwhile has the higher epoch.
    """

    def __init__(self, url: str) -> None:
        self.id = secrets.randbits(62) + 1
        self.lost = 0
        self.build: str | None = None
        self.slots: int | None = None
        self._url = url
        self._held = threading.Event()
        self._starting = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_held(self) -> bool:
        """Whether :meth:`ensure` returns at once."""
        return self._held.is_set()

    def ensure(self) -> None:
        """Wait until the lock is held, for as long as the database is away; or until this is closed."""
        with self._starting:
            if self._thread is None and not self._closed:
                self._loop = asyncio.new_event_loop()
                self._task = self._loop.create_task(self._main())
                self._thread = threading.Thread(target=self._run, name="owner of durable runs", daemon=True)
                self._thread.start()
        self._held.wait()

    def close(self) -> None:
        """Release the lock, and wait until it is done."""
        with self._starting:
            self._closed = True
            self._held.set()
            loop, task, thread = self._loop, self._task, self._thread
        if loop is not None and task is not None and thread is not None and thread.is_alive():
            with contextlib.suppress(RuntimeError):  # its loop is closed: the thread is ending
                loop.call_soon_threadsafe(task.cancel)
            thread.join()

    def _run(self) -> None:
        assert self._loop is not None and self._task is not None
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
        finally:
            self._loop.close()

    async def _main(self) -> None:
        while True:
            try:
                await self._hold()
            except _ERRORS as error:
                self.lost += self._held.is_set()
                _log.warning("the session that owns durable runs was lost: %s; another is opened", error)
            await asyncio.sleep(_RETRY_S)

    async def _hold(self) -> None:
        db = await connect(self._url, _KEEPALIVE)
        try:
            await db.execute("select pg_advisory_lock($1)", self.id)
            await self.tell(db)
            self._held.set()
            while True:
                await asyncio.sleep(BEAT_S)
                await self.tell(db)
        except asyncio.CancelledError:
            with contextlib.suppress(*_ERRORS):
                await db.execute("delete from af_owner where owner = $1", self.id)
                await db.close(timeout=_RETRY_S)
            raise
        finally:
            db.terminate()

    async def tell(self, db: AsyncpgConnection) -> None:
        """Record that this process is alive, and its description."""
        await db.execute(
            "insert into af_owner(owner, host, pid, build, slots) values ($1, $2, $3, $4, $5)"
            " on conflict (owner) do update set seen = now(), build = excluded.build, slots = excluded.slots",
            self.id,
            platform.node(),
            os.getpid(),
            self.build,
            self.slots,
        )


async def is_alive(db: AsyncpgConnection, owner: int) -> bool:
    """Whether another process than this one holds the lock of ``owner``."""
    return not await db.fetchval("select pg_try_advisory_xact_lock_shared($1)", owner)


async def end_stale(db: AsyncpgConnection) -> None:
    """End the sessions of hanging owners, and remove the rows of vanished ones."""
    for owner, pid in await db.fetch(_STALE, STALE_S):
        if pid is not None:
            await db.execute("select pg_terminate_backend($1)", pid)
        else:
            await db.execute("delete from af_owner where owner = $1", owner)


class OpenedConversations:
    """The conversations that ``owner`` has opened, for all processes: ``af_opened`` has a row for each open one."""

    def __init__(self, writer: Writer[AsyncpgConnection], owner: OwnerSession) -> None:
        self._writer = writer
        self._owner = owner
        self._open: set[str] = set()

    async def acquire(self, name: str) -> bool:
        """Open something; False if it is open already, here or in another process."""

        async def work(db: AsyncpgConnection) -> bool:
            opener = await db.fetchval(
                "insert into af_opened(name, owner) values ($1, $2)"
                " on conflict (name) do update set name = excluded.name returning owner",
                escape(name),
                self._owner.id,
            )
            if name in self._open or (opener != self._owner.id and await is_alive(db, opener)):
                return False
            await db.execute("update af_opened set owner = $2 where name = $1", escape(name), self._owner.id)
            self._open.add(name)
            return True

        await self._writer.do(lambda db: db.fetchval("select 1"))
        await asyncio.to_thread(self._owner.ensure)
        try:
            return await self._writer.do(work)
        except asyncio.CancelledError:
            self.release(name)
            raise

    def release(self, name: str) -> None:
        """Close it, in the background."""

        async def work(db: AsyncpgConnection) -> None:
            self._open.discard(name)
            await db.execute("delete from af_opened where name = $1 and owner = $2", escape(name), self._owner.id)

        self._writer.submit_quietly(work)
