"""One rule for all faces: a method that a host overrides, assigns or passes in its own object is the one to call.

Services ask each other through ports. Here a face, or a host's object in its place, becomes a port: the service behind the
face while its methods are agentflow's own, else an adapter that calls the host's methods, async or plain. Calls made by
them join the calling run. An object without the methods is refused (``config/part``).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

from agentflow.core.call.call import CallContext, HostCode
from agentflow.core.call.host_threads import as_async
from agentflow.core.data.context import MEMORY_ASKED, AssociativeMatchResult, ContextGenerationInput, DataContext
from agentflow.core.data.errors import ConfigurationError, TaskError, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.ports.executor_ports import CommandPort, CommandResult, FoundFiles, HostCommandPort
from agentflow.core.ports.memory_ports import ContextFinder, MemoryPort
from agentflow.core.ports.ports import HandlerPort
from agentflow.executors.command_executor import CommandExecutor, asked_for
from agentflow.lib.own_threads import own_thread
from agentflow.spec.memory import MemorySystem


def hosts(part: object, own: type, *methods: str) -> tuple[str, ...]:
    """The host's methods among these: all of another class than ``own``, else those that the class of ``part``
    overrides or that were assigned to it."""
    if not isinstance(part, own):
        return methods
    kind, assigned = type(part), vars(part)
    return tuple([name for name in methods if name in assigned or getattr(kind, name) is not getattr(own, name)])


def check_part(part: object, what: str, *methods: str) -> None:
    """Raises ConfigurationError (``config/part``) if an object given as ``what`` lacks one of the methods called on it."""
    lacking = [name for name in methods if not callable(getattr(part, name, None))]
    if lacking:
        raise ConfigurationError(
            f"a {type(part).__name__} is not a {what}: it has no method {lacking[0]}",
            code="config/part",
            hint=f"give an object with {', '.join(methods)}, async or plain",
        )


async def asked(call: CallContext | None, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The result of a host's method. A plain one runs on a thread; its calls join the run of ``call``."""
    if call is None:
        return await as_async(method)(*arguments, **named)
    with HostCode(call.at(call.path)) as code:
        return await code.to_end(as_async(method)(*arguments, **named))


@runtime_checkable
class DescribedMemory(Protocol):
    """A memory with the specification's second question."""

    async def get_relevant_context_with_description(self, query: str) -> AssociativeMatchResult: ...


@frozen
class HostMemory:
    """A host's memory as a :class:`~agentflow.core.ports.memory_ports.ContextFinder`; calls it makes join the question's run."""

    memory: MemoryPort

    async def find(self, question: ContextGenerationInput, call: CallContext) -> AssociativeMatchResult:
        """Ask the memory. Raises its errors."""
        return _matches(await asked(_asking(call), self.memory.get_relevant_context_for, question))

    async def find_described(self, description: str, call: CallContext) -> AssociativeMatchResult:
        """Ask the memory about a description in words, by its own method if it has one. Raises its errors."""
        if not isinstance(self.memory, DescribedMemory):
            return await self.find(ContextGenerationInput(query=description), call)
        return _matches(await asked(_asking(call), self.memory.get_relevant_context_with_description, description))


def _asking(call: CallContext) -> CallContext:
    inner = call.at(call.path)
    inner.add_mark(MEMORY_ASKED)
    return inner


def _matches(answer: object) -> AssociativeMatchResult:
    if not isinstance(answer, AssociativeMatchResult):
        raise TaskError(
            f"the memory system gave a {type(answer).__name__}, not an AssociativeMatchResult",
            reason="context_retrieval_failure",
            code="context/value",
        )
    return answer


@frozen
class HostCommands:
    """A host's command executor as a :class:`~agentflow.core.ports.executor_ports.CommandPort`; it applies its own policy.

    Inherited methods of a CommandExecutor run with the authority of the calling call.
    """

    commands: HostCommandPort

    async def execute_command_safely(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
    ) -> CommandResult:
        with asked_for(call):
            return await asked(call, self.commands.execute_command_safely, command, cwd, timeout)

    async def prepare(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
    ) -> Callable[[], Awaitable[CommandResult]]:
        """Decide nothing: the host's executor does when the command is run."""
        return partial(self.execute_command_safely, command, cwd, timeout, call)

    def parse_file_paths_from_output(self, output: str, cwd: str | None = None) -> list[str]:
        return self.commands.parse_file_paths_from_output(output, cwd)

    async def find_files(self, command: str | Sequence[str], call: CallContext | None = None) -> FoundFiles:
        """Run a command that names files. Whether it may write is up to the host's executor."""
        with asked_for(call, read_only=True):
            ended: CommandResult = await asked(call, self.commands.execute_command_safely, command, None, None)
        if not ended.success or ended.exit_code != 0:
            return FoundFiles(error=ended.error or cut(ended.stderr, 500) or f"exit code {ended.exit_code}")
        paths = await own_thread(self.parse_file_paths_from_output, ended.stdout)
        return FoundFiles(tuple(await own_thread(lambda: [path for path in paths if os.path.isfile(path)])))


@frozen
class HandlerCommands:
    """The ``commands`` of a handler with the host's file search."""

    commands: CommandPort | None
    handler: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.commands, name)

    async def find_files(self, command: str | Sequence[str], call: CallContext | None = None) -> FoundFiles:
        """The files found by the handler."""
        return FoundFiles(tuple(await asked(call, self.handler.execute_file_path_command, command)))


@frozen
class HandlerContexts:
    """A handler's data context as a :class:`~agentflow.core.ports.ports.DataContextPort`."""

    handler: HandlerPort

    async def prime(self, query: str | None, initial_files: list[str] | None, call: CallContext) -> DataContext:
        """Prime the handler."""
        return await asked(call, self.handler.prime_data_context, query=query, initial_files=initial_files)

    def clear(self, call: CallContext) -> None:
        """Clear the handler's data context."""
        with HostCode(call):
            self.handler.clear_data_context()


def finding_of(handler: Any) -> CommandPort:
    """A handler as a file search by command. Raises ConfigurationError (``config/part``)."""
    commands = getattr(handler, "commands", None)
    if commands is not None:
        return commands
    check_part(handler, "handler", "execute_file_path_command")
    return cast(CommandPort, HandlerCommands(None, handler))


def finder_of(memory: MemoryPort | None) -> ContextFinder | None:
    """A memory as a ContextFinder: the service behind a MemorySystem, or the host's own methods. Raises ConfigurationError."""
    if memory is None:
        return None
    own = hosts(memory, MemorySystem, "get_relevant_context_for", "get_relevant_context_with_description")
    if not own:
        return cast(MemorySystem, memory).service
    check_part(memory, "memory system", "get_relevant_context_for")
    return HostMemory(memory)


def commands_of(commands: CommandPort | HostCommandPort | None) -> CommandPort | None:
    """A command executor as a CommandPort: itself, or the host's own methods. Raises ConfigurationError."""
    if commands is None:
        return None
    methods = ("execute_command_safely", "parse_file_paths_from_output")
    if not hosts(commands, CommandExecutor, *methods):
        return cast(CommandPort, commands)
    check_part(commands, "command executor", *methods)
    return HostCommands(commands)
