"""The records of one durable run in this process: those that answer, and how new ones are stored."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.spending import Reservation
from agentflow.core.data.at_limit import fits_in, raised_value
from agentflow.core.data.errors import JournalError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import branch_prefix, ordinal_of
from agentflow.core.data.limits import Limits, added
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import NO_USAGE
from agentflow.core.data.source import Span
from agentflow.core.events.journal_rows import SAID, SENT, EffectRow, EffectState, OnInflight, OwnedRun
from agentflow.core.events.questions import ExternalCall, LimitReached, Question, question_key
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.branch_runs import BranchRuns
from agentflow.durable.deliveries import PREFIX, RunDeliveries
from agentflow.durable.generations import TaskOverrides
from agentflow.durable.pool import Pool
from agentflow.durable.values.codec import read_usage
from agentflow.durable.values.error_codec import NO_VALUE
from agentflow.durable.values.record_values import Request, request_in
from agentflow.run.handle import AccountedRun
from agentflow.run.questions import permits_of
from agentflow.run.reservation import RunFunds
from agentflow.run.strand.budget import Permits, without_permit

if TYPE_CHECKING:
    from agentflow.core.data.batches import BatchedCall
    from agentflow.durable.batch_desk import BatchDesk
    from agentflow.durable.stored_inbox import StoredInbox

PARKED_S = 5.0
"""Minimum seconds of a wait spent outside of the memory."""


KEEPING_S = 5.0
"""Seconds that a cancelled strand waits until the outcome which it leaves is stored."""


@dataclass(slots=True)
class _Wait:
    """A wait for the answer to ``question``, or until the unix time ``due``."""

    future: asyncio.Future[Any]
    question: Question | None
    due: float | None


@frozen
class Rest:
    """The wait of an idle run: for answers to ``questions``, in the order they were asked, or for a unix time."""

    questions: list[Question]
    wake_at: float | None


class Parking:
    """The waits of one run. ``suspend`` is called when the run is idle.

    ``asked`` are the questions that were open when the run was resumed: each is open until the run waits for it again, or is
    idle without doing so. ``ending`` says that something waits for nothing but the end of the run. ``seq`` is the number of answers that have
    reached the run; ``deadlines`` are the unix times when active ``timeout`` forms end. Both are stored when the run
    leaves the memory.
    """

    def __init__(self, seq: int, suspend: Callable[[], None], asked: Sequence[Question] = ()) -> None:
        self.seq = seq
        self.ending = False
        self.deadlines: dict[str, float] = {}
        self._suspend = suspend
        self.deliveries: RunDeliveries | None = None
        self._permits: Permits | None = None
        self._waits: dict[str, _Wait] = {}
        self._asked = {each.path: each for each in asked}
        self._timers: list[asyncio.TimerHandle] = []
        self._later: asyncio.TimerHandle | None = None
        self._over = False

    def watch(self, permits: Permits) -> None:
        """Watch ``permits``, those of the run, to see when it is idle."""
        self._permits = permits
        permits.idle = self.look_soon

    @property
    def questions(self) -> list[Question]:
        """The open questions, in the order they were asked; those not yet asked again come last."""
        waits = self._waits.values()
        return [*(each.question for each in waits if each.question and not each.future.done()), *self._asked.values()]

    @property
    def wake_at(self) -> float | None:
        """The unix time when the run continues by itself; None if it does not."""
        times = [*self.deadlines.values(), *(each.due for each in self._waits.values() if each.due is not None)]
        return min(times, default=None)

    async def wait(
        self,
        call: CallContext,
        permits: Permits | None,
        *,
        question: Question | None = None,
        due: float | None = None,
    ) -> Any:
        """Wait at ``call`` until :meth:`answer` is called for its path, or until the unix time ``due``.

        Returns the answer, or None. The permit, one of ``permits``, is free meanwhile.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waits[call.path] = _Wait(future, question, due)
        self._asked.pop(call.path, None)
        timer = None if due is None else loop.call_later(max(0.0, due - time.time()), _wake, future)
        if permits is not None:
            permits.give()
        try:
            answer = await future
            if permits is not None:
                await permits.take(call)
            return answer
        except BaseException:  # also when cancelled: the strand leaves with the permit it had before
            if permits is not None:
                permits.take_anyway()
            raise
        finally:
            del self._waits[call.path]
            if timer is not None:
                timer.cancel()

    def answer(self, path: str, answer: Any) -> bool:
        """Deliver the answer to the question at ``path``. False if nothing waits for it any more.

        A run being suspended takes no more answers; the store sees the answer and resumes the run.
        """
        wait = self._waits.get(path)
        if wait is None or wait.future.done() or self._over:
            return False
        self.seq += 1
        wait.future.set_result(answer)
        return True

    def closed(self, path: str) -> None:
        """Forget the question at ``path``, which needs no answer any more."""
        self._asked.pop(path, None)

    def keep_until(self, timer: asyncio.TimerHandle) -> None:
        """Keep the run in the memory until ``timer``, which the code of a workflow made, has fired or was cancelled."""
        now = asyncio.get_running_loop().time()
        self._timers = [*(each for each in self._timers if _counts(each, now)), timer]

    def counting(self) -> bool:
        """Whether a timer that the code of a workflow made has yet to fire."""
        now = asyncio.get_running_loop().time()
        return any(_counts(each, now) for each in self._timers)

    def look_soon(self) -> None:
        """See whether the run is idle, soon."""
        if self._waits or self.ending:
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Suspend the run if it is idle. Called late enough that permits in transit are back and woken tasks have run."""
        waits = self._waits.values()
        if self._over or self._permits is None or self._permits.active or not (waits or self.ending):
            return
        if any(each.future.done() for each in waits):
            return
        if self.deliveries is not None and not self.deliveries.resting():
            return
        if self._timers and not self.ending and self._kept():
            return
        soonest = self.wake_at
        if self.ending or soonest is None or soonest - time.time() > PARKED_S:
            self._over = True
            self._asked.clear()
            self._suspend()

    def _kept(self) -> bool:
        """Whether a time limit of asyncio's own counts in the code. If so, the run looks again when it is over."""
        loop = asyncio.get_running_loop()
        self._timers = [each for each in self._timers if _counts(each, loop.time())]
        if self._later is not None:
            self._later.cancel()
        if self._timers:
            self._later = loop.call_at(min(each.when() for each in self._timers), self.look_soon)
        return bool(self._timers)


def question_of(run_id: str, row: EffectRow) -> Question | None:
    """The question of a record; None for a record of something else."""
    reason = row.kind
    if reason not in ("question", "approval", "limit", "signal"):
        return None
    asked: Mapping[str, Any] = row.value
    return Question(
        question=asked["question"],
        schema=asked["schema"],
        reason=reason,
        signal=asked.get("signal"),
        run_id=run_id,
        path=row.path,
        external=ExternalCall.of(asked.get("external")),
        call=ExternalCall.of(asked.get("call")),
        limit=LimitReached.of(asked.get("limit")),
        own_key=own_key_in(row),
    )


def own_key_in(row: EffectRow) -> str:
    """The key of a recorded question, if it does not follow from the path of its record; else empty."""
    request = request_in(row)
    return "" if request is None or request.identity == row.path else question_key(request.identity)


def _counts(timer: asyncio.TimerHandle, now: float) -> bool:
    return not timer.cancelled() and timer.when() > now


def _wake(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


CLEANUP = "/x/"
"""Part of the paths of effects that clean up after a cancellation, and have no time to wait."""

ELSEWHERE = "mcp-task"
"""The kind of the records of work that goes on in another process, and is cancelled there with the run."""

Elsewhere = Callable[[Any, Any, Span], Any]
"""The forms at a strand and a span of a run, with its journal, that have separate runs as branches; None if branches run here."""

Gate = Callable[[], bool]
"""Called before the first effect without a record below a path; true if that effect must wait to be cancelled."""


class Records:
    """The records of a run that this process owns.

    ``suspending`` is true once the run is given up without an end: nothing is recorded or cleaned up then; ``rest`` is its
    wait if waiting is the reason, and ``parking`` holds its waits. ``fatal`` is the error that stops it. ``root`` is
    the task of the run; ``elsewhere`` gives forms with branches on workers. ``replayed`` counts effects answered from records; ``usage`` and ``cost`` are those of all records so far.
    ``pool`` holds the records of the run it is based on, ``adopted_usage`` and ``adopted_cost`` are those of the ones it
    used; ``overrides`` are the tasks that it changes. ``branches`` starts the branches left to workers, in
    a run of workers, and shares the money of ``funds`` with them. With ``cancelling`` it is replayed only to be
    cancelled where its records end.
    """

    def __init__(
        self,
        store: JournalStore,
        owned: OwnedRun,
        root: asyncio.Task[object],
        elsewhere: Elsewhere,
        on_inflight: OnInflight = "retry",
        *,
        cancelling: bool = False,
    ) -> None:
        self.store = store
        self.run = owned.run
        self.root = root
        self.elsewhere = elsewhere
        self.usage: Usage = read_usage(owned.usage)
        self.cost = owned.cost
        self.live: AccountedRun | None = None
        self.replayed = 0
        self.pool: Pool | None = None
        self.overrides: TaskOverrides | None = None
        self.branches: BranchRuns | None = None
        self.funds: RunFunds | None = None
        self.adopted_usage = NO_USAGE
        self.adopted_cost: float | None = 0.0
        self.on_inflight: OnInflight = on_inflight
        self.cancelling = cancelling
        self.gathers: Callable[[], BatchDesk] | None = None
        """Begins to gather the model calls that wait for batches, in this process."""
        self.suspending = False
        self.rest: Rest | None = None
        self.fatal: JournalError | None = None
        self.advanced = False
        """Whether the end of an effect was recorded since this process took the run."""
        self._rows = {row.path: row for row in owned.records if row.state != EffectState.LOST}
        self._retried = owned.retried
        self._last: dict[str, int] | None = None
        self._gates: dict[str, Gate] = {}
        self._cut: dict[str, int] = {}
        self._lost = 0
        lost = (row for row in owned.records if row.state == EffectState.LOST and row.value is not None)
        self._shown = {row.path.rpartition("!")[0]: row for row in lost}
        self.releasing = False
        """Whether an effect publishes the events that it held back until it was stored: see :mod:`agentflow.durable.held_events`."""
        open_rows = (row for row in owned.records if row.state == EffectState.OPEN)
        asked = [each for row in open_rows if (each := question_of(self.run.run, row)) is not None]
        self.parking = Parking(self.run.seq, self._rest, asked)
        self.unread = [row for row in owned.records if row.state == EffectState.OPEN and row.kind in (SAID, SENT)]
        """The messages that were unread when this process took the run."""
        self._state: StoredState | None = None

    @cached_property
    def inbox(self) -> StoredInbox:
        """The messages to the run, which is open."""
        from agentflow.durable.stored_inbox import StoredInbox  # few runs have any

        return StoredInbox(self, self.unread)

    async def looked_into(self) -> StoredInbox | None:
        """The inbox, with the messages that other processes have stored; None where there never was one."""
        try:
            rows = await self.store.effects(self.run.run, EffectState.OPEN, (SAID, SENT))
        except JournalError as error:
            await self.stop(error)
        for row in rows:
            self.inbox.receive(row)
        return vars(self).get("inbox")

    def _rest(self) -> None:
        """Everything in the run waits: leave the memory, or clean up if the run is replayed for that."""
        if self.cancelling:
            self.root.cancel()
            return
        self.rest = Rest(self.parking.questions, self.parking.wake_at)
        self.suspending = True
        self.root.cancel()

    async def new_batched(self, reserved: Reservation | None) -> dict[str, Any]:
        """The data of the record of a call that begins to wait for a batch: its id, and the purse that has set its cost aside."""
        id = f"af-{secrets.token_hex(16)}"
        hold = None if reserved is None else await reserved.put_by(id)
        return {"id": id} if hold is None else {"id": id, "purse": [*hold]}

    async def close_hold(self, data: Mapping[str, Any], usage: Usage | None, cost: float | None) -> None:
        """Have the purse pay for the call of a record, once, in place of the amount that it has set aside."""
        from agentflow.core.data.allowances import Spending  # few runs have a purse

        spent = Spending()
        if usage is not None:
            spent = Spending(usd=cost or 0.0, tokens=usage.total_tokens, model_calls=1)
        purse, period = data["purse"]
        try:
            await self.store.purses.close(purse, period, data["id"], spent)
        except JournalError as error:
            await self.stop(error)

    async def in_batch(self, asked: BatchedCall, call: CallContext) -> Any:
        """The answer to a model call in a batch, which is delivered to its record. Its process waits for nothing."""
        assert self.gathers is not None
        await self.gathers().ask(asked)
        self.gathers()  # which may have ended before the call was stored
        return await self.parking.wait(call, permits_of(call))

    def deliveries(self) -> RunDeliveries:
        """The order of outcomes in the run, which it has once tasks of asyncio make calls in it."""
        if self.parking.deliveries is None:
            self.parking.deliveries = RunDeliveries(self, self._rows.values())
        return self.parking.deliveries

    def cut(self, line: str) -> None:
        """Note that the call which begins on the line at this path was cancelled: its first effect without a record waits for that."""
        self._cut[line] = self._cut.get(line, 0) + 1

    def uncut(self, line: str) -> None:
        """Note that it was cancelled."""
        self._cut[line] -= 1
        if not self._cut[line]:
            del self._cut[line]

    def raised_limits(self, limits: Limits) -> list[tuple[str, float]]:
        """The limits that were raised while the run waited at them, by name. Questions that ``limits`` answer are closed."""
        raised: list[tuple[str, float]] = []
        for row in [row for row in self._rows.values() if row.kind == "limit"]:
            reached = row.value["limit"]
            name, allowed = reached["name"], reached["allowed"]
            current = getattr(limits, name)
            if row.state == EffectState.OPEN and (current is None or current > allowed):
                row = replace(
                    row, state=EffectState.OK, value={**row.value, "ok": raised_value(current)}, ended=time.time()
                )
                self._rows[row.path] = row
                self.parking.closed(row.path)
                self.commit_soon([row])
            if row.state == EffectState.OK and current is not None and fits_in(name, current, row.value["ok"]):
                raised.append((name, row.value["ok"]))
        return sorted(raised, key=lambda each: each[1])

    def note(self, row: EffectRow) -> asyncio.Future[None]:
        """Begin to store a record. The run stops if that fails; the future raises JournalError then."""
        future = self.store.put(self.run.run, self.run.epoch, [row])
        self.expect(future)
        return future

    def rests(self) -> None:
        """Nothing is about to be delivered to the code of the run."""
        self.parking.look_soon()

    def counting(self) -> bool:
        """Whether a timer counts that the code of a workflow made."""
        return self.parking.counting()

    def find(self, path: str) -> EffectRow | None:
        """The record at ``path``, which may be open."""
        return self._rows.get(path) if self._rows else None

    async def adopt(
        self, path: str, content: bytes, leaf: bytes | None, offsets: list[int] | None, request: Request | None
    ) -> EffectRow | None:
        """Store a record of the run this one is based on as that of the effect at ``path``, which stands at ``offsets`` of the
        program and has the sources of ``request``; None if none fits."""
        if self.pool is None or self.suspending:
            return None
        row = self.pool.take(path, content, request)
        if row is None:
            return None
        self.saved(*self.pool.spent(row))
        row = self.pool.adopted(row, path, leaf, offsets, request)
        await self.commit(row)
        return row

    def saved(self, usage: Usage, cost: float | None) -> None:
        """Count the cost of an effect that another run paid for."""
        self.adopted_usage += usage
        self.adopted_cost = added(self.adopted_cost, cost)

    def may_be_left(self, path: str) -> bool:
        """Whether the store may have a record at ``path`` that answers nothing: one below a failure that is tried again."""
        return bool(self._retried) and not self._retried.isdisjoint(_ancestors(path))

    def pin(self, kind: str, name: str, text: str | None) -> str | None:
        """The text recorded under ``kind`` and ``name``, once for the whole run; ``text`` if there is none yet."""
        path = f"@{kind}/{name}"
        row = self._rows.get(path)
        if row is None:
            now = time.time()
            row = self._rows[path] = EffectRow(
                path=path, kind=kind, name=name, content=b"", state=EffectState.OK, value=text, started=now, ended=now
            )
            self.commit_soon([row])
        return row.value

    def follows(self, path: str) -> bool:
        """Whether there is a record of an effect after ``path`` in its strand."""
        if self._last is None:
            self._last = last_ordinals(self._rows)
        parent, ordinal = ordinal_of(path)
        return ordinal is not None and self._last.get(parent, -1) > ordinal

    def close_gate(self, path: str, gate: Gate) -> None:
        """Ask ``gate`` before effects below ``path`` that have no record."""
        self._gates[path] = gate

    def open_gate(self, path: str) -> None:
        """Remove the gate at ``path``."""
        self._gates.pop(path, None)

    def ends_before(self, path: str) -> bool:
        """Whether the effect at ``path`` has no record, in this run or its base, and nothing stops the run there."""
        return path not in self._rows and self.pool is None and not self.stops and path not in self._shown

    @property
    def stops(self) -> bool:
        """Whether an effect without a record may have to stop where it is: see :meth:`reach`."""
        return self.suspending or self.cancelling or bool(self._gates) or bool(self._cut)

    async def reach(self, path: str, permits: Permits | None) -> None:
        """Note that the run reaches an effect without a record. Never returns if it was cancelled there according to the records.

        While it waits to be cancelled the strand gives up its permit.
        """
        if self.suspending:
            await wait_for_end()
        if self._gates and CLEANUP not in path:  # clean-up after a cancellation is carried out
            for above in _ancestors(path):
                gate = self._gates.get(above)
                if gate is not None and gate():
                    async with without_permit(permits):
                        await wait_for_end()
        if self._cut and CLEANUP not in path and any(line in self._cut for line in _lines_of(path)):
            async with without_permit(permits):
                await wait_for_end()
        if self.cancelling and CLEANUP not in path and not self._works_elsewhere(path):
            self.parking.ending = True
            async with without_permit(permits):
                await wait_for_end()

    def _works_elsewhere(self, path: str) -> bool:
        """Whether the effect at ``path`` has begun something elsewhere, which it has to stop itself."""
        return any([row.kind == ELSEWHERE and row.path.startswith(f"{path}/") for row in self._rows.values()])

    async def begin(self, row: EffectRow, again: Callable[[], None]) -> bool:
        """Store the open record of an effect that may not be repeated, before it begins.

        If it began before an interruption, of this run or of its base, ``on_inflight`` decides. Returns true to carry it out,
        after a call of ``again`` if it is a repetition; false if it counts as failed.
        """
        own = row.path in self._rows
        if own or (self.pool is not None and self.pool.in_flight(row)):
            if self.on_inflight == "ask":
                await self.stop(_in_flight(self.run.run, row))
            if self.on_inflight == "fail":
                return False
            again()
        if not own:
            await self.commit(row)
        return True

    async def commit(
        self, row: EffectRow, drop: Sequence[bytes] = (), *, keeps: bool = False, also: Sequence[EffectRow] = ()
    ) -> None:
        """Store a record before anything depends on it, with ``also`` others, and forget those with the keys ``drop``.

        If the strand is cancelled meanwhile, the record is withdrawn: the strand continued as if the effect had not ended,
        and a replay has to do the same. With ``keeps`` its outcome stays with its cost, for a strand that reaches the effect again
        and is not cancelled there (:meth:`take_kept`). An abandoned run keeps the record itself.
        """
        future = self.store.put(self.run.run, self.run.epoch, [row, *also], drop)
        try:
            await future
            self.advanced = self.advanced or row.state != EffectState.OPEN
        except asyncio.CancelledError:
            if not self.suspending:
                await self._withdraw(row, keeps and row.state == EffectState.OK)
            raise
        except JournalError as error:
            await self.stop(error)

    async def _withdraw(self, row: EffectRow, keeps: bool) -> None:
        """Withdraw a record. If its outcome is kept, it is stored when this returns, unless the database is away."""
        if not keeps:
            lost = [self.lost_row(row.path, row.kind, row.name, row.usage, row.cost)] if row.usage is not None else []
            self.commit_soon(lost, drop=[row.key])
            return
        lost = self.lost_row(row.path, row.kind, row.name, row.usage, row.cost)
        lost = replace(row, path=lost.path, state=lost.state, leaf=None)
        future = self.store.put(self.run.run, self.run.epoch, [lost], [row.key])
        self.expect(future)
        latest = time.monotonic() + KEEPING_S
        while not (future.done() or self.suspending) and (left := latest - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):  # raised by the caller
                await asyncio.wait([future], timeout=left)
        if future.done() and future.exception() is None:
            self._shown[row.path] = lost

    def keeps(self, row: EffectRow) -> bool:
        """Whether the outcome in ``row``, whose strand was cancelled, is kept."""
        kept = self._shown.get(row.path)
        return kept is not None and kept.content == row.content

    async def take_kept(self, path: str, content: bytes, leaf: bytes | None) -> EffectRow | None:
        """The record of an effect that is reached again, made of the outcome that a cancelled strand had; None if there is none."""
        kept = self._shown.get(path)
        if kept is None or kept.content != content or self.suspending:
            return None
        row = replace(kept, path=path, state=EffectState.OK, leaf=leaf)
        await self.commit(row, [kept.key], keeps=True)
        del self._shown[path]
        return row

    def state_changed(self, read: Callable[[], Any]) -> None:
        """Store the state of the run soon, as ``read`` gives it then, for readers in other processes. Any thread may call it."""
        if self._state is None:
            self._state = StoredState(self)
        self._state.changed(read)

    def flush_state(self) -> None:
        """Store the state of the run now, if that is still to be done: the run ends, or waits."""
        if self._state is not None:
            self._state.flush()

    def commit_soon(self, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> None:
        """Store records before the next write."""
        self.expect(self.store.put(self.run.run, self.run.epoch, rows, drop))

    def expect(self, future: asyncio.Future[None]) -> None:
        """Stop the run if ``future``, a write in progress, fails."""
        future.add_done_callback(self._stored)

    def _stored(self, future: asyncio.Future[None]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, JournalError):
            self.abandon(error)

    def lost_row(self, path: str, kind: str, name: str, usage: tuple[int, ...] | None, cost: float | None) -> EffectRow:
        """A record of the cost of an effect that has no outcome."""
        self._lost += 1
        mark = f"{path}!{self.run.slice}.{self._lost}"
        return EffectRow(
            path=mark, kind=kind, name=name, content=b"", state=EffectState.LOST, usage=usage, cost=cost, started=0.0
        )

    async def stop(self, error: JournalError) -> NoReturn:
        """End the run because of ``error``, which no program can catch."""
        self.abandon(error)
        await wait_for_end()

    def abandon(self, error: Exception) -> None:
        """End the run because of ``error``, as :meth:`stop` does, without waiting for that."""
        if self.fatal is None and not self.root.done():
            self.fatal = error if isinstance(error, JournalError) else _failed_beside(self.run.run, error)
            self.suspending = True
            self.root.cancel()


STATE_ROW = "state"
"""The kind of the record with the state of a run."""
STATE_S = 0.1
"""Minimum of seconds between two writes of the state of a run."""


class StoredState:
    """Stores the state of a run after its changes, a few times a second at most."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._loop = records.root.get_loop()
        self._read: Callable[[], Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0
        self._started = time.time()

    def changed(self, read: Callable[[], Any]) -> None:
        """Store the state soon, as ``read`` gives it then."""
        if self._read is None:
            self._read = read
            self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_at(max(self._loop.time(), self._last + STATE_S), self.flush)

    def flush(self) -> None:
        """Store the state now, if it was not stored after its last change."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        read, self._read = self._read, None
        if read is not None:
            self._last = self._loop.time()
            row = EffectRow(
                path=f"@{STATE_ROW}", kind=STATE_ROW, name="", content=b"", state=EffectState.OPEN, value=read()
            )
            self._records.commit_soon([replace(row, started=self._started)])


def _failed_beside(run: str, error: Exception) -> JournalError:
    """The error of a run that would wait without end, since the work that should wake it has failed."""
    failure = JournalError(
        f"the run '{run}' was given up: the work that should wake it failed with {type(error).__name__}: {error}",
        code="internal/error",
        hint=f"flow.resume('{run}') continues it; please report this",
    )
    failure.__cause__ = error
    return failure


def _in_flight(run: str, row: EffectRow) -> JournalError:
    return JournalError(
        f"the run '{run}' was interrupted while {row.kind} {row.name} worked, which may not be repeated unasked",
        code="durable/in-flight",
        hint=f"check its effects; flow.resume('{run}', on_inflight='retry') or agentflow resume {run} --on-inflight retry"
        " repeats it, with fail instead it counts as failed",
        details={"path": row.path, "kind": row.kind, "name": row.name},
    )


async def wait_for_end() -> NoReturn:
    """Wait to be cancelled."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("this wait ends only by cancellation")


def last_ordinals(paths: Iterable[str]) -> dict[str, int]:
    """The highest effect number in use in each strand."""
    last: dict[str, int] = {}
    for path in paths:
        at = path
        while at:
            parent, ordinal = ordinal_of(at)
            if ordinal is not None:
                if last.get(parent, -1) >= ordinal:
                    break
                last[parent] = ordinal
            at = parent
    return last


def last_failures(rows: Iterable[EffectRow]) -> list[EffectRow]:
    """The failures that ended the work of their strand: a failed run tries them again when it is resumed.

    In a run with tasks of asyncio the later places in the order of its outcomes are dropped with them.
    """
    rows = [row for row in rows if row.state != EffectState.LOST]
    order = [row for row in rows if row.path.startswith(PREFIX)]
    rows = [row for row in rows if not row.path.startswith(PREFIX)]
    failed = _last_failures(rows)
    if not order or not failed:
        return failed
    lines = _Lines(rows, order)
    seen = [(row, lines.seen(row)) for row in failed]
    last = [(row, at) for row, at in seen if at is None or not lines.handled(row, at)]
    first = min((at for _, at in last if at is not None), default=None)
    forms = tuple([branch_prefix(row.path) for row, _ in last if row.kind == "decision"])
    dropped = [
        row
        for row in order
        if (first is not None and (row.started or 0.0) >= first)
        or (row.value["lost"] and row.value["event"].startswith(forms))  # by the form that the failure settled
    ]
    return [*(row for row, _ in last), *dropped]


class _Lines:
    """The times when the code of workflows with tasks saw outcomes, and began effects. A task has no number among the effects of the code
    that created it: whether that code handled a failure of the task is seen by its effects, and by its other tasks, after it."""

    def __init__(self, rows: Iterable[EffectRow], order: Iterable[EffectRow]) -> None:
        self._delivered: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._tasks: dict[str, dict[str, float]] = {}
        for row in order:
            events = [row.value["event"].rpartition("#")[0]] if not row.value["lost"] else []
            for line in [*events, *(each[0] for each in row.value.get("forced", ()))]:
                self._delivered[line] = max(row.started or 0.0, self._delivered.get(line, 0.0))
        for row in rows:
            if row.path.startswith("@") or CLEANUP in row.path:
                continue
            at = row.started or 0.0
            for line, effect in _with_parents(row.path):
                if effect.startswith("@"):
                    began = self._tasks.setdefault(line, {})
                    began[effect] = min(at, began.get(effect, at))
                else:
                    self._began[line] = max(at, self._began.get(line, at))

    def seen(self, row: EffectRow) -> float | None:
        """The unix time when the code saw a failure; None if it never did."""
        ended = row.ended or 0.0
        for line, _ in _with_parents(row.path):
            at = self._delivered.get(line)
            if at is not None:
                return at if at >= ended else None
        return ended

    def handled(self, row: EffectRow, seen: float) -> bool:
        """Whether the code around a failure that it has ``seen`` did more then."""
        for line, effect in _with_parents(row.path):
            if effect.startswith("@") and self._began.get(line, seen) > seen:
                return True
            if any(at > seen for task, at in self._tasks.get(line, {}).items() if task != effect):
                return True
        return False


def _with_parents(path: str) -> Iterator[tuple[str, str]]:
    """A path and those above it, each as that of a strand and the part which follows."""
    while path:
        path, _, last = path.rpartition("/")
        yield path, last


def _last_failures(rows: Iterable[EffectRow]) -> list[EffectRow]:
    rows = list(rows)
    last = last_ordinals([row.path for row in rows])
    failed: list[EffectRow] = []
    for row in rows:
        if row.state == EffectState.FAILED and _is_last(row.path, last) and not _was_done(row):
            failed.append(row)
    return failed


def _is_last(path: str, last: Mapping[str, int]) -> bool:
    """Whether nothing follows an effect, in its own strand or in one around it: what follows shows that its failure was handled."""
    while path:
        parent, ordinal = ordinal_of(path)
        if ordinal is not None and last[parent] != ordinal:
            return False
        path = parent
    return True


def _was_done(row: EffectRow) -> bool:
    """Whether an effect was carried out and failed only because its result cannot be stored: it is not tried again."""
    value: Any = row.value
    error: Any = cast("dict[str, Any]", value).get("error") if isinstance(value, dict) else None
    return error is not None and error[1].get("code") == NO_VALUE


def answers(rows: Iterable[EffectRow], *, retry: bool) -> list[EffectRow]:
    """The records other than steps of a finished effect; with ``retry`` without the last failures."""
    rows = list(rows)
    ended = {row.key for row in rows if row.state in (EffectState.OK, EffectState.FAILED)}
    left = [row for row in rows if row.leaf not in ended and row.state != EffectState.LOST]
    failures = last_failures(left) if retry else []
    return [row for row in left if row not in failures]


def _lines_of(path: str) -> Iterator[str]:
    """The paths above ``path`` where it began as one of their own effects, and not as one of their tasks."""
    while path:
        path, _, last = path.rpartition("/")
        if not last.startswith("@"):
            yield path


def _ancestors(path: str) -> Iterator[str]:
    at = path.rfind("/")
    while at > 0:
        yield path[:at]
        at = path.rfind("/", 0, at)
