"""The connections to one server with the credentials of users: one for each user, or set of headers, bounded, closed once idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from secrets import token_bytes
from typing import TypeAlias, cast

from agentflow.connect.accounts import Accounts, UserAccount
from agentflow.connect.live import CREDENTIALS
from agentflow.connect.server_connection import Connection
from agentflow.connect.servers import McpHttp
from agentflow.core.call.call import CallContext
from agentflow.core.call.endings import called_by_host
from agentflow.core.data.errors import ConfigurationError, TaskError
from agentflow.lib.redact import Redactor

MAX_USERS = 100
"""Open connections to one server with credentials of users."""
IDLE_S = 300.0
"""Seconds without a call after which such a connection is closed."""


Connect: TypeAlias = "Callable[[McpHttp, Callable[[str], None], UserAccount | None], Connection]"


class _Used:
    """A connection with the number of calls that use it."""

    def __init__(self) -> None:
        self.connection = cast(Connection, None)
        self.secrets: list[str] = []
        self.count = 0
        self.timer: asyncio.TimerHandle | None = None


# No call goes out with the flow's own credential in place of a user's (decision 67)
class UserConnections:
    """The connections to ``server`` by the headers that its ``credentials`` function returns, or by the users of its ``accounts``.

    Parameters: ``connect`` makes a connection, whose secrets a function takes; ``redactor`` knows these while it is open.
    """

    def __init__(self, server: McpHttp, connect: Connect, redactor: Redactor, accounts: Accounts | None = None) -> None:
        self._server = server
        self._accounts = accounts
        self._connect = connect
        self._redactor = redactor
        self._users: dict[bytes, _Used] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._secret = token_bytes(32)

    @asynccontextmanager
    async def of(self, call: CallContext) -> AsyncGenerator[Connection]:
        """A block with the connection of the user of ``call``, who is asked to sign in if that is needed. Raises the errors of the
        function and of signing in, and ConfigurationError (``mcp/credentials``) for a value other than a mapping of texts, and for too
        many users at once."""
        user = "" if self._accounts is None else await self._accounts.user_of(call)
        headers: Mapping[str, str] = await self._headers(call) if self._accounts is None else {}
        if self._accounts is not None:
            await UserAccount(self._accounts, user).ready(call)
        lines = [f"{name.lower()}\0{headers[name]}\0" for name in sorted(headers)]
        content = user or "".join(lines)
        key = blake2b(content.encode("utf-8", "surrogatepass"), key=self._secret).digest()
        used = self._users.pop(key, None)
        if used is None:
            self._make_room()
            used = _Used()
            secret = partial(self._lend, used)
            for name, value in headers.items():
                if name.lower() not in CREDENTIALS:  # whose values are secrets in any case
                    secret(value)
            own = {name: value.replace("$", "$$") for name, value in headers.items()}
            flows = self._server.headers
            if self._accounts is not None:
                flows = {name: value for name, value in flows.items() if name.lower() != "authorization"}
            server = replace(self._server, headers={**flows, **own})
            account = None if self._accounts is None else UserAccount(self._accounts, user, secret)
            used.connection = self._connect(server, secret, account)
        self._users[key] = used  # the last used one comes last
        used.count += 1
        if used.timer is not None:
            used.timer.cancel()
        try:
            yield used.connection
        finally:
            used.count -= 1
            if used.count == 0 and self._users.get(key) is used:
                used.timer = asyncio.get_running_loop().call_later(IDLE_S, self._close, key)

    def _lend(self, used: _Used, secret: str) -> None:
        used.secrets.append(secret)
        self._redactor.lend(secret)

    async def _headers(self, call: CallContext) -> Mapping[str, str]:
        label = f"the credentials function of the MCP server '{self._server.name}'"
        inner = call.at(call.marked_path("mcp-credentials", self._server.name))
        function = cast("Callable[..., object]", self._server.credentials)
        try:
            value: object = await called_by_host(function, (inner,), inner, label)
        except TaskError as error:  # the call fails, not the task of the model that made it
            raise ConfigurationError(error.message, code=error.code, details=error.details) from error
        texts = cast("Mapping[object, object]", value).items() if isinstance(value, Mapping) else ()
        if not texts or not all([isinstance(each, str) and each for pair in texts for each in pair]):
            raise ConfigurationError(  # without the value: it may be a secret
                f"{label} returned no headers",
                code="mcp/credentials",
                hint='return {"Authorization": f"Bearer {ctx.deps.token}"}, or raise an error to refuse the call',
            )
        return cast("Mapping[str, str]", value)

    def _make_room(self) -> None:
        if len(self._users) < MAX_USERS:
            return
        idle = next((key for key, each in self._users.items() if each.count == 0), None)
        if idle is None:
            raise ConfigurationError(
                f"the MCP server '{self._server.name}' has calls of {MAX_USERS} users at work, which is the maximum",
                code="mcp/credentials",
                hint="limit the number of runs at once",
            )
        self._close(idle)

    def _close(self, key: bytes) -> None:
        used = self._users.pop(key)
        if used.timer is not None:
            used.timer.cancel()
        closing = asyncio.get_running_loop().create_task(self._end(used))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _end(self, used: _Used) -> None:
        await used.connection.aclose()
        for value in used.secrets:
            self._redactor.take_back(value)

    async def aclose(self) -> None:
        """Close all of them. Idempotent."""
        for key in tuple(self._users):
            self._close(key)
        if self._closing:
            await asyncio.wait(tuple(self._closing))
