"""Gathers the model calls that wait for batches, sends these, and brings the answers: in the background of a flow or of a worker.

A batch is stored before it is sent, with its calls; a call is in one batch at a time, of one process. A stored batch that may have
been sent is looked for in the vendor's list before it is sent, and left alone while the list cannot decide.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from agentflow.core.data.allowances import Spending
from agentflow.core.data.batches import BatchAnswer, BatchedCall, BatchProgress, StoredBatch
from agentflow.core.data.errors import AgentflowError, JournalError, ProviderError
from agentflow.core.data.provider_errors import BatchUncertain
from agentflow.core.events.journal_rows import BATCH, ENDED, EffectRow, EffectState
from agentflow.core.ports.batch_ports import BatchApi, BatchProvider
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.values.codec import Codec

if TYPE_CHECKING:
    from agentflow.core.ports.ports import ProviderAdapter

_log = logging.getLogger(__name__)

_REFUSED = frozenset({400, 413, 422})
"""Statuses by which a server refuses this batch, and took none of its calls."""
_UNDECIDED = frozenset({408, 409, 425})
"""Statuses of the 400s after which the batch may have been taken."""
_AT_ONCE = 500
"""Number of answers that are stored at a time."""


@dataclass(slots=True)
class BatchTimes:
    """Seconds: between two rounds, until a batch is sent after the last call that joined it, at most after the first one, and until a batch that the vendor's
    list does not have was surely not sent."""

    poll_s: float = 30.0
    gather_s: float = 5.0
    gather_most_s: float = 60.0
    settle_s: float = 60.0


Deliver = Callable[[str, Sequence[EffectRow]], Coroutine[Any, Any, None]]


class _Delivery:
    """Answers on their way: ``rows`` are the open records of the runs that they are for, read once, and ``woken`` the answered ones."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[bytes, EffectRow]] = {}
        self.woken: dict[str, list[EffectRow]] = defaultdict(list)


# The vendors have no idempotent request: the list decides whether a batch was sent (decision 70)
class BatchDesk:
    """The gatherer of one flow. ``route`` finds the provider of a full model name, ``answered`` passes a stored answer to its
    run."""

    def __init__(
        self,
        store: JournalStore,
        codec: Codec,
        route: Callable[[str], tuple[ProviderAdapter, str]],
        answered: Deliver,
    ) -> None:
        self.times = BatchTimes()
        self._store = store
        self._codec = codec
        self._route = route
        self._answered = answered
        self._begun = False
        self._joined: dict[str, float] = {}
        self._missing: dict[str, float] = {}
        self._refusals: dict[str, tuple[int, float]] = {}
        self._futures: dict[str, list[asyncio.Future[Mapping[str, Any]]]] = {}
        self._wake = asyncio.Event()

    def begin(self, beside: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Work from now on until no call waits any more; ``beside`` runs it in the background."""
        self._wake.set()
        if not self._begun:
            self._begun = True
            beside(self._work())

    async def _work(self) -> None:
        try:
            while True:
                self._wake.clear()
                try:
                    left = await self.round()
                except Exception as error:  # noqa: BLE001 - perhaps the database is away; else all batched runs would wait without end
                    _warn_of(error, "batches of model calls")
                    left = True
                if not left and not self._wake.is_set():
                    return
                times = self.times
                try:
                    async with asyncio.timeout(times.gather_s if self._joined else times.poll_s):
                        await self._wake.wait()
                        await asyncio.sleep(min(times.gather_s, times.poll_s))
                except TimeoutError:
                    pass
        finally:
            self._begun = False

    async def ask(self, call: BatchedCall) -> Any:
        """Store a call that waits for a batch, once. Returns the answer to a call without a run if it is there, else None."""
        return await self._store.batches.ask(call)

    async def answer(self, call: BatchedCall) -> Mapping[str, Any]:
        """The answer to a call without a run, which is waited for in this process; another process finds it in the store."""
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        waiting = self._futures.setdefault(call.id, [])
        waiting.append(future)  # before the call is stored: the worker continues while one waits
        try:
            stored = await self.ask(call)
            if stored is not None:
                return cast("Mapping[str, Any]", stored)
            self._wake.set()
            return await future
        finally:
            waiting.remove(future)
            if not waiting and self._futures.get(call.id) is waiting:
                del self._futures[call.id]

    async def withdraw(self, calls: Sequence[BatchedCall]) -> None:
        """Forget calls that no run waits for any more, unless they are in a batch."""
        gone = await self._store.batches.withdraw([each.id for each in calls])
        await self._close([each for each in calls if each.id in gone])

    async def _close(self, calls: Iterable[BatchedCall]) -> None:
        """Give back the amounts that purses set aside for calls which cost nothing."""
        for each in calls:
            if each.purse:
                await self._store.purses.close(each.purse, each.period, each.id, Spending())

    async def round(self) -> bool:
        """Look after the stored batches once, and send those that are due. Returns whether calls still wait."""
        batches = await self._store.batches.unfinished()
        sent = {each.vendor for each in batches}
        for batch in batches:
            try:
                await self._look_after(batch, sent)
            except JournalError:
                raise
            except Exception as error:  # noqa: BLE001 - an answer of any shape may come from the server, and other batches wait
                _warn_of(error, f"the batch {batch.id} of {batch.model}")
        if self._futures:  # another process may have their answers
            for id, answer in (await self._store.batches.answers(self._futures.keys())).items():
                self._set(id, answer)
        free = await self._store.batches.waiting()
        await self._gather([each for each in free if each.run or each.id in self._futures])
        return bool(self._joined) or bool(self._futures) or bool(await self._store.batches.unfinished())

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _gather(self, free: Sequence[BatchedCall]) -> None:
        """Send batches of the calls that are in none, once no further call has joined them for a while."""
        now, times = time.monotonic(), self.times
        self._joined = {each.id: self._joined.get(each.id, now) for each in free}
        late = [each for each in free if time.time() >= each.due]
        if late:
            await self._give_up(late, "no batch took it in time")
            free = [each for each in free if time.time() < each.due]
        joined = self._joined.values()
        if not free or (now - max(joined) < times.gather_s and now - min(joined) < times.gather_most_s):
            return
        groups: dict[tuple[str, str, float], list[BatchedCall]] = defaultdict(list)
        for each in await self._wanted(free):
            if self._refusals.get(each.model, (0, 0.0))[1] <= now:
                groups[each.model, each.endpoint, each.within_s].append(each)
        for (model, _, _), group in groups.items():
            api = self._api(model)
            for part in [group] if api is None else _parts(group, api):
                await self._claim(part, api)

    async def _wanted(self, calls: Sequence[BatchedCall]) -> list[BatchedCall]:
        """Those of ``calls`` for which a run still waits. The others are withdrawn."""
        runs = sorted({each.run for each in calls if each.run})
        statuses = await self._store.statuses(runs)
        waiting: set[str] = set()
        for run in runs:
            if statuses.get(run, "done") not in ENDED:
                rows = await self._store.effects(run, EffectState.OPEN, (BATCH,))
                waiting.update([str(row.value["id"]) for row in rows])
        unwanted = [each for each in calls if each.run and each.id not in waiting]
        if unwanted:
            await self.withdraw(unwanted)
        return [each for each in calls if not each.run or each.id in waiting]

    async def _claim(self, calls: Sequence[BatchedCall], api: BatchApi | None) -> None:
        """Send a batch of those of ``calls`` that no other process has claimed."""
        first = calls[0]
        batch = StoredBatch(
            id=f"af{secrets.token_hex(12)}",
            model=first.model,
            endpoint=first.endpoint,
            state="new",
            vendor="",
            created=time.time(),
            due=min([each.due for each in calls]),
        )
        mine = await self._store.batches.claim(batch, [each.id for each in calls])
        if mine:
            await self._send(batch, mine, api)

    def _api(self, model: str) -> BatchApi | None:
        adapter, _ = self._route(model)
        return adapter.batches if isinstance(adapter, BatchProvider) else None

    async def _send(self, batch: StoredBatch, calls: Sequence[BatchedCall], api: BatchApi | None) -> None:
        if api is None:
            await self._end(batch, calls, "the server takes no batches")
            return
        try:
            vendor = await api.send(batch.id, batch.endpoint, calls)
        except ProviderError as error:
            status = error.status or 0
            if status == 429:
                await self._wait_with(batch, error.message)
            elif status in _REFUSED:
                await self._split(batch, calls, api, error.message)
            elif status == 501 or (400 <= status < 500 and status not in _UNDECIDED):
                await self._end(batch, calls, f"the server refused the batch: {error.message}")
            else:
                _log.warning("the batch %s of %s may have been sent: %s", batch.id, batch.model, error)
            return
        self._refusals.pop(batch.model, None)
        await self._store.batches.change(batch.id, "sent", vendor)

    async def _wait_with(self, batch: StoredBatch, reason: str) -> None:
        """Send the calls of a batch that the vendor refused for now in a later one."""
        times, _ = self._refusals.get(batch.model, (0, 0.0))
        pause = min(self.times.poll_s * 2**times, 20 * self.times.poll_s)
        self._refusals[batch.model] = times + 1, time.monotonic() + pause
        _log.warning("batches of %s wait for %g s: %s", batch.model, pause, reason)
        await self._store.batches.release(batch.id)

    async def _split(self, batch: StoredBatch, calls: Sequence[BatchedCall], api: BatchApi, reason: str) -> None:
        """Send the halves of a batch that the vendor refused; the call of one with a single call is made as an ordinary one."""
        if len(calls) == 1:
            await self._end(batch, calls, f"the server refused the batch: {reason}")
            return
        await self._store.batches.release(batch.id)
        for half in (calls[: len(calls) // 2], calls[len(calls) // 2 :]):
            await self._claim(half, api)

    # -- answers -------------------------------------------------------------------------------------------------------

    async def _look_after(self, batch: StoredBatch, sent: set[str]) -> None:
        api = self._api(batch.model)
        if api is None:
            _log.warning("the batch %s waits: this flow has no provider of %s with batches", batch.id, batch.model)
            return
        vendor = batch.vendor
        if batch.state in ("new", "unsure"):
            vendor = await self._found(batch, api, sent)
            if not vendor:
                return
        progress = await api.look(vendor)
        if not progress.ended:
            if batch.state != "cancelling" and time.time() >= batch.due:
                await api.cancel(vendor)
                await self._store.batches.change(batch.id, "cancelling", vendor)
            return
        left = {each.id: each for each in await self._store.batches.calls(batch.id)}
        if progress.refused:
            await self._refused(batch, [*left.values()], progress, api)
            return
        if not left:
            await self._store.batches.end(batch.id)
            return
        some: list[tuple[BatchedCall, BatchAnswer | None]] = []
        async with self._delivering() as delivery:
            async for answer in api.answers(vendor):
                call = left.pop(answer.id, None)
                if call is None:
                    _log.warning("the batch %s answers a call that it does not have: %r", batch.id, answer.id[:80])
                    continue
                some.append((call, answer))
                if len(some) >= _AT_ONCE:
                    await self._deliver(some, "", delivery)
                    some = []
            await self._deliver(some, "", delivery)
        await self._end(batch, [*left.values()], "it was not answered in time")

    async def _refused(
        self, batch: StoredBatch, calls: Sequence[BatchedCall], progress: BatchProgress, api: BatchApi
    ) -> None:
        """Send the calls of a batch that the vendor took and then refused without the faulty ones, or later."""
        faulty = [each for at, each in enumerate(calls) if at in progress.faulty]
        if faulty:
            await self._give_up(faulty, f"the vendor refused it: {progress.refused}")
            await self._store.batches.release(batch.id)
        elif progress.later:
            await self._wait_with(batch, progress.refused)
        else:
            whole = await self._store.batches.calls(batch.id)
            await self._split(batch, whole, api, progress.refused)

    async def _found(self, batch: StoredBatch, api: BatchApi, sent: set[str]) -> str:
        """The vendor's id of a batch that may have been sent; empty if it is not known to be there."""
        if not await self._store.batches.take(batch.id):
            return ""
        ids = frozenset([each.id for each in await self._store.batches.calls(batch.id)])
        try:
            vendor = await api.find(batch.id, ids, batch.created, sent)
        except BatchUncertain as error:
            self._missing.pop(batch.id, None)
            if batch.state != "unsure":
                _log.warning("the batch %s waits: %s", batch.id, error)
                await self._store.batches.change(batch.id, "unsure", "")
            return ""
        if vendor is not None:
            await self._store.batches.change(batch.id, "sent", vendor)
            return vendor
        now = time.monotonic()
        if now - self._missing.setdefault(batch.id, now) >= self.times.settle_s:  # before, a request may be on its way
            del self._missing[batch.id]
            await self._store.batches.release(batch.id)
            self._wake.set()
        return ""

    async def _end(self, batch: StoredBatch, calls: Sequence[BatchedCall], reason: str) -> None:
        """End a batch: its last ``calls`` without an answer are made as ordinary ones."""
        await self._give_up(calls, reason)
        await self._store.batches.end(batch.id)

    async def _give_up(self, calls: Sequence[BatchedCall], reason: str) -> None:
        """Have calls made as ordinary ones."""
        async with self._delivering() as delivery:
            for start in range(0, len(calls), _AT_ONCE):
                await self._deliver([(each, None) for each in calls[start : start + _AT_ONCE]], reason, delivery)

    @asynccontextmanager
    async def _delivering(self) -> AsyncGenerator[_Delivery, None]:
        """The answers that the block stores, whose runs continue once it ends: each continues once, with all of them."""
        delivery = _Delivery()
        try:
            yield delivery
        finally:
            for run, answers in delivery.woken.items():
                await self._answered(run, answers)

    async def _deliver(
        self, some: Sequence[tuple[BatchedCall, BatchAnswer | None]], reason: str, delivery: _Delivery
    ) -> None:
        """Store answers in the records of their runs. A call without an answer is made as an ordinary one."""
        told: dict[str, Any] = {}
        free: list[BatchedCall] = []
        of_runs: dict[str, list[BatchedCall]] = defaultdict(list)
        for call, answer in some:
            if answer is None or answer.lapsed:
                told[call.id] = {"fallback": reason or "it was not answered in time"}
            else:
                told[call.id] = {"status": answer.status, "body": answer.body}
            if call.run:
                of_runs[call.run].append(call)
        for run, calls in of_runs.items():
            rows = delivery.rows.get(run)
            if rows is None:
                opened = await self._store.effects(run, EffectState.OPEN, (BATCH,))
                rows = delivery.rows[run] = {row.key: row for row in opened}
            answers: dict[str, EffectRow] = {}
            for call in calls:
                row = rows.pop(call.key, None)
                if row is not None and row.value["id"] == call.id:
                    data = {**row.value, "ok": self._codec.encode(told[call.id])}
                    answers[call.id] = replace(row, state=EffectState.OK, value=data)
                elif "status" not in told[call.id]:  # its run has ended, or asks again
                    free.append(call)
            if answers:
                delivered = await self._store.deliver(run, [*answers.values()])
                delivery.woken[run] += [each for each in answers.values() if each.key in delivered]
        await self._close(free)
        await self._store.batches.answered(told)
        for id, answer in told.items():
            self._set(id, answer)

    def _set(self, id: str, answer: Mapping[str, Any]) -> None:
        for future in self._futures.get(id, ()):
            if not future.done():
                future.set_result(answer)


def _warn_of(error: Exception, what: str) -> None:
    """Log an error after which the next round tries again; with its traceback if it is none of ours."""
    _log.warning("%s: %s", what, error, exc_info=None if isinstance(error, AgentflowError) else error)


def _parts(calls: Sequence[BatchedCall], api: BatchApi) -> list[list[BatchedCall]]:
    """The calls in as many batches as their number and their size require."""
    parts: list[list[BatchedCall]] = [[]]
    size = 0
    for each in calls:
        length = each.size + 500
        if parts[-1] and (len(parts[-1]) >= api.most_calls or size + length > api.most_bytes):
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += length
    return parts
