"""The MCP servers of a flow: connected concurrently, their tools registered, closed together.

Nothing here imports the SDK until there is a server to connect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agentflow.core.data.errors import AgentflowError
from agentflow.core.ports.ports import PromptRunner, Tool
from agentflow.core.ports.service_port import ServicePort
from agentflow.lib.event_loop import outlast
from agentflow.lib.own_threads import loaded
from agentflow.lib.redact import Redactor

if TYPE_CHECKING:
    from agentflow.connect.connected import Connected, Registry
    from agentflow.connect.servers import McpServer

MAX_NEWS = 100
"""Maximum number of warnings kept for the next run."""


class McpConnections:
    """The connections of a flow to its MCP ``servers``.

    Parameters: ``tools`` is the registry; ``services`` starts programs; ``prompts`` asks the model on behalf of servers
    with ``sampling``; ``redactor`` learns secrets and removes them from errors; ``roots`` are the flow's directories.
    ``failed`` holds the errors of absent servers by name; those are tried again until they connect. Raises
    ConfigurationError: ``mcp/server`` for invalid or conflicting descriptions, ``mcp/missing-extra`` if the SDK is not
    installed.
    """

    def __init__(
        self,
        servers: Sequence[McpServer],
        tools: Registry,
        services: Callable[[], ServicePort],
        prompts: PromptRunner,
        *,
        redactor: Redactor,
        roots: tuple[str, ...],
    ) -> None:
        if servers:
            from agentflow.connect.servers import check_names

            check_names(servers)
        if servers and find_spec("mcp") is None:
            from agentflow.lib.distribution import extra_missing

            raise extra_missing(
                "MCP servers need the SDK of the protocol, which is not installed", "mcp", code="mcp/missing-extra"
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
        """Connect all servers concurrently and register their tools. A second call does nothing. Returns the servers.

        Raises the first error of a required server, after closing the connected ones; the error of an
        optional server becomes a warning of the next run.
        """
        if self._open or not self.servers:
            return self._open
        await loaded("agentflow.connect.connected")  # with the SDK, a second and a half of processor time
        from agentflow.connect.connected import Connected

        services = self._services()
        every: list[Connected] = [
            Connected(
                server,
                self._tools,
                services,
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
        """Connect an absent server, with any number of attempts; the wait grows with each failure."""
        name = absent.server.name
        while (error := await _opened(absent)) is not None:
            self.failed[name] = error
        del self.failed[name]
        self._tell("mcp/tools-changed", f"the MCP server '{name}', which was absent, is now connected")

    @property
    def is_open(self) -> bool:
        """Whether the servers have been connected; before that their tools are unknown."""
        return bool(self._open)

    def states(self) -> dict[str, str]:
        """``ok`` for each required server, by name, or the code of the error that keeps it from being connected.

        Nothing is connected for it: a lost connection is ``ok`` until the next call of a tool has failed to open it again,
        and again once another attempt may be made.
        """
        needed = [each for each in self._open if not each.server.optional]
        return {each.server.name: "ok" if (error := each.connection.failure) is None else error.code for each in needed}

    def tools_of(self, name: str) -> list[Tool]:
        """The registered tools of the server ``name``, sorted by name."""
        return [tool for each in self._open if each.server.name == name for tool in each.tools]

    def news(self) -> list[tuple[str, str]]:
        """The codes and texts of warnings for a run that starts now; each is returned once."""
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


async def _close(every: Sequence[Connected]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in every:
            group.create_task(each.aclose())
