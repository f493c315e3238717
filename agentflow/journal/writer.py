"""The one thread that uses the database: all jobs queued while it was busy form one transaction.

Jobs of an event loop are handed over once an iteration of the loop adds no more of them, after a few iterations at most.
Handed over one by one, the first of a hundred records would wake the thread, and loop and thread would take the interpreter
from each other a hundred times. Only if the previous job was alone in its transaction, and that has been committed, the
next one is handed over at once: jobs that arrive while the thread is at work gather as before.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from agentflow.core.data.errors import AgentflowError, JournalError
from agentflow.core.events.journal_rows import EffectRow

FIRST_WAIT_S = 0.02
LONGEST_WAIT_S = 2.0
"""Maximum seconds between two attempts to write to an unavailable database."""
LEAVING_S = 5.0
"""Maximum seconds that jobs wait for such a database once the process is about to leave it."""
MAX_BATCH = 2_000
"""Maximum number of jobs in a transaction."""
GATHER_ITERATIONS = 8
"""Maximum number of iterations of an event loop that its first job waits for others."""

_log = logging.getLogger(__name__)


C = TypeVar("C")


class Unavailable(Exception):
    """The database cannot be used at the moment."""


class Database(Protocol):
    """The database of the thread. Its methods are called on that thread only."""

    def transact(self, jobs: Sequence[WriteJob]) -> None:
        """Do jobs in order, commit, and give each its ``result`` or ``error``.

        Raises Unavailable if the database may be usable later: jobs without ``done`` are tried again then. Any other
        error is the error of all jobs.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@dataclass(slots=True, eq=False)
class WriteJob:
    """Work for a transaction; ``work`` may be called again if the transaction could not be committed.

    ``done`` says that it was committed, though others of its batch were not. ``atomic`` is false for work that needs no transaction
    around it: one statement, or statements that only read.
    """

    future: asyncio.Future[Any]
    work: Callable[[Any], Any] | None = None
    result: Any = None
    error: BaseException | None = None
    done: bool = False
    atomic: bool = True


@dataclass(slots=True, eq=False)
class Put(WriteJob):
    """Records to store and keys to forget."""

    run: str = ""
    epoch: int = 0
    rows: Sequence[EffectRow] = ()
    drop: Sequence[bytes] = ()


_Stop: TypeAlias = None
_Batch: TypeAlias = list[WriteJob]


# One thread, with batches as transactions: a commit per record would be the cost of a run (decision 23)
class Writer(Generic[C]):
    """A thread that does jobs in order, many in one transaction, and settles their futures when it is committed.

    A transaction that cannot be committed because the database is locked, full or missing is retried until it can: nothing
    is dropped. The thread starts with the first job. ``C`` is the connection passed to work. ``commits`` batches took
    ``commit_s`` seconds, with all attempts.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._batches: queue.SimpleQueue[_Batch | _Stop] = queue.SimpleQueue()
        self._pending: dict[asyncio.AbstractEventLoop, _Batch] = {}
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._patience = float("inf")
        self._busy = False
        self._alone = False
        self.closed = False
        self.commits = 0
        self.commit_s = 0.0

    def submit(self, job: WriteJob) -> None:
        """Queue a job of the running loop. Raises JournalError (``durable/closed``)."""
        if self.closed:
            raise JournalError("the store of durable runs is closed", code="durable/closed", hint="open the flow again")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        loop = job.future.get_loop()
        pending = self._pending.get(loop)
        if pending is None:
            if self._alone and not self._busy and self._batches.empty():
                self._batches.put([job])
                return
            self._pending[loop] = [job]
            loop.call_soon(self._gather, loop, 1, GATHER_ITERATIONS)
        else:
            pending.append(job)

    def _gather(self, loop: asyncio.AbstractEventLoop, before: int, iterations: int) -> None:
        """Hand over the pending jobs once at most ``before`` are left, or no ``iterations`` to wait."""
        count = len(self._pending.get(loop, ()))
        if before < count < MAX_BATCH and iterations:
            loop.call_soon(self._gather, loop, count, iterations - 1)
        else:
            self._hand_over(loop)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs = self._pending.pop(loop, None)
        if jobs:
            self._batches.put(jobs)

    async def do(self, work: Callable[[C], Any]) -> Any:
        """Do ``work`` in a transaction, after all queued jobs, and return its result. Raises its errors."""
        job = WriteJob(asyncio.get_running_loop().create_future(), work)
        self.submit(job)
        return await job.future

    async def ask(self, work: Callable[[C], Any]) -> Any:
        """Like :meth:`do`, for work of one statement, or that only reads."""
        job = WriteJob(asyncio.get_running_loop().create_future(), work, atomic=False)
        self.submit(job)
        return await job.future

    def submit_quietly(self, work: Callable[[C], Any], *, atomic: bool = True) -> None:
        """Do ``work`` in the background; if that fails, or this is closed, it is left out."""
        if not self.closed:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            self.submit(WriteJob(future, work, atomic=atomic))

    def leave(self, within_s: float = LEAVING_S) -> None:
        """Wait for an unavailable database for some seconds more, and then no longer: jobs that it cannot do fail."""
        self._patience = min(self._patience, time.monotonic() + within_s)

    async def aclose(self) -> None:
        """Do the queued jobs, and end the thread. Jobs that cannot be stored now fail."""
        self.closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            self._hand_over(asyncio.get_running_loop())
            self._closing.set()
            self._batches.put(None)
            await asyncio.to_thread(thread.join)

    # -- in the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        more = True
        while more:
            jobs, more = self._next()
            if jobs:
                self._alone = len(jobs) == 1
                began = time.monotonic()
                self._commit(jobs)
                self.commits += 1
                self.commit_s += time.monotonic() - began
                self._busy = False  # before the loop is notified, which may have the next job at once
                _tell(jobs)
        self._database.close()

    def _next(self) -> tuple[list[WriteJob], bool]:
        """The queued jobs, at least one; False with them if they are the last."""
        jobs: list[WriteJob] = []
        batch = self._batches.get()
        self._busy = True
        while batch is not None:
            jobs += batch
            if len(jobs) >= MAX_BATCH:
                return jobs, True
            try:
                batch = self._batches.get_nowait()
            except queue.Empty:
                return jobs, True
        return jobs, False

    def _commit(self, jobs: list[WriteJob]) -> None:
        wait = FIRST_WAIT_S
        told = False
        while True:
            try:
                self._database.transact(jobs)
                if told:
                    _log.warning("%s: it can be written to again; nothing was lost", self._name)
                return
            except Unavailable as error:
                if self._closing.is_set() or time.monotonic() > self._patience:
                    _log.warning("%s: %s; no caller waits for it any longer", self._name, error)
                    _fail(jobs, error)
                    return
                if not told and wait > 0.3:
                    told = True
                    _log.warning("%s: %s; durable runs wait for it and lose nothing", self._name, error)
            except BaseException as error:  # noqa: BLE001 - handed to the waiters for these jobs
                _fail(jobs, error)
                return
            self._closing.wait(wait)
            wait = min(LONGEST_WAIT_S, wait * 2)


def _fail(jobs: list[WriteJob], error: BaseException) -> None:
    if not isinstance(error, AgentflowError):
        error = JournalError(f"the database of durable runs cannot be used: {error}", code="durable/database")
    for job in jobs:
        if not job.done:
            job.error = error


def _tell(jobs: list[WriteJob]) -> None:
    """Settle the futures of jobs, those of one event loop together."""
    if len(jobs) == 1:
        _tell_loop(jobs[0].future.get_loop(), jobs)
        return
    loops: dict[asyncio.AbstractEventLoop, list[WriteJob]] = {}
    for job in jobs:
        loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, mine in loops.items():
        _tell_loop(loop, mine)


def _tell_loop(loop: asyncio.AbstractEventLoop, jobs: list[WriteJob]) -> None:
    try:
        loop.call_soon_threadsafe(_settle, jobs)
    except RuntimeError:
        _log.debug("the event loop that waited for %d records has ended", len(jobs))


def _settle(jobs: list[WriteJob]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
