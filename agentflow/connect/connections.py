"""The MCP servers of a flow: connected side by side, their tools registered, closed together.

Nothing here imports the SDK before there is a server to connect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from agentflow.connect.servers import McpServer, check_names
from agentflow.core.errors import AgentflowError, ConfigurationError
from agentflow.core.own_task import outlast
from agentflow.core.ports import PromptRunner, Tool
from agentflow.core.service_port import ServicePort
from agentflow.lib.redact import Redactor

if TYPE_CHECKING:
    from agentflow.connect.connected import Connected, Registry

CHECK_S = 1.0
"""Seconds that a check waits before a server that failed is tried again."""
MAX_NEWS = 100
"""Warnings kept for the next run."""


class McpConnections:
    """The connections of a flow to its MCP ``servers``.

    Parameters: ``tools`` is the registry; ``services`` starts programs; ``prompts`` asks the model, for servers that may; ``redactor`` is told what must not be shown, and takes it out; ``roots``
    are the flow's. ``failed`` has the errors of those that are absent, by name: they are tried again until they are there. Raises ConfigurationError: ``mcp/server`` for descriptions that cannot stand together,
    ``mcp/missing-extra`` without the SDK.
    """

    def __init__(
        self,
        servers: Sequence[McpServer],
        tools: Registry,
        services: ServicePort,
        prompts: PromptRunner,
        *,
        redactor: Redactor,
        roots: tuple[str, ...],
    ) -> None:
        check_names(servers)
        if servers and find_spec("mcp") is None:
            raise ConfigurationError(
                "MCP servers need the SDK of the protocol, which is not installed",
                code="mcp/missing-extra",
                hint="pip install 'agentflow[mcp]'",
            )
        self.servers = tuple(servers)
        self._tools = tools
        self._services = services
        self._prompts = prompts
        self._redactor = redactor
        self._roots = roots
        self._open: list[Connected] = []
        self._absent: list[asyncio.Task[None]] = []
        self._news: list[tuple[str, str]] = []
        self.failed: dict[str, AgentflowError] = {}

    async def open(self) -> list[Connected]:
        """Connect all servers, side by side, and register their tools. Nothing to do a second time.

        Raises the first error of a server that is not optional, once all that were connected are closed again; one that is
        optional is a warning of the next run.
        """
        if self._open or not self.servers:
            return self._open
        # a second and a half of processor time, which is not the event loop's
        module: Any = await asyncio.to_thread(import_module, "agentflow.connect.connected")
        every: list[Connected] = [
            module.Connected(
                server,
                self._tools,
                self._services,
                self._prompts,
                redactor=self._redactor,
                roots=self._roots,
                news=self._tell,
            )
            for server in self.servers
        ]
        errors: list[AgentflowError | None] = []
        try:
            async with asyncio.TaskGroup() as group:
                opening = [group.create_task(_opened(each)) for each in every]
            errors = [task.result() for task in opening]
            failed = [error for each, error in zip(every, errors, strict=True) if error and not each.server.optional]
            if failed:
                raise failed[0]
        except BaseException:  # no server outlives a start that failed or was cancelled
            await _close(every)
            raise
        for each, error in zip(every, errors, strict=True):
            if error is not None:
                self.failed[each.server.name] = error
                self._tell("mcp/down", error.message)
                name = f"mcp {each.server.name} again"
                again = asyncio.get_running_loop().create_task(self._try_again(each), name=name, context=Context())
                self._absent.append(again)
        self._open = every
        return every

    async def _try_again(self, absent: Connected) -> None:
        """Connect a server that was not there, however often that takes; each failure makes the next wait longer."""
        name = absent.server.name
        while (error := await _opened(absent)) is not None:
            self.failed[name] = error
        del self.failed[name]
        self._tell("mcp/tools-changed", f"the MCP server '{name}', which was not there, is connected now")

    @property
    def is_open(self) -> bool:
        """Whether the servers were connected: before that none of their tools is known."""
        return bool(self._open)

    async def check(self) -> dict[str, str]:
        """``ok`` for each server that is not optional, by name, else the code of why it is not connected.

        One whose connection was lost is connected again, as its next call would do it.
        """
        needed = [each for each in self._open if not each.server.optional]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_checked(each)) for each in needed]
        return {each.server.name: task.result() for each, task in zip(needed, tasks, strict=True)}

    def tools_of(self, name: str) -> list[Tool]:
        """The registered tools of the server called ``name``, sorted."""
        return [tool for each in self._open if each.server.name == name for tool in each.tools]

    def news(self) -> list[tuple[str, str]]:
        """The codes and texts of what a run that begins now is warned of; told once."""
        news, self._news = self._news, []
        return news

    def _tell(self, code: str, message: str) -> None:
        if len(self._news) < MAX_NEWS:
            self._news.append((code, message))

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        every, self._open = self._open, []
        absent, self._absent = self._absent, []
        for task in absent:
            task.cancel()
            await outlast(task)
        await _close(every)


async def _opened(connected: Connected) -> AgentflowError | None:
    try:
        await connected.open()
    except AgentflowError as error:
        return error
    return None


async def _checked(connected: Connected) -> str:
    try:
        await connected.connection.live(CHECK_S)
    except AgentflowError as error:
        return error.code
    return "ok"


async def _close(every: Sequence[Connected]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in every:
            group.create_task(each.aclose())


__all__ = ["McpConnections"]
