"""Model calls in batches that several processes send, in the database of the durable runs.

``af_batch_call`` has the calls, ``af_batch`` the batches that have not ended. A call is in one batch at a time. A
batch is stored before it is sent. One that is ``new`` was sent, or not: its sender knows, and after the death of the sender another
process finds out by the vendor's list.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from agentflow.core.data.batches import BatchedCall, BatchState, BatchWait, StoredBatch
from agentflow.journal.connection import DatabaseConnection, Row, changed
from agentflow.journal.writer import Writer

KEPT_S = 30 * 86_400.0
"""Seconds that a call stays marked as answered, and an answer that no run took is kept: as long as the vendors keep theirs."""
_COLUMNS = "id, run, key, model, endpoint, body, within_s, at, purse, period"
_ASK = f"""
insert into af_batch_call as c({_COLUMNS}, batch) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '')
on conflict (id) do update set at = excluded.at where c.run = '' and c.batch = '' and c.answer is null
"""
_LIGHT = "id, run, key, model, endpoint, '', within_s, at, purse, period, length(body)"
_WHOLE = f"{_COLUMNS}, length(body)"
_BATCH = "id, model, endpoint, state, vendor, created, due"
_ANSWERED = "update af_batch_call set answer = case when run = '' then $2 else '' end, body = '' where id = $1 and answer is null"

_WAITS = """
select count(*), c.model, coalesce(b.state, 'none'), min(c.at + c.within_s) from af_batch_call c left join af_batch b on b.id = c.batch
where c.answer is null and c.id = any($1) group by c.batch, c.model, b.state order by 4, 2
"""


class StoredBatches:
    """The :class:`~agentflow.core.ports.batch_ports.BatchStore` of a database that ``writer`` writes to.

    ``sender`` makes this process an owner, and returns its name; ``lives`` says whether another owner lives.
    """

    def __init__(
        self,
        writer: Writer[Any],
        sender: Callable[[], Awaitable[str]],
        lives: Callable[[Any, str], Awaitable[bool]],
    ) -> None:
        self._writer = writer
        self._sender = sender
        self._lives = lives

    async def ask(self, call: BatchedCall) -> Any:
        columns = (call.id, call.run, call.key, call.model, call.endpoint, call.body, call.within_s)

        async def work(db: DatabaseConnection) -> Any:
            if changed(await db.execute(_ASK, *columns, time.time(), call.purse, call.period)):
                return None
            answer = await db.fetchval("select answer from af_batch_call where id = $1 and run = ''", call.id)
            return None if answer is None else json.loads(answer)

        return await self._writer.do(work)

    async def withdraw(self, ids: Sequence[str]) -> frozenset[str]:
        async def work(db: DatabaseConnection) -> frozenset[str]:
            forget = "delete from af_batch_call where id = $1 and batch = '' and answer is null"
            return frozenset([id for id in ids if changed(await db.execute(forget, id))])

        return await self._writer.do(work)

    async def waiting(self) -> list[BatchedCall]:
        query = f"select {_LIGHT} from af_batch_call where batch = '' and answer is null order by at, id"
        return [_call(row) for row in await self._writer.do(lambda db: db.fetch(query))]

    async def calls(self, batch: str, *, bodies: bool = False) -> list[BatchedCall]:
        return await self._writer.do(lambda db: self._calls(db, batch, bodies))

    async def _calls(self, db: DatabaseConnection, batch: str, bodies: bool) -> list[BatchedCall]:
        columns = _WHOLE if bodies else _LIGHT
        query = f"select {columns} from af_batch_call where batch = $1 and answer is null order by id"
        return [_call(row) for row in await db.fetch(query, batch)]

    async def claim(self, batch: StoredBatch, ids: Sequence[str]) -> list[BatchedCall]:
        me = await self._sender()

        async def work(db: DatabaseConnection) -> list[BatchedCall]:
            mark = "update af_batch_call set batch = $2 where id = $1 and batch = '' and answer is null"
            if not sum([changed(await db.execute(mark, id, batch.id)) for id in sorted(ids)]):
                return []
            add = f"insert into af_batch({_BATCH}, sender) values ($1, $2, $3, $4, $5, $6, $7, $8)"
            columns = (batch.id, batch.model, batch.endpoint, "new", "", batch.created, batch.due)
            await db.execute(add, *columns, me)
            return await self._calls(db, batch.id, True)

        return await self._writer.do(work)

    async def release(self, batch: str) -> None:
        async def work(db: DatabaseConnection) -> None:
            await db.execute("update af_batch_call set batch = '' where batch = $1 and answer is null", batch)
            await db.execute("delete from af_batch where id = $1", batch)

        await self._writer.do(work)

    async def unfinished(self) -> list[StoredBatch]:
        rows = await self._writer.do(lambda db: db.fetch(f"select {_BATCH} from af_batch order by created, id"))
        return [_batch(row) for row in rows]

    async def take(self, id: str) -> bool:
        me = await self._sender()

        async def work(db: DatabaseConnection) -> bool:
            sender = await db.fetchval("select sender from af_batch where id = $1", id)
            if sender is None or (sender != me and await self._lives(db, sender)):
                return False
            query = "update af_batch set sender = $3 where id = $1 and sender = $2"
            return sender == me or bool(changed(await db.execute(query, id, sender, me)))

        return await self._writer.do(work)

    async def change(self, id: str, state: BatchState, vendor: str) -> None:
        query = "update af_batch set state = $2, vendor = $3 where id = $1"
        await self._writer.do(lambda db: db.execute(query, id, state, vendor))

    async def answered(self, answers: Mapping[str, Any]) -> None:
        rows = [(id, json.dumps(answer)) for id, answer in answers.items()]
        await self._writer.do(lambda db: db.executemany(_ANSWERED, rows))

    async def answers(self, ids: Collection[str]) -> dict[str, Any]:
        query = "select id, answer from af_batch_call where answer is not null and run = '' and id = any($1)"
        rows = await self._writer.do(lambda db: db.fetch(query, list(ids)))
        return {id: json.loads(answer) for id, answer in rows}

    async def waits(self, ids: Collection[str]) -> list[BatchWait]:
        rows = await self._writer.do(lambda db: db.fetch(_WAITS, list(ids)))
        return [BatchWait(calls=calls, model=model, state=state, due=due) for calls, model, state, due in rows]

    async def end(self, id: str) -> None:
        async def work(db: DatabaseConnection) -> None:
            await db.execute("delete from af_batch where id = $1", id)
            old = "delete from af_batch_call where at < $1 and (answer is not null or batch = '')"
            await db.execute(old, time.time() - KEPT_S)

        await self._writer.do(work)


def _call(row: Row) -> BatchedCall:
    id, run, key, model, endpoint, body, within_s, at, purse, period, size = row
    return BatchedCall(
        id=id,
        run=run,
        key=bytes(key),
        model=model,
        endpoint=endpoint,
        body=body,
        within_s=within_s,
        size=size,
        at=at,
        purse=purse,
        period=period,
    )


def _batch(row: Row) -> StoredBatch:
    id, model, endpoint, state, vendor, created, due = row
    return StoredBatch(id=id, model=model, endpoint=endpoint, state=state, vendor=vendor, created=created, due=due)
