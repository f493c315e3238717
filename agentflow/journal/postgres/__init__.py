"""Durable runs in PostgreSQL, for the processes of many machines. Needs asyncpg (``agentflow[postgres]``).

Read ``store`` (the port), ``schema`` and ``link`` (tables and connections), then ``queue`` (which worker does what), and
``shards`` (many databases as one store).
"""

from agentflow.journal.postgres.shards import ShardedJournal
from agentflow.journal.postgres.store import PostgresJournal

__all__ = ["PostgresJournal", "ShardedJournal"]
