"""The MCP servers of a flow: connected concurrently, their tools registered, closed together.

Nothing here imports the SDK until there is a server to connect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from functools import partial
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
    from agentflow.connect.user_sign_ins import RunAnswers, UserSignIns

MAX_NEWS = 100
"""Maximum number of warnings kept for the next run."""
LIST_S = 15.0
"""Seconds to wait for the tools of a server after a sign-in of its user."""


class McpConnections:
    """The connections of a flow to its MCP ``servers``.

    Parameters: ``tools`` is the registry; ``services`` starts programs; ``prompts`` asks the model on behalf of servers
    with ``sampling``; ``redactor`` learns secrets and removes them from errors; ``roots`` are the flow's directories;
    ``answers`` reaches the runs that wait for a sign-in.
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
        answers: RunAnswers | None = None,
    ) -> None:
        if servers:
            from agentflow.connect.servers import check_names, check_stores

            check_names(servers)
            check_stores(servers, roots)
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
        self._answers = answers
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
        from agentflow.connect.connected import Connected, open_all

        services = self._services()
        connected = partial(Connected, redactor=self._redactor, roots=self._roots, news=self._tell)
        every = [connected(each, self._tools, services, self._prompts) for each in self.servers]
        for each, error in await open_all(every):
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
        while (error := await absent.opened()) is not None:
            self.failed[name] = error
            await absent.signed_in_after(error)
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
        errors = [(each.server.name, self.failed.get(each.server.name) or each.connection.failure) for each in needed]
        return {name: "ok" if error is None else error.code for name, error in errors}

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

    # -- users who sign in -------------------------------------------------------------------------------------------

    async def sign_in(self, server: str, *, user: str) -> str | None:
        """Begin a sign-in of ``user`` at the server of this name, without a run. Returns the address that the user has to open, the
        same until it was used; None if the user has signed in. Raises ConfigurationError: ``mcp/sign-in`` for a server without a
        :class:`~agentflow.mcp.SignIn`, ``mcp/oauth``, ``mcp/oauth-down``; and the errors of the store."""
        return await (await self._sign_ins()).begin(server, user)

    async def signed_in(self, parameters: Mapping[str, str], *, user: str) -> bool:
        """End a sign-in with the query ``parameters`` of a request to your ``redirect_uri``, and answer the runs that wait for it.

        ``user`` is the user of your own session in that browser. Returns False if they refused; the calls that wait then fail. Works in
        any process that shares the store; a run that is not durable is answered in its own. Raises ConfigurationError:
        ``mcp/sign-in-state`` for parameters that belong to no sign-in of this user, and as :meth:`sign_in`.
        """
        done, lists = await (await self._sign_ins()).end(parameters, user)
        if lists in self.failed:  # the server waits for this user: its tools are listed when this returns
            for each in self._open:
                each.signed_in.set()
            waiting = [task for task in self._absent if task.get_name() == f"mcp {lists} again"]
            await asyncio.wait(waiting, timeout=LIST_S)
        return done

    async def sign_out(self, server: str, *, user: str) -> None:
        """Delete the tokens of ``user`` for the server of this name; the next call asks the user to sign in. The tokens are not revoked
        at the authorization server. Raises as :meth:`sign_in`."""
        await (await self._sign_ins()).forget(server, user)

    async def _sign_ins(self) -> UserSignIns:
        await loaded("agentflow.connect.user_sign_ins")
        from agentflow.connect.user_sign_ins import UserSignIns

        return UserSignIns(self.servers, self._redactor, self._answers)

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        every, self._open = self._open, []
        absent, self._absent = self._absent, []
        cancelled: asyncio.CancelledError | None = None
        for task in absent:
            task.cancel()
            cancelled = await outlast(task) or cancelled
        if every:
            from agentflow.connect.connected import close_all

            await close_all(every)
        if cancelled is not None:
            raise cancelled
