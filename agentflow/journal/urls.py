"""The store that a ``durable=`` setting names."""

from __future__ import annotations

from dataclasses import field
from importlib.util import find_spec
from pathlib import Path

from agentflow.core.data.errors import ConfigurationError, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.events.journal_rows import OnInflight, Sync
from agentflow.core.ports.store_ports import EventStore, JournalStore, RateStore
from agentflow.lib.option_table import wrong_value

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


@frozen
class Durable:
    """The store of durable runs, and its options: ``AgentFlow(durable=Durable("sqlite:///runs.db", sync="full"))``.

    ``durable="sqlite:///runs.db"`` is a ``Durable`` with the defaults.

    Attributes:
        url: ``sqlite:///runs.db``, with four slashes for an absolute path, or, for several machines, ``postgresql://user@host/db``.
        sync: how SQLite writes: ``normal`` survives a killed process, ``full`` also a power cut.
        take_over: resume the runs of processes that died, while the flow's block is open. Default: in PostgreSQL only.
        on_inflight: how to continue a run interrupted in a tool marked ``idempotent=False``: ``retry`` the call, ``ask``
            (the run is ``interrupted`` until :meth:`AgentFlow.resume` decides), or ``fail`` it.
    """

    url: str
    sync: Sync = field(default="normal", kw_only=True)
    take_over: bool | None = field(default=None, kw_only=True)
    on_inflight: OnInflight = field(default="retry", kw_only=True)

    @property
    def takes_over(self) -> bool:
        """Whether a flow resumes the runs of processes that died."""
        return is_postgres(self.url) if self.take_over is None else self.take_over

    @property
    def is_there(self) -> bool:
        """Whether there is a database: a server, or a file that exists."""
        return is_postgres(self.url) or database_file(self.url).exists()


def durable_of(durable: object) -> Durable | None:
    """The argument ``durable=`` of a flow as :class:`Durable`. Raises ConfigurationError (``config/durable``) for a value of another type."""
    stated = Durable(durable) if isinstance(durable, str) else durable
    if stated is None or (isinstance(stated, Durable) and isinstance(stated.url, str)):  # pyright: ignore[reportUnnecessaryIsInstance] - hosts need no checker
        take_over: object = stated and stated.take_over
        if not isinstance(take_over, bool | None):  # pyright: ignore[reportUnnecessaryIsInstance] - hosts need no checker
            raise wrong_value("Durable", "take_over", take_over, "is neither True nor False", "write take_over=True")
        return stated
    raise ConfigurationError(
        f"durable={cut(repr(durable), 120)} is not the URL of a database",
        code="config/durable",
        hint="write durable='sqlite:///runs.db', or durable=Durable('sqlite:///runs.db', sync='full') for its options",
    )


def open_store(url: str, sync: Sync = "normal") -> JournalStore:
    """The store at ``url``: ``sqlite:///runs.db``, ``sqlite:////absolute/runs.db``, or ``postgresql://user@host/database``.

    It does not touch a file or connect yet. Raises ConfigurationError (``config/durable``, ``config/extra``).
    """
    if sync not in ("normal", "full"):
        raise ConfigurationError(
            f"sync={sync!r} is not a way to store",
            code="config/durable",
            hint="'normal' survives a killed process, 'full' a power cut too, at the cost of waiting for the disk",
        )
    if is_postgres(url):
        urls = _servers(url)
        from agentflow.journal.postgres import PostgresJournal, ShardedJournal

        return PostgresJournal(urls[0]) if len(urls) == 1 else ShardedJournal(urls)
    from agentflow.journal.sqlite import SqliteJournal

    return SqliteJournal(database_file(url), sync=sync)


def open_events(url: str) -> EventStore:
    """The logs of runs in the database at ``url``. It does not touch a file or connect yet. Raises as :func:`open_store`."""
    if is_postgres(url):
        urls = _servers(url)
        from agentflow.journal.postgres.events import PostgresEvents
        from agentflow.journal.postgres.shards import ShardedEvents

        return PostgresEvents(urls[0]) if len(urls) == 1 else ShardedEvents(urls)
    from agentflow.journal.events import SqliteEvents

    return SqliteEvents(database_file(url))


def open_rates(url: str) -> RateStore | None:
    """The store that counts the rates of all processes of a database; None for an SQLite file. It does not connect yet. Raises
    the errors of :func:`open_store`."""
    if not is_postgres(url):
        return None
    urls = _servers(url)
    from agentflow.journal.postgres.shards import ShardedRates
    from agentflow.journal.postgres.shared_rates import PostgresRates

    return PostgresRates(urls[0]) if len(urls) == 1 else ShardedRates(urls)


def _servers(url: str) -> list[str]:
    """The databases in PostgreSQL that ``url`` names. Raises ConfigurationError (``config/durable``, ``config/extra``)."""
    if find_spec("asyncpg") is None:
        from agentflow.lib.distribution import extra_missing

        raise extra_missing("durable runs in PostgreSQL need a package that is not installed: asyncpg", "postgres")
    return shards_in(url)


def is_postgres(url: str) -> bool:
    """Whether ``url`` names a database in PostgreSQL."""
    return url.startswith(_POSTGRES)


def shards_in(url: str) -> list[str]:
    """The databases in ``url``, separated by blanks. Raises ConfigurationError (``config/durable``)."""
    urls = url.split()
    if not all([is_postgres(each) for each in urls]) or len(set(urls)) < len(urls):
        raise ConfigurationError(
            "several databases of durable runs are different ones in PostgreSQL",
            code="config/durable",
            hint="durable='postgresql://user@one/database postgresql://user@other/database'",
        )
    return urls


def database_file(url: str) -> Path:
    """The SQLite file that ``url`` names. Raises ConfigurationError (``config/durable``)."""
    if is_postgres(url):  # which may have a password in it
        raise ConfigurationError(
            "a PostgreSQL database has only durable runs, not the requested data",
            code="config/durable",
            hint="name an SQLite file: sqlite:///runs.db",
        )
    path = url.removeprefix(_SQLITE)
    if path == url or not path:
        raise ConfigurationError(
            f"durable={cut(url, 120)!r} names no database of durable runs",
            code="config/durable",
            hint="write durable='sqlite:///runs.db', with four slashes for an absolute path, or 'postgresql://user@host/database'",
        )
    return Path(path).absolute()
