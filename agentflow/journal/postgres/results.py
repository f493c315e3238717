"""Results of tasks and tools that other runs may reuse, in PostgreSQL."""

from __future__ import annotations

from agentflow.core.events.journal import StoredResult
from agentflow.journal.postgres.connection import Connection
from agentflow.journal.postgres.rows import dump, escape, load, unescape
from agentflow.journal.writer import Writer

_COLUMNS = "kind, name, value, turns, usage, cost, at"


class PostgresResults:
    """The :class:`~agentflow.core.ports.store_ports.ResultStore` beside the runs that ``writer`` stores."""

    def __init__(self, writer: Writer[Connection]) -> None:
        self._writer = writer

    async def find(self, content: bytes, since: float) -> StoredResult | None:
        async def work(db: Connection) -> StoredResult | None:
            row = await db.fetchrow(f"select {_COLUMNS} from af_result where content = $1 and at >= $2", content, since)
            if row is None:
                return None
            kind, name, value, turns, usage, cost, at = row
            return StoredResult(
                kind=kind,
                name=unescape(name),
                value=load(value),
                turns=load(turns),
                usage=None if usage is None else tuple(usage),
                cost=cost,
                at=at,
            )

        return await self._writer.do(work)

    async def keep(self, content: bytes, result: StoredResult) -> None:
        async def work(db: Connection) -> None:
            await db.execute(
                f"insert into af_result(content, {_COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7, $8)"
                f" on conflict (content) do update set {', '.join(f'{one} = excluded.{one}' for one in _COLUMNS.split(', '))}",
                content,
                result.kind,
                escape(result.name),
                dump(result.value) or "null",
                dump(result.turns),
                result.usage,
                None if result.cost is None else float(result.cost),
                result.at,
            )

        await self._writer.do(work)
