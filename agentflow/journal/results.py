"""Results of tasks and tools that other runs may reuse, in the database of durable runs."""

from __future__ import annotations

from typing import Any

from agentflow.core.events.journal import StoredResult
from agentflow.journal.connection import DatabaseConnection
from agentflow.journal.rows import Rows, escape, parse, unescape
from agentflow.journal.writer import Writer

_COLUMNS = "kind, name, value, turns, usage, cost, at"
_KEEP = f"""
insert into af_result(content, {_COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (content) do update set {", ".join(f"{one} = excluded.{one}" for one in _COLUMNS.split(", "))}
"""


class Results:
    """The :class:`~agentflow.core.ports.store_ports.ResultStore` beside the runs that ``writer`` stores."""

    def __init__(self, writer: Writer[Any], rows: Rows) -> None:
        self._writer = writer
        self._rows = rows

    async def find(self, content: bytes, since: float) -> StoredResult | None:
        columns = _COLUMNS.replace("usage", self._rows.usage)
        query = f"select {columns}, {self._rows.sum} from af_result where content = $1 and at >= $2"

        async def work(db: DatabaseConnection) -> StoredResult | None:
            row = await db.fetchrow(query, content, since)
            if row is None or not self._rows.is_whole(row):  # one that is damaged is computed again
                return None
            kind, name, value, turns, usage, cost, at, _ = row
            return StoredResult(
                kind=kind,
                name=unescape(name),
                value=await self._rows.load(db, value),
                turns=await self._rows.load(db, turns),
                usage=None if usage is None else tuple(parse(usage)),
                cost=cost,
                at=at,
            )

        return await self._writer.do(work)

    async def keep(self, content: bytes, result: StoredResult) -> None:
        async def work(db: DatabaseConnection) -> None:
            await db.execute(
                _KEEP,
                content,
                result.kind,
                escape(result.name),
                await self._rows.put(db, result.value) or "null",
                await self._rows.put(db, result.turns),
                None if result.usage is None else self._rows.counts(result.usage),
                None if result.cost is None else float(result.cost),
                result.at,
            )

        await self._writer.do(work)
