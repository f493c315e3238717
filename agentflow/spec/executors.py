"""SystemExecutorFunctions: specification document 4, on the system tools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.host_threads import as_async
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session
from agentflow.core.ports.executor_ports import CommandPort, FilePort, HostCommandPort
from agentflow.core.ports.memory_ports import MemoryPort
from agentflow.core.ports.ports import HandlerPort, Tool
from agentflow.executors.system_tools import SystemTools
from agentflow.flow.python import in_run
from agentflow.run.engine import Engine
from agentflow.spec.handler import BaseHandler
from agentflow.spec.host import HandlerContexts, check_part, commands_of, finder_of, hosts
from agentflow.spec.host_files import files_of
from agentflow.spec.joining import Face, House, Joint, Parts, over
from agentflow.tasks.prompt_runners import NO_PROMPTS
from agentflow.tasks.runner import AtomicTaskExecutor
from agentflow.tasks.service import TaskService


class SystemExecutorFunctions(Face):
    """The system tools, to be called by the host.

    Parameters: ``memory_system`` answers context queries, ``file_manager`` reads and writes, ``command_executor`` runs
    commands, ``handler`` holds the data context (None: the two data-context tools are FAILED, dependency_error).
    ``engine`` is the flow's.

    Each ``execute_*`` method takes a dict of parameters and returns a TaskResult; an error becomes a FAILED result.
    Called by the host, they have the host's authority; called inside a tool, that of the tool call.
    """

    def __init__(
        self,
        memory_system: MemoryPort | None,
        file_manager: FilePort,
        command_executor: CommandPort | HostCommandPort,
        handler: HandlerPort | None = None,
        *,
        engine: Engine | None = None,
    ) -> None:
        self._memory_system = memory_system
        self._file_manager = file_manager
        self._command_executor = command_executor
        self._handler = handler
        self._contexts = HandlerContexts(handler) if handler is not None else None
        if handler is not None:
            check_part(handler, "handler", "prime_data_context", "clear_data_context")
        self._tools()  # an unfit part is refused now
        house, tasks = House(), over(TaskService(AtomicTaskExecutor(NO_PROMPTS)))
        alone = Parts(self, tasks, NO_PROMPTS, memory=finder_of(memory_system))
        joined = handler.joint if isinstance(handler, BaseHandler) else None
        self.joint = joined if engine is None and joined is not None else Joint(lambda: house, lambda: alone, engine)

    def _tools(self) -> SystemTools:
        """The tools over the present parts, with methods that may have been assigned."""
        commands = cast(CommandPort, commands_of(self._command_executor))
        return SystemTools(finder_of(self._memory_system), files_of(self._file_manager), commands, self._contexts)

    @property
    def memory_system(self) -> MemoryPort | None:
        """The part that answers context queries, as passed in."""
        return self._memory_system

    @property
    def file_manager(self) -> FilePort:
        """The part that reads and writes files, as passed in."""
        return self._file_manager

    @property
    def command_executor(self) -> CommandPort | HostCommandPort:
        """The part that runs commands, as passed in."""
        return self._command_executor

    @property
    def handler_instance(self) -> HandlerPort | None:
        """The handler, as passed in, with the data context that the tools clear and prime."""
        return self._handler

    def tools(self) -> list[Tool]:
        """The seven tools, to be registered. They are built in: a model is offered only those named by its task.

        A tool calls its ``execute_*`` method where a subclass overrides it.
        """
        return [self._as_own(tool) for tool in self._tools().tools()]

    def _as_own(self, tool: Tool) -> Tool:
        name = tool.name.removeprefix("system:")
        method = name if name.startswith("execute_") else f"execute_{name}"
        if not hosts(self, SystemExecutorFunctions, method):
            return tool

        async def call_own(arguments: dict[str, Any], call: CallContext) -> Any:
            return await as_async(getattr(self, method))(arguments)

        return replace(tool, call=call_own, prepare=None)

    async def _run(self, name: str, params: dict[str, Any], session: Session | None = None) -> TaskResult:
        async with in_run(self.joint.engine, name, session) as call:
            return await self._tools().run(name, params, call)

    def _session(self) -> Session | None:
        """The handler's own session, used outside of a run."""
        return self._handler.session if isinstance(self._handler, BaseHandler) else None

    async def execute_get_context(self, params: dict[str, Any]) -> TaskResult:
        """Relevant file paths for ``query`` (text); ``history`` (text) and ``target_files`` (paths) may refine it.

        COMPLETE: content is the JSON list of paths, ``notes`` has file_paths, context_summary and matches.
        FAILED: input_validation_failure, context_retrieval_failure.
        """
        return await self._run("system:get_context", params)

    async def execute_read_files(self, params: dict[str, Any]) -> TaskResult:
        """The text of the files ``file_paths``, each in a ``<file>`` element that its content cannot close.

        COMPLETE even if nothing was readable: ``notes`` has files_read_count, skipped_files, errors and digests. A file
        that cannot be read is one of the ``failed_parts``, unless ``missing`` is ``"skip"``.
        FAILED: input_validation_failure.
        """
        return await self._run("system:read_files", params)

    async def execute_list_directory(self, params: dict[str, Any]) -> TaskResult:
        """The names in ``directory_path``: content is the JSON list, ``notes.directory_contents`` the list itself.

        FAILED: input_validation_failure, tool_execution_error (also for a refused path: ``details.cause``).
        """
        return await self._run("system:list_directory", params)

    async def execute_write_file(self, params: dict[str, Any]) -> TaskResult:
        """Write ``content`` to ``file_path``; ``overwrite`` (default false) or ``expected_digest`` allow replacing it.

        FAILED: input_validation_failure, tool_execution_error (also for a refused path: ``details.cause``).
        """
        return await self._run("system:write_file", params)

    async def execute_shell_command(self, params: dict[str, Any]) -> TaskResult:
        """Run ``command`` in ``cwd`` for at most ``timeout`` whole seconds. A shell is used only if granted.

        COMPLETE: content is its output, ``notes`` success, exit_code, stdout, stderr. FAILED, with the same notes:
        input_validation_failure (also when refused), tool_execution_error, execution_timeout, dependency_error (no
        sandbox).
        """
        return await self._run("system:execute_shell_command", params)

    async def execute_clear_handler_data_context(self, params: dict[str, Any]) -> TaskResult:
        """Clear the handler's data context. FAILED: dependency_error without a handler."""
        return await self._run("system:clear_handler_data_context", params, self._session())

    async def execute_prime_handler_data_context(self, params: dict[str, Any]) -> TaskResult:
        """Fill the handler's data context from ``query`` and ``initial_files``.

        COMPLETE: ``notes`` has item_count and context_summary; an initial file that cannot be read is one of the
        ``failed_parts``. FAILED: input_validation_failure, dependency_error, context_priming_failure.
        """
        return await self._run("system:prime_handler_data_context", params, self._session())
