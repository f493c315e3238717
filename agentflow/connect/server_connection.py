"""The connection to one server: opened, used from any task, and opened again after it was lost.

The SDK's client must be entered and left in one task, so each open connection has an owner task. A tool call uses the
open connection, or opens a new one after a back-off that grows with the number of failures.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError

from agentflow.connect.accounts import Bearer, UserAccount
from agentflow.connect.http import challenged
from agentflow.connect.listing import ListedTool, list_tools
from agentflow.connect.live import CLOSED, EXPIRED, Live, was_closed
from agentflow.connect.oauth import Challenge
from agentflow.connect.servers import McpHttp, McpServer
from agentflow.connect.sign_in import SignIn
from agentflow.core.data.errors import AgentflowError, ConfigurationError, clip
from agentflow.core.ports.ports import PromptRunner
from agentflow.core.ports.service_port import ServicePort
from agentflow.lib.event_loop import outlast
from agentflow.lib.redact import Redactor
from agentflow.lib.shielded import run_to_completion
from agentflow.lib.text.safe_text import escape

_log = logging.getLogger(__name__)

CLOSE_S = 5.0
"""Seconds allowed for each part of closing."""
FIRST_WAIT_S = 0.5
"""Seconds to wait after the first failure; doubled with each further one, up to :data:`LONGEST_WAIT_S`."""
LONGEST_WAIT_S = 30.0
RELIST_S = 1.0
"""Seconds between two reads of a list of tools that keeps changing."""


class ServerDown(ConfigurationError):
    """An MCP server cannot be connected. ``details`` holds the last lines its program wrote to standard error."""

    default_code = "mcp/down"
    default_reason = "connection_error"


class SignedOut(ServerDown):
    """A server refuses a request until a user has signed in, or has more rights: ``challenge`` says which."""

    default_code = "mcp/signed-out"

    def __init__(self, server: McpHttp, challenge: Challenge) -> None:
        self.challenge = challenge
        super().__init__(
            f"the MCP server '{server.name}' wants a user to sign in",
            hint="a server that lists its tools for users only needs SignIn(..., lists_as='NAME'), and that user to sign in: "
            "await flow.mcp.sign_in(server, user='NAME') gives the address; on the command line: "
            f"agentflow mcp sign-in {server.url}",
            details={"server": server.name},
        )


class Connection:
    """The connection to ``server``, opened when it is first needed and again after it was lost.

    Parameters: ``services`` starts programs; ``prompts`` asks the model on behalf of servers with ``sampling``; ``redactor``
    learns secrets and removes them from errors; ``roots`` are the directories reported to a program that asks; ``listed``
    takes the tools of each new connection and of each change; ``refuse`` takes the name of an omitted tool, and the
    reason; ``secret`` takes each secret in its place; the tokens of ``account`` are sent.
    """

    def __init__(
        self,
        server: McpServer,
        services: ServicePort,
        prompts: PromptRunner,
        *,
        redactor: Redactor,
        roots: tuple[str, ...],
        listed: Callable[[Mapping[str, ListedTool]], None],
        refuse: Callable[[str, str], None],
        secret: Callable[[str], None] | None = None,
        account: UserAccount | None = None,
    ) -> None:
        self.server = server
        self.account = account
        self._secret = secret or redactor.add
        self.prompts = prompts
        self._services = services
        self._redactor = redactor
        self._roots = roots
        self._listed = listed
        self._refuse = refuse
        self._live: Live | None = None
        self._owner: asyncio.Task[None] | None = None
        self._retired: dict[asyncio.Task[None], Live] = {}
        self._opening: asyncio.Lock | None = None
        self._failures = 0
        self._not_before = 0.0
        self._failed: tuple[float, AgentflowError] | None = None
        self._closed = False

    @property
    def up(self) -> bool:
        """Whether the connection is open."""
        return self._live is not None

    @property
    def current(self) -> Live | None:
        """The open connection; None without one."""
        return self._live

    @property
    def failure(self) -> AgentflowError | None:
        """The error of the last attempt to connect, until another may be made; None for a connection that can be used or tried."""
        if self._closed:
            return self._down("is closed")
        if self._live is not None or self._failed is None or asyncio.get_running_loop().time() >= self._not_before:
            return None
        return self._failed[1]

    async def live(self, timeout_s: float | None = None) -> Live:
        """Return the open connection, opening it if necessary, within ``timeout_s`` seconds.

        Concurrent callers share one attempt. Raises ServerDown if it fails, takes too long, or must wait for the back-off.
        """
        if self._live is not None:
            return self._live
        loop = asyncio.get_running_loop()
        self._opening = self._opening or asyncio.Lock()
        asked = loop.time()
        async with self._opening:
            if self._live is not None:
                return self._live
            if self._failed is not None and self._failed[0] >= asked:
                raise self._failed[1].with_traceback(None)
            wait = max(0.0, self._not_before - loop.time())
            if self._closed:
                raise self._down("is closed")
            if timeout_s is not None and wait > timeout_s:
                raise self._down(f"failed {self._failures} times in a row; the next attempt is in {wait:.0f} s")
            await asyncio.sleep(wait)
            try:
                return await self._open()
            except SignedOut:  # which no later attempt changes, and a sign-in changes at once
                raise
            except AgentflowError as error:
                self._count_failure()
                self._failed = (loop.time(), error)
                raise

    def worked(self) -> None:
        """Note that a request was answered, which resets the back-off."""
        self._failures = 0

    def lose(self, live: Live, reason: str) -> None:
        """Give up a broken connection, for ``reason``; its owner task closes it."""
        live.end(reason)
        if self._live is live:
            self._live = None
            self._count_failure()

    def renew(self, live: Live) -> None:
        """Have later requests open a new connection, because the session has expired; those under way may end on ``live``."""
        owner = self._owner
        if self._live is live and owner is not None:
            self._live = self._owner = None
            self._retired[owner] = live
            owner.add_done_callback(lambda owner: self._retired.pop(owner, None))
        live.retired = True
        if not live.in_flight:
            live.end(EXPIRED)

    def _count_failure(self) -> None:
        wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**self._failures)
        self._failures += 1
        self._not_before = asyncio.get_running_loop().time() + wait

    async def aclose(self) -> None:
        """Close the connection within :data:`CLOSE_S`. Idempotent."""
        self._closed = True
        live, owner, self._live, self._owner = self._live, self._owner, None, None
        for each in (live, *self._retired.values()):
            if each is not None:
                each.end(CLOSED)
        await run_to_completion(_ended([each for each in (owner, *self._retired) if each is not None]))

    # -- the owner ---------------------------------------------------------------------------------------------------

    async def _open(self) -> Live:
        """Start an owner task and return the connection that it opened. Raises AgentflowError."""
        loop = asyncio.get_running_loop()
        if self._owner is not None:
            await run_to_completion(_ended([self._owner]))
        live, ready = Live(), loop.create_future()
        # an empty context: the connection outlives the call and the spans of its first user
        owner = loop.create_task(self._own(live, ready), name=f"mcp {self.server.name}", context=contextvars.Context())
        late = True
        try:
            done, _ = await asyncio.wait(
                [ready, owner], timeout=self.server.connect_s, return_when=asyncio.FIRST_COMPLETED
            )
            late = not done
        finally:
            if not ready.done():
                owner.cancel()
                await run_to_completion(_ended([owner]))
        if ready.done():
            self._owner, self._live = owner, live
            self._listed(live.tools)
            return live
        if late:
            raise self._down(f"did not answer within {self.server.connect_s:g} s", live)
        error = asyncio.CancelledError() if owner.cancelled() else owner.exception()
        cause = next(leaves(error), None) if error is not None else None
        if isinstance(cause, AgentflowError):
            raise cause
        challenge = challenged(cause) if isinstance(cause, MCPError) else None
        if challenge is not None and isinstance(self.server, McpHttp) and isinstance(self.server.credentials, SignIn):
            raise SignedOut(self.server, challenge)
        ended = cause is None or (isinstance(cause, MCPError) and was_closed(cause))
        words = live.ending if ended or cause is None else described(cause)
        # the cause is dropped if it holds a secret, since a traceback shows it as well
        shown = cause is None or not self._redactor.finds(str(cause))
        hint = None
        if challenge is not None and isinstance(self.server, McpHttp):
            hint = (
                f"sign in with agentflow mcp sign-in {self.server.url}, or let the users of a flow do so with"
                " McpHttp(..., credentials=SignIn(...)); a token of your own goes into headers"
            )
        raise self._down(f"cannot be connected: {words}", live, hint) from (cause if shown else None)

    async def _own(self, live: Live, ready: asyncio.Future[None]) -> None:
        """Open the connection, signal that it is ready, hold it until it is over, and close it."""
        try:
            auth = Bearer(self.account) if self.account is not None else None
            async with live.opened(self.server, self._services, self._secret, self._roots, auth):
                live.tools = await list_tools(live.session, self.server, self._refuse)
                ready.set_result(None)
                await self._hold(live)
        except Exception as error:
            if not ready.done():
                raise
            live.ending = live.ending or self._redactor.redact(described(next(leaves(error), error)))
            _log.debug("the connection to the MCP server %s broke", self.server.name, exc_info=True)
        finally:
            self.lose(live, live.ending or "it ended")
            live.closed.set()

    async def _hold(self, live: Live) -> None:
        """Wait until the connection is over; meanwhile list the tools again whenever they change."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow, live)
            capabilities = live.client.server_capabilities.tools
            if live.modern and capabilities is not None and capabilities.list_changed:
                group.start_soon(self._listen, live)
            await live.over.wait()
            group.cancel_scope.cancel()

    async def _listen(self, live: Live) -> None:
        """Subscribe to changes of the tools; servers of the newer revision announce them to subscribers only."""
        wait = FIRST_WAIT_S
        while True:
            try:
                async with live.client.listen(tools_list_changed=True) as changes:
                    wait = FIRST_WAIT_S
                    async for _ in changes:
                        live.news.set()
            except ListenNotSupportedError:
                return
            except (MCPError, SubscriptionLost, TimeoutError) as error:
                _log.debug("cannot subscribe to changes of the MCP server %s: %s", self.server.name, described(error))
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT_S, wait * 2)
            live.news.set()  # changes during the outage were not announced

    async def _follow(self, live: Live) -> None:
        while True:
            await live.news.wait()
            live.news.clear()
            try:
                async with asyncio.timeout(self.server.connect_s):
                    tools = await list_tools(live.session, self.server, self._refuse)
            except (MCPError, ValueError, TimeoutError) as error:
                _log.warning(
                    "the changed tools of the MCP server %s cannot be listed: %s",
                    self.server.name,
                    self._redactor.redact(described(error)),
                )
            else:
                live.tools = tools
                self._listed(tools)
            await asyncio.sleep(RELIST_S)

    def said(self, live: Live) -> str:
        """The last lines a program wrote to its standard error, redacted."""
        return self._redactor.redact(live.process.said()) if live.process is not None else ""

    def refused(self, live: Live | None) -> str | None:
        """How a program is given the path that its sandbox keeps from it, as a sentence; None if it complained of none."""
        path = live.process.refused() if live is not None and live.process is not None else None
        if path is None:
            return None
        shown = escape(clip(self._redactor.redact(path), 300))
        return (
            f"its sandbox keeps {shown!r} from it; McpStdio(..., readable=[{shown!r}]) lets it read there, "
            "and AgentFlow(readable=[...]) or --readable every server and command"
        )

    def _down(self, what: str, live: Live | None = None, hint: str | None = None) -> ServerDown:
        said = self.said(live).strip() if live is not None else ""
        refused = self.refused(live)
        last = escape(clip(said.splitlines()[-1].strip(), 300)) if said else ""
        return ServerDown(
            f"the MCP server '{self.server.name}' {self._redactor.redact(what)}" + (f": {last}" if last else ""),
            hint=refused
            or hint
            or "try it with agentflow mcp list; McpStdio(..., optional=True) lets the flow start without it",
            details={"server": self.server.name, **({"stderr": said} if said else {})},
        )


async def _ended(owners: Sequence[asyncio.Task[None]]) -> None:
    """Wait until owner tasks have closed their connections. Each :data:`CLOSE_S` they are cancelled: closing asks the server, which may
    never answer, to cancel a request and to end the session."""
    while pending := [each for each in owners if not each.done()]:
        await asyncio.wait(pending, timeout=CLOSE_S)
        for each in pending:
            each.cancel()
    for owner in owners:
        await outlast(owner)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, at any depth; those of cancellation last."""
    pending, late = [error], list[BaseException]()
    while pending:
        each = pending.pop(0)
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions  # pyright: ignore[reportUnknownMemberType]
        elif isinstance(each, asyncio.CancelledError):
            late.append(each)
        else:
            yield each
    yield from late


def described(error: BaseException) -> str:
    """The type and message of an error, shortened and safe for a terminal."""
    return escape(clip(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 500))
