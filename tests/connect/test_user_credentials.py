"""An MCP server that is called with the credentials of a run's user: each user has a connection, and no other user's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ConfigurationError, ScriptedProvider
from agentflow.connect.server_connection import Connection
from agentflow.connect.user_connections import UserConnections
from agentflow.lib.redact import Redactor
from agentflow.mcp import McpHttp
from tests.connect.flows import flow_with, seen
from tests.connect.http_servers import running, sdk_server

SERVICE, ADA, BO = "service-token-4f1c", "ada-token-98aa31", "bo-token-$77ffe2"
USERS = {SERVICE: "service", ADA: "ada", BO: "bo"}


@dataclass
class Account:
    """The dependencies of a run."""

    token: str


class Guarded:
    """The SDK's server behind bearer tokens, as the specification asks of a resource server: it refuses a request without one, or
    with an unknown one, by 401 and the header that says where to sign in. ``seen`` are the users of its requests to tools, ``opened``
    those who have begun a session."""

    def __init__(self) -> None:
        self._app = sdk_server().streamable_http_app()
        self.seen: list[str] = []
        self.opened: list[str] = []
        self.refused = 0
        self.valid = dict(USERS)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        user = self.valid.get(headers.get("authorization", "").removeprefix("Bearer "))
        if user is None:
            self.refused += 1
            where = b'Bearer resource_metadata="http://127.0.0.1/.well-known/oauth-protected-resource"'
            await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", where)]})
            await send({"type": "http.response.body", "body": b""})
            return
        method = headers.get("mcp-method", "")
        self.opened += [user] if method in ("server/discover", "initialize") else []
        self.seen += [user] if method == "tools/call" else []
        await self._app(scope, receive, send)


def of_user(ctx: CallContext[Account]) -> dict[str, str]:
    """The credentials of the user of a run."""
    return {"Authorization": f"Bearer {ctx.deps.token}"}


@asynccontextmanager
async def guarded(credentials: Callable[..., Any] = of_user) -> AsyncIterator[tuple[Guarded, McpHttp]]:
    """A server that demands tokens, and its description with those of the service and of users."""
    app = Guarded()
    async with running(app) as port:
        headers = {"Authorization": f"Bearer {SERVICE}"}
        yield app, McpHttp("sdk", f"http://127.0.0.1:{port}/mcp", headers=headers, credentials=credentials)


async def test_each_run_calls_as_its_user(tmp_path: Path) -> None:
    """The tools are listed with the flow's own credential, and called with those of the run's user, whoever calls; calls of one user
    share a connection, and the calls of two at once do not mix."""
    calls = {"tool_calls": [{"name": "sdk:shout", "arguments": {"text": "hi"}}]}
    model = ScriptedProvider([calls, "done"])
    async with guarded() as (app, server):
        async with flow_with(tmp_path, server, model=None, provider=model) as flow:
            assert app.opened == ["service"] and app.seen == []
            program = '(list (sdk:shout (text "a")) (sdk:shout (text "b")))'
            await asyncio.gather(*[flow.run(program, deps=Account(each)) for each in (ADA, BO)])
            assert sorted(app.seen) == ["ada", "ada", "bo", "bo"]
            await flow.run(flow.ask("Go.", tools=["sdk:shout"]), deps=Account(BO))
            assert app.seen[-1] == "bo" and sorted(app.opened) == ["ada", "bo", "service"]
            assert (await flow.run("(content (sdk:token))", deps=Account(BO))).value == f"Bearer {BO}"
    assert app.refused == 0


async def test_no_credential_is_no_call(tmp_path: Path) -> None:
    """A function that returns no headers, something else, or raises, ends the call: it is not made with the flow's own credential."""
    answers: list[Any] = [{}, None, {"Authorization": ""}, "Bearer x", {"Authorization": 3}]

    def wrong(ctx: CallContext) -> Any:
        if not answers:
            raise PermissionError("this user may not")
        return answers.pop(0)

    async with guarded(wrong) as (app, server):
        async with flow_with(tmp_path, server) as flow:
            codes: list[str] = []
            for _ in range(6):
                error = (await flow.run('(sdk:shout (text "a"))')).value.notes.error
                codes.append(error.details["code"])
    assert codes == ["mcp/credentials"] * 5 + ["host/raised"] and app.seen == []
    with pytest.raises(ConfigurationError) as refused:
        McpHttp("sdk", "http://127.0.0.1/mcp", credentials="Bearer x")  # type: ignore[arg-type]
    assert "ctx.deps.token" in (refused.value.hint or "") and "Bearer x" not in str(refused.value)


async def test_a_token_is_shown_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Tokens of users are in no event, record, error or log line, although the server repeats them; the redactor forgets them with
    their connection."""
    caplog.set_level(logging.DEBUG)
    database = tmp_path / "runs.db"
    async with guarded() as (app, server):
        async with flow_with(tmp_path, server, durable=f"sqlite:///{database}") as flow:
            value, events = await seen(flow, "(content (sdk:token))", deps=Account(ADA))
            assert value == f"Bearer {ADA}" and ADA not in str(events) and "redacted" in str(events)
            await (await flow.start("(content (sdk:token))", run_id="r", deps=Account(ADA))).result()
            del app.valid[BO]
            failed = (await flow.run('(sdk:shout (text "a"))', deps=Account(BO))).value
            assert failed.notes.error is not None and BO not in str(failed) and app.refused > 0
            redactor = flow.redactor
            assert redactor.finds(ADA) and not redactor.finds("ada-token")
        assert not redactor.finds(ADA) and not redactor.finds(f"x {BO} y")
    stored = b"".join([each.read_bytes() for each in tmp_path.glob("runs.db*") if each.is_file()])  # noqa: ASYNC240
    assert ADA.encode() not in stored
    assert ADA not in caplog.text and BO not in caplog.text


async def test_a_sign_in_is_a_question_of_the_run(tmp_path: Path) -> None:
    """A user without a token is asked to sign in: a durable run waits outside of memory until the host's callback has stored one, in
    another process too, and then calls as that user. What was asked is a record, the token is not."""
    store: dict[str, str] = {}

    async def signed_in(ctx: CallContext) -> dict[str, str]:
        if "ada" not in store:
            await ctx.ask_human("Sign in at https://login.example/?state=1", {"type": "null"})
        return {"Authorization": f"Bearer {store['ada']}"}

    options: dict[str, Any] = {"durable": f"sqlite:///{tmp_path / 'runs.db'}"}
    async with guarded(signed_in) as (app, server):
        async with flow_with(tmp_path, server, **options) as flow:
            handle = await flow.start('(value-of (sdk:shout (text "hi")))', run_id="r")
            assert await handle.wait() == "waiting"
            (question,) = await flow.questions("r")
            assert question.question.startswith("Sign in at https://") and app.seen == []
        store["ada"] = ADA
        async with flow_with(tmp_path, server, **options) as flow:
            await flow.send("r", question.key, None)
            assert (await (await flow.resume("r")).result()).value == {"result": "HI"}
    assert app.seen == ["ada"]


class ShiftedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test puts forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    """Five minutes after its last call a user's connection is closed, and the next call opens another."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ShiftedLoop)
        async with guarded() as (app, server):
            async with flow_with(tmp_path, server) as flow:
                for seconds in (0.0, 200.0, 299.0, 301.0):
                    loop.ahead += seconds
                    await asyncio.sleep(0.01)
                    await flow.run('(sdk:shout (text "a"))', deps=Account(ADA))
                return app.opened

    with asyncio.Runner(loop_factory=ShiftedLoop) as runner:
        assert runner.run(main()) == ["service", "ada", "ada"]


async def test_connections_of_users_are_bounded() -> None:
    """The connection of a hundred and first user takes the place of the one that was idle for the longest time, never of one with a
    call at work; if all have calls, a further user's call is refused."""
    token = ""
    made: list[str] = []
    server = McpHttp("sdk", "http://127.0.0.1:9/mcp", credentials=lambda ctx: {"Authorization": token})
    parts: Any = [None, None]

    def connect(own: McpHttp, secret: Any, account: Any) -> Connection:
        made.append(own.headers["Authorization"])
        options: Any = {"redactor": Redactor(), "roots": (), "listed": print, "refuse": print, "secret": secret}
        return Connection(own, *parts, **options)

    async def use(ctx: CallContext) -> str:
        """Have a hundred users call, and more."""
        nonlocal token
        users = UserConnections(server, connect, Redactor())
        async with AsyncExitStack() as at_work:
            for number in range(101):
                token = f"token-of-user-{number}"
                held = users.of(ctx)
                if number < 2:
                    await at_work.enter_async_context(held)
                else:
                    async with held:
                        pass
            for number in (0, 2, 50):
                token = f"token-of-user-{number}"
                async with users.of(ctx):
                    pass
            assert made == [f"token-of-user-{number}" for number in (*range(101), 2)]
            for number in range(98):
                token = f"token-of-busy-{number}"
                await at_work.enter_async_context(users.of(ctx))
            token = "token-of-one-too-many"
            with pytest.raises(ConfigurationError) as refused:
                async with AsyncExitStack() as more:
                    for _ in range(3):
                        token += "x"
                        await more.enter_async_context(users.of(ctx))
            assert refused.value.code == "mcp/credentials" and "100 users" in refused.value.message
        await users.aclose()
        return "done"

    async with AgentFlow(model="offline", tools=[use]) as flow:
        assert await flow.call_tool("use") == "done"
