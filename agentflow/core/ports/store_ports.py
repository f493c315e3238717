"""Storage ports: durable runs, conversations, reusable results, and event logs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from agentflow.core.call.call import CallContext
from agentflow.core.data.event_log import FIRST, EventId, LogBounds, LogEntry, LogInfo
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import CompiledTask
from agentflow.core.data.results import TaskResult
from agentflow.core.data.walk import Work
from agentflow.core.events.journal_rows import (
    BranchEnd,
    Claim,
    Deposit,
    EffectRow,
    EffectState,
    FleetCounts,
    Leased,
    NewRun,
    OwnedRun,
    PastRow,
    QueueLoad,
    RunRow,
    RunStatus,
    Schedule,
    SessionChanges,
    SessionInfo,
    StoredResult,
    StoredSession,
    WorkerInfo,
)
from agentflow.core.ports.ports import Tool

if TYPE_CHECKING:
    from agentflow.core.data.allowances import Allowance, PurseGrant, PurseUse, Spending
    from agentflow.core.events.run_query import RunQuery
    from agentflow.core.ports.batch_ports import BatchStore  # few flows have purses


class SessionStore(Protocol):
    """The store of conversations, each with one owner at a time. Raises JournalError as :class:`JournalStore`."""

    async def open(self, name: str) -> StoredSession | None:
        """Become the owner of a conversation, which is empty if new; None if it has another owner."""
        ...

    async def runs(self, name: str) -> tuple[str | None, str | None]:
        """The run that holds a conversation, and the one that ended with it last."""
        ...

    async def list(self, limit: int) -> list[SessionInfo]:
        """Conversations, the last changed first."""
        ...

    async def opening(self, run: str) -> list[Any]:
        """The exchanges before a run, oldest first."""
        ...

    async def change(self, name: str, changes: SessionChanges) -> None:
        """Store changes of a conversation owned here."""
        ...

    async def remove(self, name: str) -> bool:
        """Delete a conversation opened here; false if there is none. Raises SessionBusy while a run holds it."""
        ...

    def close(self, name: str) -> None:
        """Give up a conversation."""
        ...


class ResultStore(Protocol):
    """The store of results that other runs may reuse, by content. Raises JournalError as :class:`JournalStore`."""

    async def find(self, content: bytes, since: float) -> StoredResult | None:
        """The result of this content, unless it is older than the unix time ``since``."""
        ...

    async def keep(self, content: bytes, result: StoredResult) -> None:
        """Store a result, in the place of an older one."""
        ...


class ReusePort(Protocol):
    """Results for reuse: those of tasks and tools declared with ``reuse``."""

    async def once(
        self,
        gives: Tool | CompiledTask,
        content: object,
        reuse: str,
        call: CallContext,
        work: Callable[[], Awaitable[TaskResult]],
    ) -> TaskResult:
        """The result of ``work``, the run of the task or tool ``gives`` that ``call`` is the call of, or that of an equal
        ``content`` not longer ago than ``reuse``.

        Of concurrent equal calls one is carried out. Only successes are kept; every caller gets the value as it is read
        back. Raises the errors of the work, and ConfigurationError for a type with values that cannot be stored
        (``durable/no-value``, ``durable/secret``).
        """
        ...


# A lease has an owner and an expiry, and counts as spent once its owner is dead (decision 54)
class PurseStore(Protocol):
    """The purses that all processes of a database spend from. Raises JournalError as :class:`JournalStore`."""

    async def lease(
        self, name: str, starts: float, ends: float | None, allowance: Allowance, asked: Spending
    ) -> PurseGrant:
        """Lend this process ``asked`` of a purse, in the period from ``starts`` to ``ends``: all, or the rest if no living
        process holds any of it."""
        ...

    async def settle(self, name: str, starts: float, ends: float | None, spent: Spending, number: int) -> None:
        """End the lease of this process, which has ``spent`` so much of it, or more.

        ``number`` rises with each call for a purse: one that was carried out before changes nothing.
        """
        ...

    async def hold(self, name: str, starts: float, ends: float | None, id: str, held: Spending) -> None:
        """Move an amount of this process's lease to the hold ``id``, which outlives the process and counts as spent. Once."""
        ...

    async def close(self, name: str, starts: float, id: str, spent: Spending) -> None:
        """End the hold ``id``: ``spent`` takes its place. Nothing changes if it has ended."""
        ...

    async def look(self, name: str, starts: float) -> PurseUse:
        """The use of a purse in a period."""
        ...

    async def list(self, now: float) -> list[PurseUse]:
        """The use of all purses in the periods that contain the unix time ``now``, by name."""
        ...


@frozen
class RateShare:
    """A process's share of a rate: the first ``calls`` of its request, and none for the next ``delay`` seconds.

    ``processes`` is the number of processes that share the rate.
    """

    calls: int
    delay: float
    processes: int


class RateStore(Protocol):
    """Counts the requests of several processes to models together."""

    def share(
        self,
        key: str,
        seconds: tuple[float, float],
        burst: float,
        calls: Sequence[int],
        more: int = 0,
        hold: float = 0.0,
    ) -> asyncio.Future[RateShare]:
        """Count as many of ``calls``, given by their tokens, as are allowed now, in order.

        ``seconds`` are the shares of a request and of a token in the rate of ``key``, ``burst`` the number allowed at once.
        ``more`` tokens are counted in addition, and no call is allowed for ``hold`` seconds. Fails at once, with
        JournalError or OSError, if the store is unreachable.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection."""
        ...


class JobQueue(Protocol):
    """Jobs of workers: each is the next slice of a run. The store that it belongs to queues them."""

    async def prepare(self) -> None:
        """Make the tables of the queue, where they are missing. Raises JournalError, and ConfigurationError (``config/extra``)."""
        ...

    async def cancel(self, run: str) -> None:
        """Have an unfinished run cancelled by a worker: its present one, or the next that takes its job."""
        ...

    async def fork(
        self,
        run: str,
        epoch: int,
        form: EffectRow,
        branches: Sequence[tuple[str, NewRun]],
        opening: Sequence[Any],
        deposit: Deposit | None = None,
    ) -> None:
        """Store the open record of a form of ``run``, and a run with its job for each of its ``branches``, in one
        transaction.

        Each begins with the exchanges ``opening``. The first end that settles the form cancels the others. When the last of
        them has ended, the record has, too: with ``{"ok": path}`` of the record of a success that settled it, with the
        error of a failure that did; with ``{"failures": {path: outcome}}`` if all failed and none of the failures settled
        it. ``deposit`` is the money and tokens that the run and its branches share from now on. If the form has a record
        already, nothing is stored. Raises JournalError (``durable/owned``) when ``epoch`` is not that of the run.
        """
        ...

    def lease(self, run: str, usd: float, tokens: int) -> asyncio.Future[Leased]:
        """Set US dollars and tokens aside for a run that shares them with others."""
        ...

    def give_back(self, run: str, usd: float, tokens: int) -> asyncio.Future[None]:
        """Take back the whole reservation of a run; ``usd`` and ``tokens`` are the unspent parts."""
        ...

    def give_up(self, run: str, epoch: int, key: bytes) -> asyncio.Future[None]:
        """Forget the open record of a form, and cancel the runs of its branches; done once stored."""
        ...

    async def cancelled(self) -> list[str]:
        """The runs that this process works on and are to be cancelled."""
        ...

    async def changes(self, wake: Callable[[str | None], None]) -> None:
        """Call ``wake`` with the id of each run of workers that has ended or waits, and of each that has new recorded events.

        Ends only when it is cancelled. With None it is called when that begins, also again after a loss of the connection.
        """
        ...

    async def load(self) -> list[QueueLoad]:
        """Pending work by queue and tenant; tenants without unfinished runs are omitted."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """The workers that live, as far as is known, the first started first."""
        ...

    def counts(self) -> FleetCounts:
        """Counters of this process since it opened the store."""
        ...

    async def schedule(self, name: str, cron: str, zone: str, new: NewRun) -> Schedule:
        """Store a schedule, for workers to start ``new`` from the next due time on, replacing the one of the same name.

        Raises ConfigurationError (``config/schedule``) for an invalid cron line or time zone.
        """
        ...

    async def schedules(self) -> list[Schedule]:
        """The schedules, the next one first."""
        ...

    async def unschedule(self, name: str) -> bool:
        """Remove a schedule; runs that it has started continue. False if there is none of this name."""
        ...

    async def work(
        self,
        handle: Callable[[Claim], Awaitable[None]],
        queues: Mapping[str, int],
        slots: int,
        stop: asyncio.Event,
        build: str = "",
    ) -> None:
        """Hand jobs of ``queues`` to ``handle``, at most ``slots`` at a time, until ``stop`` is set and those at work have ended.

        A queue's number is how many of its jobs all workers together have at a time; 0 is any number. A job may be handed
        over more than once, and late. ``handle`` raises nothing. ``build`` is announced to others, and stored with the owned runs. While the database is away nothing is handed over.
        """
        ...


class JournalStore(Protocol):
    """The store of durable runs: it holds rows without interpreting them.

    Writes of one caller are committed in the order of its calls. A store that cannot write at the moment (locked, full,
    unreachable) keeps the writes and tries again; the caller waits. Raises JournalError: ``durable/database``,
    ``durable/corrupt`` and ``durable/version`` for a store that cannot be used, ``durable/owned`` where another process
    owns the run, ``durable/unknown-run``.
    """

    @property
    def sessions(self) -> SessionStore:
        """The conversations stored with the runs."""
        ...

    @property
    def results(self) -> ResultStore:
        """The results stored with the runs for reuse."""
        ...

    @property
    def purses(self) -> PurseStore:
        """The purses stored with the runs."""
        ...

    @property
    def batches(self) -> BatchStore:
        """The batches of model calls stored with the runs."""
        ...

    async def create(self, run: str, new: NewRun) -> tuple[RunRow, bool]:
        """Store a run as ``queued``, unless there is one of this id. Returns the stored run, and whether it is new.

        A new one holds its session. Raises SessionBusy while another run does. With ``new.takes_over`` the base ends in the
        same transaction.
        """
        ...

    @property
    def jobs(self) -> JobQueue | None:
        """The jobs of workers; None for a store that has none."""
        ...

    async def own(self, run: str, slice: int | None = None) -> OwnedRun:
        """Become the only owner of a run in any status, which becomes ``running`` in a new slice.

        With ``slice`` only if the run is to be resumed and has had that many slices; else ``durable/owned``.
        """
        ...

    def put(self, run: str, epoch: int, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> asyncio.Future[None]:
        """Store records, and forget those with the keys ``drop``; done when committed.

        A record that has ended is never replaced. Fails with ``durable/owned`` when ``epoch`` is not that of the run.
        """
        ...

    async def park(self, run: str, epoch: int, seq: int, wake_at: float | None, *, spent_s: float = 0.0) -> bool:
        """Make a run ``waiting`` and give it up. False, without a change, if an answer has arrived since ``seq``.

        ``spent_s`` is added to the stored time.
        """
        ...

    async def deliver(self, run: str, answers: Sequence[EffectRow]) -> frozenset[bytes]:
        """Answer open records at once, each with the state and the value of the row in ``answers``; a waiting run becomes ``queued``.

        Returns the keys of those that it answered: not of a record that was answered before, nor of a later one with the same key, which
        has ``started`` at another time.
        """
        ...

    async def post(self, run: str, message: EffectRow, wakes: str = "", most: int = 0) -> EffectRow | None:
        """Store a message to a run, from any process: an open record after those of its kind and name, at a path that this chooses.

        Its ``content`` is unique. A waiting run becomes ``queued`` if it has an open record of the kind ``wakes`` and the name of the
        message. Returns the record, or None if the run has ended. Raises DataError (``say/full``) if ``most`` messages of its kind
        and name are open.
        """
        ...

    async def finish(
        self,
        run: str,
        epoch: int,
        status: RunStatus,
        *,
        result: Any = None,
        error: Any = None,
        spent_s: float = 0.0,
        session: SessionChanges | None = None,
        branch: BranchEnd | None = None,
    ) -> None:
        """Store the end of a run, or ``queued`` to be resumed later, and give it up. ``spent_s`` is added to the stored
        time.

        At its end its session is changed and released; ``branch`` is its outcome for the run it is a branch of.
        """
        ...

    async def find(self, run: str) -> RunRow | None:
        """A run; a running one without a living owner is ``queued``."""
        ...

    async def list(self, *, limit: int = 100, query: RunQuery | None = None) -> list[RunRow]:
        """Runs, the last updated first: all (None), or those of ``query`` and perhaps others."""
        ...

    async def statuses(self, runs: Sequence[str]) -> dict[str, RunStatus]:
        """The status of the stored ones among those runs; it may still be ``running`` just after the owner died."""
        ...

    async def abandoned(self) -> list[RunRow]:
        """Runs that other processes worked on when they died, some of them where there are many. Their deaths count the last one.

        Those of workers are not among them: they are queued for other workers.
        """
        ...

    async def effects(self, run: str, state: EffectState | None = None, kinds: Sequence[str] = ()) -> list[EffectRow]:
        """The records of a run, in the order they were made: all, or those in one ``state`` and of these ``kinds``."""
        ...

    async def gc(self, before: float | None, bounds: LogBounds | None = None, *, forget: float | None = None) -> int:
        """Remove runs that ended before the unix time ``before``, and older results; then the oldest of both until
        the rest is within ``bounds``. Returns the number of runs.

        Unfinished runs stay, with the runs that have records they may need. A PastRow is kept of each removed run, except
        branches and runs that ended before the unix time ``forget``.
        """
        ...

    async def past(self, *, limit: int = 100) -> list[PastRow]:
        """The summaries of removed runs, the last updated first."""
        ...

    def leave(self) -> None:
        """Wait a few seconds at most, from now on, for a store that cannot write: the caller is closing it."""
        ...

    async def aclose(self) -> None:
        """Store pending writes, give up the owned runs, and close."""
        ...


# A directory only: an object store would be reached within each commit (decision 26)
class BlobStore(Protocol):
    """Large values of records by names, which are digests of them. Its methods block, and are called on one thread at a time.

    Raises OSError when the store cannot be used now.
    """

    def write(self, name: str, body: bytes) -> None:
        """Store a value, which outlives a crash of the machine from then on; an existing one stays."""
        ...

    def read(self, name: str) -> bytes | None:
        """A value; None if it is not there."""
        ...

    def names(self) -> Iterator[str]:
        """The names of all values."""
        ...

    def remove(self, names: Collection[str]) -> None:
        """Remove values; it does not matter if they are there."""
        ...


class Pacer(Protocol):
    """An observer that a run waits for when it cannot keep up: a recorder."""

    @property
    def congested(self) -> bool:
        """Whether producers of effects and deltas have to wait."""
        ...

    async def room(self) -> None:
        """Wait until they need not."""
        ...

    def failure(self, run: str) -> Exception | None:
        """The reason why recording of a run stopped; None while it continues, or if the reason was already asked for."""
        ...

    def preparation(self, run: str, value: object) -> Work[None]:
        """Write a large value beforehand, in parts, for the next event of ``run`` that shows it."""
        ...


class EventSink(Protocol):
    """The log that a recorder writes to. Its methods are called on one thread at a time, never on the event loop."""

    def append(self, run: str, entries: Sequence[LogEntry], *, last: bool = False) -> None:
        """Write events of a run, in order; ``last`` says that none follow for now.

        Raises OSError, or AgentflowError, when they cannot be written.
        """
        ...

    def close(self) -> None:
        """Close all files."""
        ...


class EventStore(EventSink, Protocol):
    """Event logs of runs, redacted; nothing is resumed from them.

    Its methods may be called on several threads at once. Damaged lines are passed over. Raises OSError, or AgentflowError,
    when the store cannot be used.
    """

    def list(self, *, limit: int | None = None) -> list[LogInfo]:
        """The logs, the last written first."""
        ...

    def find(self, run: str) -> LogInfo | None:
        """The log of a run."""
        ...

    def read(self, run: str, after: EventId = FIRST) -> Iterator[dict[str, Any]]:
        """The JSON data of a run's events that come after ``after``, in order, each whole. None for an unknown run."""
        ...

    def gc(self, bounds: LogBounds, spare: Collection[str] = ()) -> list[str]:
        """Remove the oldest logs until the rest is within ``bounds``. Returns the ids of their runs.

        The runs in ``spare`` stay, those that wait to be resumed according to their log, and unfinished ones written to
        within :data:`~agentflow.core.data.event_log.LIVE_S` seconds.
        """
        ...
