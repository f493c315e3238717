"""Durable runs in PostgreSQL, for the processes of many machines. Needs asyncpg (``agentflow[postgres]``)."""

from agentflow.journal.postgres.shards import ShardedJournal
from agentflow.journal.postgres.store import PostgresJournal

__all__ = ["PostgresJournal", "ShardedJournal"]
