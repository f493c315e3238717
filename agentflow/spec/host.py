"""Adapts a host's memory, command executor or handler, which take no call, to the ports of the services."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from agentflow.core.call import CallContext
from agentflow.core.context import MEMORY_ASKED, AssociativeMatchResult, ContextGenerationInput, DataContext
from agentflow.core.errors import cut
from agentflow.core.executor_ports import CommandPort, CommandResult, FoundFiles, HostCommandPort
from agentflow.core.host_code import HostCode
from agentflow.core.memory_ports import ContextFinder, MemoryPort
from agentflow.core.ports import HandlerPort
from agentflow.executors.command_executor import CommandExecutor
from agentflow.spec.memory import MemorySystem


@runtime_checkable
class DescribedMemory(Protocol):
    """A memory with the specification's second question."""

    async def get_relevant_context_with_description(self, query: str) -> AssociativeMatchResult: ...


class HostMemory:
    """A host's memory as a :class:`~agentflow.core.memory_ports.ContextFinder`; calls it makes join the question's run."""

    def __init__(self, memory: MemoryPort) -> None:
        self._memory = memory

    async def find(self, question: ContextGenerationInput, call: CallContext) -> AssociativeMatchResult:
        """Ask the memory. Raises whatever it raises."""
        with HostCode(_asking(call)):
            return await self._memory.get_relevant_context_for(question)

    async def find_described(self, description: str, call: CallContext) -> AssociativeMatchResult:
        """Ask the memory about a description in words, its own way if it has one. Raises whatever it raises."""
        if not isinstance(self._memory, DescribedMemory):
            return await self.find(ContextGenerationInput(query=description), call)
        with HostCode(_asking(call)):
            return await self._memory.get_relevant_context_with_description(description)


def _asking(call: CallContext) -> CallContext:
    inner = call.at(call.path)
    inner.add_mark(MEMORY_ASKED)
    return inner


class HostCommands:
    """A host's command executor as a :class:`~agentflow.core.executor_ports.CommandPort`; it applies its own policy."""

    def __init__(self, commands: HostCommandPort) -> None:
        self._commands = commands

    async def execute_command_safely(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
    ) -> CommandResult:
        """Run a command."""
        if call is None:
            return await self._commands.execute_command_safely(command, cwd, timeout)
        with HostCode(call):
            return await self._commands.execute_command_safely(command, cwd, timeout)

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
        """The paths that the output names."""
        return self._commands.parse_file_paths_from_output(output, cwd)

    async def find_files(self, command: str | Sequence[str], call: CallContext | None = None) -> FoundFiles:
        """Run a command that names files. Whether it may write is up to the host's executor."""
        ended = await self.execute_command_safely(command, call=call)
        if not ended.success or ended.exit_code != 0:
            return FoundFiles(error=ended.error or cut(ended.stderr, 500) or f"exit code {ended.exit_code}")
        paths = await asyncio.to_thread(self.parse_file_paths_from_output, ended.stdout)
        return FoundFiles(tuple(await asyncio.to_thread(lambda: [path for path in paths if os.path.isfile(path)])))


class HandlerContexts:
    """A handler's data context as a :class:`~agentflow.core.ports.DataContextPort`."""

    def __init__(self, handler: HandlerPort) -> None:
        self._handler = handler

    async def prime(self, query: str | None, initial_files: list[str] | None, call: CallContext) -> DataContext:
        """Prime the handler."""
        with HostCode(call):
            return await self._handler.prime_data_context(query=query, initial_files=initial_files)

    def clear(self, call: CallContext) -> None:
        """Clear the handler's data context."""
        with HostCode(call):
            self._handler.clear_data_context()


def finder_of(memory: MemoryPort | None) -> ContextFinder | None:
    """A memory as a ContextFinder: the service behind a MemorySystem; any other memory wrapped.

    A subclass of MemorySystem is a host's own memory: what it overrides counts.
    """
    if memory is None:
        return None
    return memory.service if type(memory) is MemorySystem else HostMemory(memory)


def commands_of(commands: CommandPort | HostCommandPort | None) -> CommandPort | None:
    """A command executor as a CommandPort, wrapped if necessary."""
    return commands if commands is None or isinstance(commands, CommandExecutor) else HostCommands(commands)
