"""The values of the arguments of :class:`agentflow.AgentFlow`: directories, patterns, storage locations."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from agentflow.core.call.provenance import Provenance, narrowing
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.remembered import NoteSharing
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.ports.memory_ports import ContextFinder, Embedder, MemoryPort
from agentflow.core.ports.ports import RateLimiter, Tool
from agentflow.core.ports.service_port import ServicePort
from agentflow.core.ports.store_ports import EventStore, JournalStore, PurseStore, RateStore, ReusePort
from agentflow.executors.command_executor import CommandExecutor
from agentflow.executors.file_access import FileAccessManager
from agentflow.journal.urls import Durable, database_file, is_postgres, open_events, open_rates
from agentflow.lib.file_writer import state_path
from agentflow.lib.option_table import wrong_value
from agentflow.lib.redact import Redactor
from agentflow.providers.prices import Prices
from agentflow.providers.rates import ProcessRates, RateTable
from agentflow.providers.table import Router
from agentflow.run.engine import Engine

if TYPE_CHECKING:
    from agentflow.connect.servers import McpServer
    from agentflow.core.data.allowances import Allowance
    from agentflow.durable.runs import DurableRuns
    from agentflow.memory.notes import FlowNotes
    from agentflow.observe.recorder import Recording
    from agentflow.run.dependencies import Dependencies
    from agentflow.run.purses import Purses


def has_lock() -> bool:
    """Whether the interpreter has the global lock, as all before 3.13 have."""
    enabled = getattr(sys, "_is_gil_enabled", None)
    return enabled is None or enabled()


def check_interpreter(gil: bool) -> None:
    """Raise ConfigurationError (``config/free-threaded``) for an interpreter without the global lock, ``gil``.

    Labels of values rest on its reference counts, and nothing was tried with threads that run at once.
    """
    if not gil:
        raise ConfigurationError(
            "free-threaded builds of Python are not supported",
            code="config/free-threaded",
            hint="use a usual build of the same version, or run this one with -X gil=1",
        )


def unknown_parameter(unknown: Iterable[str], face: type[object]) -> ConfigurationError:
    """The error (``config/option``) for a parameter that ``face`` does not have, with the intended one."""
    names = inspect.signature(face).parameters.keys() - {"unknown"}
    # ``settings`` of a flow are its own: request fields of a model go to a task or a question.
    from agentflow.lib.option_hints import unknown_field

    return unknown_field(next(iter(unknown)), face.__name__, names - {"settings"})


def recording_of(
    record: bool | str | os.PathLike[str], durable: str | None, redactor: Redactor, router: Router
) -> Recording:
    """The recorder of a flow's runs: in a directory, else next to its durable runs, else in the state directory."""
    from agentflow.observe.files import EventFiles
    from agentflow.observe.recorder import Recording
    from agentflow.providers.shown import wire_of

    store: EventStore
    if not isinstance(record, bool):
        store = EventFiles(Path(record))
    else:
        store = EventFiles(state_path() / "runs") if durable is None else open_events(durable)
    return Recording(store, lambda value: redactor.redact(str(value)), wire_of(router))


def dependencies_of(make: object) -> Dependencies | None:
    """Makes the dependencies of each run; None without such a function."""
    if make is None:
        return None
    from agentflow.run.dependencies import Dependencies

    return Dependencies(make)


def middleware(option: str, functions: Sequence[Any]) -> tuple[Any, ...]:
    """The middleware of a flow. Raises ConfigurationError (``config/middleware``)."""
    if isinstance(functions, tuple) and not functions:
        return ()
    from agentflow.core.ports.around import middleware_in

    return middleware_in(option, functions, "AgentFlow")


def reuse_in(store: JournalStore, redactor: Redactor) -> ReusePort:
    """Answers effects declared with ``reuse`` from the results of a store. Loads the room of durable runs."""
    from agentflow.durable.reuse import Reuse

    return Reuse(store.results, redactor)


def durable_runs(
    engine: Engine,
    store: JournalStore,
    redactor: Redactor,
    durable: Durable,
    *,
    records: Recording | None,
) -> DurableRuns:
    """The durable runs of a flow with a store, which no other flow loads. Raises ConfigurationError (``config/on-inflight``)."""
    from agentflow.durable.runs import DurableRuns

    recordings = partial(open_events, durable.url)
    return DurableRuns(engine, store, redactor, on_inflight=durable.on_inflight, records=records, recordings=recordings)


def purses_of(
    purses: Purses | Mapping[str, Allowance] | None, store: PurseStore | None, table: Mapping[str, Any] | None = None
) -> Purses | None:
    """The purses of a flow, else those of the ``table`` of its settings, kept in ``store`` if there is one; None without.
    Raises ConfigurationError (``config/purse``)."""
    if purses is None and not table:
        return None
    from agentflow.core.data.allowances import read_allowances
    from agentflow.run.purses import Purses

    purses = read_allowances(table or {}) if purses is None else purses

    own = purses if isinstance(purses, Purses) else Purses(purses)
    if store is not None:
        own.keep_in(store)
    return own


def notes_of(sharing: NoteSharing | None, home: str, durable: str | None, redactor: Redactor) -> FlowNotes | None:
    """The notes of a flow with the first root ``home``; None without. Raises ConfigurationError (``config/notes``)."""
    if sharing is None:
        return None
    if sharing not in get_args(NoteSharing):
        raise ConfigurationError(
            f"notes={sharing!r} is not a way to keep notes",
            code="config/notes",
            hint="'session' keeps them within a conversation, 'flow' for every run of this root",
        )
    from agentflow.memory.notes import FlowNotes, NoteBook

    return FlowNotes(
        sharing, home, NoteBook(notes_file(durable), redact=redactor.redact), NoteBook(None, redact=redactor.redact)
    )


def notes_file(durable: str | None) -> Path:
    """The SQLite file of the notes: that of the durable runs, else the one where the command stores its own runs.

    Raises ConfigurationError (``config/durable``).
    """
    return state_path() / "runs.db" if durable is None or is_postgres(durable) else database_file(durable)


def tools_of_notes(notes: FlowNotes | None) -> Sequence[Tool]:
    """The tools ``remember`` and ``recall`` of a flow with notes."""
    if notes is None:
        return ()
    from agentflow.executors.note_tools import note_tools

    return note_tools(notes)


def adapter_rates(rates: RateTable, durable: str | None) -> tuple[RateStore | None, RateLimiter | None]:
    """The store that counts the ``rates`` of all processes of a database, if there is one, and the limiter that makes calls
    wait for them."""
    if not rates:
        return None, None
    store = None if durable is None else open_rates(durable)
    if store is None:
        return None, ProcessRates(rates)
    from agentflow.providers.fleet_rates import FleetRates

    return store, FleetRates(rates, store)


def embedder_of(model: str, *, base_url: str | None, prices: Prices, rates: RateLimiter | None) -> Embedder:
    """The adapter of an embedding model by name. Raises ConfigurationError."""
    from agentflow.providers.embeddings import Embeddings

    return Embeddings(model, base_url=base_url, prices=prices, rates=rates)


def finder_of(memory: MemoryPort | None) -> ContextFinder | None:
    """A memory of the host as a ContextFinder. Raises ConfigurationError (``config/part``)."""
    from agentflow.spec import host

    return host.finder_of(memory)


def is_own_memory(memory: object) -> bool:
    """Whether the ``memory=`` of a flow is a :class:`~agentflow.MemorySystem`."""
    from agentflow.spec.memory import MemorySystem

    return isinstance(memory, MemorySystem)


def tasks_in(tasks: str | os.PathLike[str] | Sequence[Any] | None) -> tuple[list[str], list[Any]]:
    """The directories of templates, and the tasks and workflows, that a flow is given. Raises ConfigurationError
    (``config/option``) where they are not a list."""
    if tasks is None or isinstance(tasks, str | os.PathLike):
        return paths_of(tasks or None), []
    if not isinstance(tasks, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong_value("AgentFlow", "tasks", tasks, "is not a list of tasks", "write tasks=[review]")
    directories: list[str] = []
    declared: list[Any] = []
    for each in cast("Sequence[object]", tasks):
        if isinstance(each, str | os.PathLike):
            directories.append(os.fspath(cast("str | os.PathLike[str]", each)))
        else:
            declared.append(each)
    return directories, declared


def templates_in(directories: str | Sequence[str] | None) -> Sequence[TaskTemplate]:
    """The templates in the XML files of directories. Raises ConfigurationError (``config/directory``) and TemplateFileError."""
    if not directories:
        return ()
    from agentflow.tasks.xml import read_directory

    return [one for each in paths_of(directories) for one in read_directory(directory("tasks", each))]


def mcp_servers(table: Mapping[str, Any], servers: Sequence[McpServer]) -> list[McpServer]:
    """The servers of the settings, and then those of ``mcp=``. Raises ConfigurationError (``mcp/server``)."""
    if not table:
        return list(servers)
    from agentflow.connect.config import servers_of_table

    return [*servers_of_table(table), *servers]


def services_of(files: FileAccessManager, commands: CommandExecutor) -> ServicePort:
    """Starts the programs of MCP servers, in the sandbox of the ``commands``."""
    from agentflow.executors.services import Services

    return Services(files, commands.sandbox, readable=commands.readable)


def patterns(commands: Iterable[str]) -> list[str]:
    """Patterns of commands. Raises ConfigurationError (``commands/policy``) for one text."""
    if isinstance(commands, str):
        raise ConfigurationError(
            f"allow_commands={commands!r} is one text, it must be a list of patterns",
            code="commands/policy",
            hint=f"write allow_commands=[{commands!r}]",
        )
    return list(commands)


def base_system_of(system: object, setting: str) -> str:
    """The system text of a flow, else that of its settings. Raises ConfigurationError (``config/option``) unless it is
    text."""
    if system is None:
        return setting
    if not isinstance(system, str):
        raise wrong_value("AgentFlow", "system", system, "is not a text", "write system='You are ...'")
    return system


def paths_of(named: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None) -> list[str]:
    """The paths of an argument that takes one or several."""
    if named is None:
        return []
    if isinstance(named, str | os.PathLike):
        return [os.fspath(named)]
    return [os.fspath(one) for one in named]


def directory(setting: str, path: str | os.PathLike[str]) -> str:
    """``path`` as text. Raises ConfigurationError (``config/directory``) if it is not a directory."""
    if not Path(path).is_dir():
        what = "is not a directory" if Path(path).exists() else "does not exist"
        raise ConfigurationError(
            f"the {setting} directory {path} {what}",
            code="config/directory",
            hint=f"give a directory: {setting}=, --{setting}, or {setting} in agentflow.toml",
        )
    return os.fspath(path)


def existing(setting: str, path: str) -> str:
    """``path``, absolute; ``~`` is the home. Raises ConfigurationError (``config/directory``) if nothing is there."""
    absolute = os.path.abspath(os.path.expanduser(path))
    if not os.path.lexists(absolute):
        raise ConfigurationError(
            f"{setting} names {path}, which does not exist",
            code="config/directory",
            hint=f"give files and directories that are there: {setting}=, --{setting}, or {setting} in agentflow.toml",
        )
    return absolute


def policy_of(provenance: Provenance | str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> Provenance | None:
    """The policy of a flow, read from its file if it is the path of one, narrowed by the table of the ``settings``.

    Raises ConfigurationError (``provenance/policy``).
    """
    policy = provenance if provenance is None or isinstance(provenance, Provenance) else Provenance.load(provenance)
    narrower = narrowing(settings)
    return policy if narrower is None else (policy or Provenance()).narrowed(narrower)
