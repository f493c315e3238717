"""The sign-ins of users at the MCP servers of a flow: begun without a run, ended by a callback, which answers the runs that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from agentflow.connect.accounts import Accounts, unknown_state
from agentflow.connect.servers import McpHttp, McpServer
from agentflow.connect.sign_in import SignIn
from agentflow.core.data.errors import ConfigurationError, DataError, JournalError
from agentflow.core.events.questions import Question
from agentflow.lib.redact import Redactor
from agentflow.lib.shielded import run_to_completion

OPENS_S = (0.0, 0.1, 0.4)
"""Seconds to wait for a run to open the question that a sign-in has answered meanwhile."""


class RunAnswers(Protocol):
    """The open questions of runs, and answers to them: a flow."""

    def questions(self, run_id: str) -> Awaitable[Iterable[Question]]: ...
    def send(self, run_id: str, key: str, answer: bool) -> Awaitable[None]: ...


class UserSignIns:
    """The sign-ins at those of the ``servers`` that have some; ``answers`` reaches the runs that wait. See
    :class:`~agentflow.connect.connections.McpConnections`."""

    def __init__(self, servers: Sequence[McpServer], redactor: Redactor, answers: RunAnswers | None) -> None:
        self._accounts = {
            each.name: Accounts(each, redactor)
            for each in servers
            if isinstance(each, McpHttp) and isinstance(each.credentials, SignIn)
        }
        self._answers = answers

    def _of(self, server: str) -> Accounts:
        if server not in self._accounts:
            raise _no_sign_in(f"the flow has no MCP server '{server}' whose users sign in")
        return self._accounts[server]

    async def begin(self, server: str, user: str) -> str | None:
        """The address at which the user signs in at a server; None for one who has."""
        return await self._of(server).begin(user)

    async def forget(self, server: str, user: str) -> None:
        """Delete the tokens of the user for a server."""
        await self._of(server).forget(user)

    async def end(self, parameters: Mapping[str, str], user: str) -> tuple[bool, str | None]:
        """End a sign-in. Returns whether the user signed in, and the name of the server that lists its tools for this user."""
        if not self._accounts:
            raise _no_sign_in("the flow has no MCP server whose users sign in")
        state = parameters.get("state", "")
        for name, accounts in self._accounts.items():
            owner = await accounts.owner_of(state) if state else None
            if owner is None:
                continue
            if owner != user:
                raise ConfigurationError(
                    "this sign-in was begun by another user of your application",
                    code="mcp/sign-in-state",
                    hint="user= is the user of the session in the browser that calls back, who can end only their own sign-in",
                )
            why, runs = await run_to_completion(accounts.end(user, dict(parameters)))
            await asyncio.gather(*[self._answer(run_id, address, not why) for run_id, address in runs])
            return not why, name if not why and accounts.sign_in.lists_as == user else None
        raise unknown_state()

    async def _answer(self, run_id: str, address: str, ok: bool) -> None:
        """Answer the questions of a run that carry this address. A run that has ended, or is of another database, has none."""
        if self._answers is None:
            return
        with suppress(DataError, JournalError):  # another process has answered it
            for wait in OPENS_S:
                await asyncio.sleep(wait)
                asked = [each for each in await self._answers.questions(run_id) if address in each.question]
                for each in asked:
                    await self._answers.send(run_id, each.key, ok)
                if asked:
                    return


def _no_sign_in(what: str) -> ConfigurationError:
    return ConfigurationError(
        what,
        code="mcp/sign-in",
        hint='AgentFlow(mcp=[McpHttp("tracker", url, credentials=SignIn(...))]), and its name: "tracker"',
    )
