"""Durable runs in PostgreSQL, for the processes of many machines. Needs asyncpg (the extra ``postgres``).

Read ``store`` first, the leaf of :mod:`agentflow.journal.store`, with its ``rows``, the ``link`` to the server, and the ``owner`` that says which
process lives; then the ``queue`` of workers with ``forks`` and ``leases``. ``shards`` joins several databases.
"""

from agentflow.journal.postgres.shards import ShardedJournal
from agentflow.journal.postgres.store import PostgresJournal

__all__ = ["PostgresJournal", "ShardedJournal"]
