"""Users sign in to an MCP server by OAuth, as the specification says: each step against servers that refuse everything else."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from agentflow import AgentFlow, CallContext, ConfigurationError, Durable, ScriptedProvider
from agentflow.mcp import FileTokens, McpHttp, MemoryTokens, RegisteredClient, SignIn
from agentflow.serve import Export
from tests.connect.flows import flow_with, seen
from tests.connect.http_servers import running
from tests.support.children import HANG_S
from tests.support.oauth_server import (
    REDIRECT,
    StrictAuthorizationServer,
    StrictMcpServer,
    address_in,
    browse,
    strict_servers,
)
from tests.support.served import served

SERVICE = "service-token-4f1c"
SHOUT = '(value-of (sdk:shout (text "hi")))'
SAID = {"result": "HI"}


@dataclass
class Who:
    """The dependencies of a run: its user."""

    user: str


ADA, BO = Who("ada"), Who("bo")


def user_of(ctx: CallContext[Who]) -> str:
    """The user of a run."""
    return ctx.deps.user


def signing_in(**options: Any) -> SignIn:
    """A sign-in with tokens in memory."""
    return SignIn(**{"user": user_of, "redirect_uri": REDIRECT, "tokens": MemoryTokens(), **options})


def described(server: StrictMcpServer, sign_in: SignIn, **options: Any) -> McpHttp:
    """The description of a server that lists its tools for the service, and calls them for users."""
    server.service = SERVICE
    headers = {"Authorization": f"Bearer {SERVICE}"}
    return McpHttp("sdk", f"{server.url}/mcp", **{"headers": headers, "credentials": sign_in, **options})


@asynccontextmanager
async def opened(
    root: Path, server: StrictMcpServer, sign_in: SignIn | None = None, **options: Any
) -> AsyncIterator[AgentFlow]:
    """A flow over a database, with users who sign in."""
    options = {"durable": f"sqlite:///{root / 'runs.db'}", "deps": None, **options}
    async with flow_with(root, described(server, sign_in or signing_in()), **options) as flow:
        yield flow


async def address(flow: AgentFlow, user: str) -> str:
    """The address at which a user signs in."""
    begun = await flow.mcp.sign_in("sdk", user=user)
    assert begun is not None
    return begun


async def sign_in(flow: AgentFlow, user: str) -> None:
    """Let a user sign in before any run."""
    assert await flow.mcp.signed_in(await browse(await address(flow, user), user), user=user)


async def code_of(flow: AgentFlow, who: Who = ADA, program: str = '(sdk:shout (text "hi"))') -> str:
    """The code of the error with which a call fails."""
    error = (await flow.run(program, deps=who)).value.notes.error
    return str(error.details["code"])


async def refusal(flow: AgentFlow, parameters: dict[str, str], user: str = "ada") -> ConfigurationError:
    """The error for the parameters of a callback."""
    with pytest.raises(ConfigurationError) as refused:
        await flow.mcp.signed_in(parameters, user=user)
    return refused.value


# -- the whole way ------------------------------------------------------------------------------------------------------


async def test_a_run_waits_for_the_sign_in_of_its_user(tmp_path: Path) -> None:
    """The question of the run has the address; the callback answers it. The application is registered once, for all users, and each
    user's calls have that user's token."""
    async with strict_servers() as (authority, server), opened(tmp_path, server) as flow:
        runs = [await flow.start(SHOUT, deps=who) for who in (ADA, BO, ADA)]
        for run in runs:
            assert await run.wait() == "waiting"
        questions = [(await flow.questions(run.run_id))[0].question for run in runs]
        assert questions[0] == questions[2] != questions[1], "the runs of one user wait for one sign-in"
        for question, user in zip(questions[:2], ("ada", "bo"), strict=True):
            assert await flow.mcp.signed_in(await browse(address_in(question), user), user=user) is True
        assert [(await run.result()).value for run in runs] == [SAID] * 3
        assert sorted(server.seen) == ["ada", "ada", "bo"]
        assert await flow.mcp.sign_in("sdk", user="ada") is None
    assert authority.faults == [] and authority.registered == 1 and authority.exchanged == 2


async def test_an_ordinary_run_waits_in_its_process(tmp_path: Path) -> None:
    """A run that is not durable waits for the same callback, with ``approval_ttl`` or an answerer; without, its call fails."""
    async with strict_servers() as (authority, server):
        async with opened(tmp_path, server, durable=None, approval_ttl=30) as flow:
            async with flow.stream(SHOUT, deps=ADA) as run:
                async for event in run:
                    if event.type == "wait_started":
                        parameters = await browse(address_in(event.question), "ada")
                        assert await flow.mcp.signed_in(parameters, user="ada")
                assert await run.value() == SAID
        flows: list[AgentFlow] = []

        async def answer(question: Any) -> bool:
            parameters = await browse(address_in(question.question), "ada")
            return await flows[0].mcp.signed_in(parameters, user="ada")

        async with opened(tmp_path, server, durable=None, answer=answer) as flow:
            flows.append(flow)
            assert (await flow.run(SHOUT, deps=ADA)).value == SAID
        async with opened(tmp_path, server, durable=None) as flow:
            assert await code_of(flow) == "mcp/signed-out"
    assert authority.faults == []


@pytest.mark.slow
async def test_a_model_calls_as_the_user_of_its_run(tmp_path: Path) -> None:
    """A task with the tool waits for its user as a program does."""
    calls = {"tool_calls": [{"name": "sdk:shout", "arguments": {"text": "hi"}}]}
    async with strict_servers() as (authority, server):
        model = ScriptedProvider([calls, "done"])
        async with opened(tmp_path, server, model=None, provider=model, approve=lambda request: True) as flow:
            flow.task_system.register_template(
                {"name": "go", "subtype": "go", "params": "", "instructions": "Go.", "tools": ["sdk:shout"]}
            )
            run = await flow.start("(value-of (go))", deps=BO)
            assert await run.wait() == "waiting"
            question = (await flow.questions(run.run_id))[0].question
            assert await flow.mcp.signed_in(await browse(address_in(question), "bo"), user="bo")
            assert (await run.result()).value == "done" and server.seen == ["bo"]
    assert authority.faults == []


async def test_a_no_fails_the_call(tmp_path: Path) -> None:
    """A user who refuses is not asked again by the same call, also when the run is resumed; the next call asks."""
    async with strict_servers() as (authority, server), opened(tmp_path, server) as flow:
        run = await flow.start('(sdk:shout (text "hi"))', deps=ADA)
        assert await run.wait() == "waiting"
        question = (await flow.questions(run.run_id))[0].question
        parameters = await browse(address_in(question), "ada", refuse=True)
        assert await flow.mcp.signed_in(parameters, user="ada") is False
        error = (await run.result()).value.notes.error
        assert error.details["code"] == "mcp/sign-in-refused" and server.seen == []
        again = await flow.start('(sdk:shout (text "hi"))', deps=ADA)
        assert await again.wait() == "waiting" and (await flow.questions(again.run_id))[0].question != question
        await again.cancel()
    assert authority.faults == [] and authority.exchanged == 0


async def test_tools_that_are_listed_for_users_only(tmp_path: Path) -> None:
    """A server that answers nobody without a token lists its tools as the user of ``lists_as``, as soon as that user has signed in; until
    then the flow works without it. Without ``lists_as`` the flow says so."""
    async with strict_servers() as (authority, server):
        server.service = ""
        bare = McpHttp("sdk", f"{server.url}/mcp", credentials=signing_in())
        with pytest.raises(ConfigurationError) as refused:
            async with flow_with(tmp_path, bare):
                raise NotImplementedError
        assert refused.value.code == "mcp/signed-out" and "lists_as='NAME'" in (refused.value.hint or "")
        store = MemoryTokens()
        listed = McpHttp("sdk", f"{server.url}/mcp", credentials=signing_in(lists_as="ada", tokens=store))
        async with flow_with(tmp_path, listed) as flow:
            assert "sdk:shout" not in flow.tools.names() and flow.mcp.states() == {"sdk": "mcp/signed-out"}
            await sign_in(flow, "ada")
            assert "sdk:shout" in flow.tools.names() and flow.mcp.states() == {"sdk": "ok"}
            await sign_in(flow, "bo")
            assert (await flow.run(SHOUT, deps=BO)).value == SAID and server.seen == ["bo"]
        async with flow_with(tmp_path, listed) as flow:
            assert "sdk:shout" in flow.tools.names()
    assert authority.faults == []


# -- tokens -------------------------------------------------------------------------------------------------------------


async def test_a_token_is_renewed_once(tmp_path: Path) -> None:
    """Twenty calls at once with a token whose time is over renew it once: each refresh token is used once. So do two flows over one
    directory, as two processes have them."""
    async with strict_servers() as (authority, server):
        store = tmp_path / "tokens"
        options: dict[str, Any] = {"root": tmp_path / "w", "durable": None}
        (tmp_path / "w").mkdir()
        async with (
            opened(server=server, sign_in=signing_in(tokens=FileTokens(store)), **options) as one,
            opened(server=server, sign_in=signing_in(tokens=FileTokens(store)), **options) as two,
        ):
            await sign_in(one, "ada")
            assert (await two.run(SHOUT, deps=ADA)).value == SAID
            for flows in ((one,), (one, two)):
                before = authority.refreshed
                authority.expire()
                runs = await asyncio.gather(
                    *[flow.run(SHOUT, deps=ADA) for flow in flows for _ in range(20 // len(flows))]
                )
                assert [run.value for run in runs] == [SAID] * 20 and authority.refreshed == before + 1
        modes = {stat.S_IMODE(each.stat().st_mode) for each in store.iterdir()}
        assert modes == {0o600} and stat.S_IMODE(store.stat().st_mode) == 0o700
    assert authority.faults == []


@pytest.mark.slow
async def test_a_token_is_renewed_before_its_end(tmp_path: Path) -> None:
    """A token that the authorization server gave no time is used until it is refused; one with a time is not sent after it."""
    authority = StrictAuthorizationServer(life=0.0)
    async with strict_servers(authority) as (authority, server), opened(tmp_path, server, durable=None) as flow:
        await sign_in(flow, "ada")
        authority.life = None
        for _ in range(3):
            assert (await flow.run(SHOUT, deps=ADA)).value == SAID
        assert authority.refreshed == 1 and server.refused == 1, (
            "the one refusal is that of the question where to sign in"
        )
    assert authority.faults == []


async def test_a_refused_renewal_is_a_sign_in(tmp_path: Path) -> None:
    """When the authorization server renews the token no longer, the user is asked again. While it is away, the call fails, and the user
    is not asked: the refresh token is still good."""
    async with strict_servers() as (authority, server), opened(tmp_path, server) as flow:
        await sign_in(flow, "ada")
        authority.expire()
        authority.away = True
        assert await code_of(flow) == "mcp/oauth-down"
        authority.away = False
        assert (await flow.run(SHOUT, deps=ADA)).value == SAID
        authority.revoke("ada", refresh=True)
        run = await flow.start(SHOUT, deps=ADA)
        assert await run.wait() == "waiting"
        question = (await flow.questions(run.run_id))[0].question
        assert await flow.mcp.signed_in(await browse(address_in(question), "ada"), user="ada")
        assert (await run.result()).value == SAID
        await flow.mcp.sign_out("sdk", user="ada")
        assert await flow.mcp.sign_in("sdk", user="ada") is not None
    assert authority.faults == []


@pytest.mark.slow
async def test_a_renewal_ends_although_its_call_is_cancelled(tmp_path: Path) -> None:
    """The answer to a renewal holds the only valid refresh token: it is stored, also if the call that asked is given up."""
    async with strict_servers() as (authority, server), opened(tmp_path, server, durable=None) as flow:
        await sign_in(flow, "ada")
        for _ in range(10):
            authority.expire()
            before = authority.refreshed
            call = asyncio.create_task(flow.run(SHOUT, deps=ADA))
            while authority.refreshed == before:
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        assert (await flow.run(SHOUT, deps=ADA)).value == SAID
    assert authority.faults == []


async def test_more_scopes_are_asked_for_when_they_are_needed(tmp_path: Path) -> None:
    """A call that needs another scope asks the user for it, together with those granted before. A scope that was asked for, and not
    granted, fails the call."""
    async with strict_servers(needs={"shout": {"write"}}) as (authority, server), opened(tmp_path, server) as flow:
        await sign_in(flow, "ada")
        run = await flow.start(SHOUT, deps=ADA)
        assert await run.wait() == "waiting"
        more = address_in((await flow.questions(run.run_id))[0].question)
        assert "scope=read+write" in more
        assert await flow.mcp.signed_in(await browse(more, "ada"), user="ada")
        assert (await run.result()).value == SAID
        server.needs["shout"] = {"admin"}
        authority.grants = {"read"}
        run = await flow.start('(sdk:shout (text "hi"))', deps=ADA)
        assert await run.wait() == "waiting"
        more = address_in((await flow.questions(run.run_id))[0].question)
        assert await flow.mcp.signed_in(await browse(more, "ada"), user="ada")
        assert (await run.result()).value.notes.error.details["code"] == "mcp/scope"
    assert authority.faults == []


async def test_tokens_are_shown_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No token, code, verifier or secret of a client is in an event, record, error or log line, although the server repeats tokens."""
    caplog.set_level(logging.DEBUG)
    authority = StrictAuthorizationServer(patch={"token_endpoint_auth_methods_supported": ["client_secret_basic"]})
    root = tmp_path / "w"
    root.mkdir()
    async with strict_servers(authority) as (authority, server), opened(root, server) as flow:
        await sign_in(flow, "ada")
        logged = caplog.text.replace(SERVICE, "")
        caplog.clear()
        value, events = await seen(flow, "(content (sdk:token))", deps=ADA)
        assert value.startswith("Bearer access-") and "redacted" in str(events)
        run = await flow.start("(content (sdk:token))", deps=ADA)
        await run.result()
        authority.revoke("ada", refresh=True)
        asking = await flow.start(SHOUT, deps=ADA)
        assert await asking.wait() == "waiting"
        shown = str(events) + repr(flow.mcp.servers)
    stored = b"".join([each.read_bytes() for each in root.rglob("*") if each.is_file()]).decode("latin-1")
    for secret in authority.secrets:
        browsed = secret.startswith("code-")  # the browser of the test logs its answers in DEBUG
        assert secret not in shown + stored + ("" if browsed else logged + caplog.text), secret
    assert any([secret.startswith("client-") for secret in authority.secrets]) and authority.faults == []


# -- callbacks ----------------------------------------------------------------------------------------------------------


async def test_a_callback_counts_once_for_its_user(tmp_path: Path) -> None:
    """Parameters without the state of a sign-in of this user, of another authorization server, or used before, are refused and change
    nothing; the right ones still count afterwards."""
    async with strict_servers() as (authority, server), opened(tmp_path, server, durable=None) as flow:
        right = await browse(await address(flow, "ada"), "ada")
        wrong: list[tuple[dict[str, str], str]] = [
            ({**right, "state": "0" * 64}, "ada"),
            ({key: value for key, value in right.items() if key != "state"}, "ada"),
            (right, "bo"),
            ({**right, "iss": "https://evil.example"}, "ada"),
            ({key: value for key, value in right.items() if key != "iss"}, "ada"),
            ({"error": "access_denied", "state": right["state"], "iss": "https://evil.example"}, "ada"),
        ]
        for parameters, user in wrong:
            error = await refusal(flow, parameters, user)
            assert error.code == "mcp/sign-in-state" and right["code"] not in str(error)
        assert authority.exchanged == 0, "no code was sent anywhere"
        assert await flow.mcp.signed_in(right, user="ada") is True
        assert (await refusal(flow, right)).code == "mcp/sign-in-state"
        assert authority.exchanged == 1 and (await flow.run(SHOUT, deps=ADA)).value == SAID
    assert authority.faults == []


@pytest.mark.slow
async def test_a_code_that_is_refused_ends_the_sign_in(tmp_path: Path) -> None:
    """A code that the authorization server refuses fails the calls that wait, and another sign-in may follow."""
    async with strict_servers() as (authority, server), opened(tmp_path, server) as flow:
        parameters = await browse(await address(flow, "ada"), "ada")
        assert await flow.mcp.signed_in({**parameters, "code": "code-of-another"}, user="ada") is False
        assert authority.faults == ["a code of another client"]
        await sign_in(flow, "ada")
        assert (await flow.run(SHOUT, deps=ADA)).value == SAID


# -- who the application is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", [None, "client-secret-$-77aa"])
async def test_a_registered_client_is_used(tmp_path: Path, secret: str | None) -> None:
    """The host's own registration is used, with or without a secret, and nothing is registered."""
    authority = StrictAuthorizationServer()
    authority.clients["mine"] = {"redirect_uris": [REDIRECT], "secret": secret}
    async with strict_servers(authority) as (authority, server):
        written = None if secret is None else secret.replace("$", "$$")
        client = RegisteredClient("mine", secret=written, issuer=authority.issuer)
        assert "client-secret" not in repr(client)
        async with opened(tmp_path, server, signing_in(client=client)) as flow:
            await sign_in(flow, "ada")
            authority.expire()
            assert (await flow.run(SHOUT, deps=ADA)).value == SAID
        other = RegisteredClient("mine", secret=written, issuer="http://127.0.0.1:9/other")
        async with opened(tmp_path, server, signing_in(client=other)) as flow:
            with pytest.raises(ConfigurationError, match=r"which is not one of http://127\.0\.0\.1:9/other"):
                await flow.mcp.sign_in("sdk", user="ada")
    assert authority.faults == [] and authority.registered == 0


@pytest.mark.slow
async def test_a_metadata_document_is_the_client(tmp_path: Path) -> None:
    """Where the authorization server supports client id metadata documents, the address of the document is the client; elsewhere the
    application is registered."""
    document = "https://app.example/oauth/client.json"
    authority = StrictAuthorizationServer(documents={document: [REDIRECT]})
    async with strict_servers(authority) as (authority, server):
        async with opened(tmp_path, server, signing_in(document=document)) as flow:
            await sign_in(flow, "ada")
            assert (await flow.run(SHOUT, deps=ADA)).value == SAID
        assert authority.registered == 0
        authority.documents.clear()
        async with opened(tmp_path, server, signing_in(document=document)) as flow:
            await sign_in(flow, "bo")
        assert authority.registered == 1
        authority.patch["registration_endpoint"] = None
        async with opened(tmp_path, server, signing_in()) as flow:
            with pytest.raises(ConfigurationError, match="registers no clients") as refused:
                await flow.mcp.sign_in("sdk", user="ada")
            assert "RegisteredClient" in (refused.value.hint or "")
    assert authority.faults == []


# -- discovery ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "well_known"),
    [
        ("", "/.well-known/oauth-authorization-server"),
        pytest.param("/tenant", "/.well-known/oauth-authorization-server", marks=pytest.mark.slow),
        pytest.param("", "/.well-known/openid-configuration", marks=pytest.mark.slow),
        ("/tenant", "/.well-known/openid-configuration"),
    ],
)
async def test_metadata_is_at_the_well_known_addresses(tmp_path: Path, path: str, well_known: str) -> None:
    """OAuth and OpenID metadata, with the path of the issuer inserted; that of the resource without the help of a challenge."""
    authority = StrictAuthorizationServer(path=path, well_known=well_known)
    options: dict[str, Any] = {"challenge": lambda url: "Bearer"}
    async with strict_servers(authority, **options) as (authority, server), opened(tmp_path, server) as flow:
        assert "scope=read&" in f"{await address(flow, 'ada')}&"
        await sign_in(flow, "ada")
        assert (await flow.run(SHOUT, deps=ADA)).value == SAID
    assert authority.faults == []


HOSTILE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another issuer": ({"issuer": "https://evil.example"}, {}, "is that of https://evil.example"),
    "no PKCE": ({"code_challenge_methods_supported": None}, {}, "PKCE"),
    "plain PKCE": ({"code_challenge_methods_supported": ["plain"]}, {}, "PKCE"),
    "a huge document": ({"padding": "x" * 300_000}, {}, "262,144 bytes"),
    "a token endpoint in the clear": ({"token_endpoint": "http://evil.example/token"}, {}, "not encrypted"),
    "a page of this machine": ({"authorization_endpoint": "file:///etc/passwd"}, {}, "fault in authorization_endpoint"),
    "another resource": ({}, {"resource": "https://evil.example/mcp"}, "another resource, https://evil.example/mcp"),
    "no authorization server": ({}, {"authorization_servers": []}, "fault in authorization_servers"),
    "an authorization server in the clear": ({}, {"authorization_servers": ["http://evil.example"]}, "not encrypted"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_metadata_that_lies_is_refused(tmp_path: Path, name: str) -> None:
    """Metadata that the specification forbids ends the sign-in before anything secret was sent."""
    patch, resource, why = HOSTILE[name]
    authority = StrictAuthorizationServer(patch=patch)
    async with strict_servers(authority, patch=resource) as (authority, server), opened(tmp_path, server) as flow:
        with pytest.raises(ConfigurationError) as refused:
            await flow.mcp.sign_in("sdk", user="ada")
    assert refused.value.code == "mcp/oauth" and why in refused.value.message, refused.value.message
    assert authority.registered == authority.exchanged == 0 and authority.faults == []


def test_a_server_elsewhere_cannot_name_addresses_here() -> None:
    """A server that is not of this machine may name no address of it, nor of a private network, in any spelling of the address."""
    from agentflow.connect.sign_in import unsafe

    for address in (
        "http://127.0.0.1/x", "https://127.0.0.1/x", "https://localhost/x", "https://[::1]/x", "https://10.0.0.7/x",
        "https://169.254.169.254/latest", "https://192.168.1.1/", "https://u:p@login.example/", "ftp://login.example/",
        "https:///x", "https://[::ffff:10.0.0.1]/", "http://login.example/", "https://login.example:99999/",
    ):  # fmt: skip
        assert unsafe(address, local=False), address
    assert unsafe("https://login.example/x", local=False) is None
    assert unsafe("http://127.0.0.1:8000/x", local=True) is None and unsafe("http://10.0.0.7/", local=True)


# -- the first mistakes ---------------------------------------------------------------------------------------------------


async def test_what_is_written_wrong_at_first(tmp_path: Path) -> None:
    """An address without https, the class in place of an object, a text in place of a function, tokens where the flow's tools can read
    them, and a question that is answered without a sign-in: each says what to write."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"redirect_uri": "http://app.example/callback"}, "https://app.example.com/"),
        ({"redirect_uri": "/callback"}, "https://app.example.com/"),
        ({"user": "ada"}, "user=lambda ctx: ctx.deps.user"),
        ({"tokens": {}}, "FileTokens"),
        ({"client": "my-client"}, "RegisteredClient("),
        ({"document": "http://app.example/client.json"}, "document="),
        ({"scopes": "read"}, "scopes=["),
        ({"issuers": ["login.example"]}, "issuers="),
    ]
    for options, hint in wrong:
        with pytest.raises(ConfigurationError) as refused:
            signing_in(**options)
        assert refused.value.code == "mcp/sign-in" and hint in (refused.value.hint or ""), options
    for credentials, url in ((SignIn, "https://example.com/mcp"), (signing_in(), "http://example.com/mcp")):
        with pytest.raises(ConfigurationError) as refused:
            McpHttp("sdk", url, credentials=credentials)  # type: ignore[arg-type]
        assert refused.value.code == "mcp/server"
    below = McpHttp("sdk", "https://example.com/mcp", credentials=signing_in(tokens=FileTokens(tmp_path / "tokens")))
    with pytest.raises(ConfigurationError, match="below a root"):
        AgentFlow(model="offline", root=tmp_path, mcp=[below])
    async with strict_servers() as (authority, server), opened(tmp_path, server) as flow:
        run = await flow.start('(sdk:shout (text "hi"))', deps=ADA)
        assert await run.wait() == "waiting"
        (question,) = await flow.questions(run.run_id)
        await flow.send(run.run_id, question.key, True)
        error = (await run.result()).value.notes.error
        assert error.details["code"] == "mcp/signed-out" and "flow.mcp.signed_in(" in error.details["hint"]
        for call in (flow.mcp.sign_in("other", user="ada"), flow.mcp.sign_out("other", user="ada")):
            with pytest.raises(ConfigurationError, match="no MCP server 'other'"):
                await call
    assert authority.faults == []


# -- restarts, other processes, serve -------------------------------------------------------------------------------------


@asynccontextmanager
async def child(
    role: str, root: Path, server: StrictMcpServer, **parameters: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of the application, killed at the end."""
    arguments = ["-m", "tests.connect.sign_in_child", role, str(root), f"{server.url}/mcp", json.dumps(parameters)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> str:
    """The next line that a process prints."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), HANG_S)).decode().strip()


@pytest.mark.slow
async def test_a_sign_in_outlives_its_process(tmp_path: Path) -> None:
    """The process that asked is killed before the callback; another one takes it, and the run continues there. Two processes whose token
    has to be renewed renew it once."""
    async with strict_servers() as (authority, server):
        server.service = SERVICE
        async with child("start", tmp_path, server) as first:
            address = address_in(await line_of(first))
        async with child("end", tmp_path, server, **await browse(address, "ada")) as second:
            assert json.loads(await line_of(second)) == SAID
        assert server.seen == ["ada"] and authority.faults == []
        authority.expire()
        async with child("refresh", tmp_path, server) as one, child("refresh", tmp_path, server) as two:
            assert [await line_of(each) for each in (one, two)] == ["ready", "ready"]
            for each in (one, two):
                assert each.stdin is not None
                each.stdin.write(b"\n")
            assert [json.loads(await line_of(each)) for each in (one, two)] == [[SAID] * 10] * 2
        assert authority.refreshed == 1
    assert authority.faults == []


async def test_a_served_run_waits_for_a_sign_in(tmp_path: Path) -> None:
    """Over ``serve`` the question of the sign-in is an event and the state of the run; the application's own callback ends it."""
    exports = {"shout": Export(program=SHOUT, allow=["sdk:shout"])}
    async with strict_servers() as (authority, server):
        app = described(server, signing_in(user=lambda ctx: "ada"), approve="none")
        async with flow_with(tmp_path, app) as flow, served(flow, exports) as api:
            run_id = await api.begin("shout", message="x")
            question = [event async for event in api.until(run_id, "wait_started")][-1]["question"]
            assert await flow.mcp.signed_in(await browse(address_in(question), "ada"), user="ada")
            assert (await api.ended(run_id))["value"] == SAID
    assert authority.faults == []


@pytest.mark.slow
async def test_no_redirect_is_followed(tmp_path: Path) -> None:
    """A redirect of a metadata or token request is an error, whoever it leads to."""
    strayed: list[str] = []

    async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            strayed.append(scope["path"])
        raise NotImplementedError

    async def away(request: Request) -> Response:
        return RedirectResponse(f"http://127.0.0.1:{port}{request.url.path}", 307)

    async with running(elsewhere) as port, strict_servers() as (authority, server), opened(tmp_path, server) as flow:
        begun = await address(flow, "ada")
        authority.instead = away
        error = await refusal(flow, await browse(begun, "ada"))
        assert error.code == "mcp/oauth" and "HTTP 307" in error.message
    assert strayed == [] and authority.faults == []


@pytest.mark.slow
async def test_a_refused_call_was_not_carried_out(tmp_path: Path) -> None:
    """A tool that may not be repeated is called once, after the sign-in that its first request was refused for: the run that waited
    for it does not take it for one that was interrupted at work."""
    stored = Durable(f"sqlite:///{tmp_path / 'runs.db'}", on_inflight="fail")
    asks = strict_servers(needs={"pay": {"write"}})
    async with asks as (authority, server), opened(tmp_path, server, durable=stored) as flow:
        await sign_in(flow, "ada")
        run = await flow.start("(content (sdk:pay))", deps=ADA)
        assert await run.wait() == "waiting" and server.paid == 0
        question = (await flow.questions(run.run_id))[0].question
        assert await flow.mcp.signed_in(await browse(address_in(question), "ada"), user="ada")
        assert (await run.result()).value == "paid" and server.paid == 1
    assert authority.faults == []


@pytest.mark.slow
async def test_tokens_stay_with_their_servers(tmp_path: Path) -> None:
    """When a server names another authorization server, the tokens of the first one are not renewed there, and the application is
    registered there anew; two servers of one flow have tokens of their own."""
    store = MemoryTokens()
    async with strict_servers() as (first, one), strict_servers() as (second, two):
        servers = [described(one, signing_in(tokens=store)), described(two, signing_in(tokens=store))]
        both = [servers[0], replace(servers[1], name="other")]
        async with flow_with(tmp_path, *both) as flow:
            await sign_in(flow, "ada")
            assert (await flow.run(SHOUT, deps=ADA)).value == SAID
            assert await code_of(flow, program='(other:shout (text "hi"))') == "mcp/signed-out"
            one.authority = second  # the resource has moved: its old tokens count no longer
            first.revoke("ada", refresh=True)
            assert await code_of(flow) == "mcp/signed-out"
            second.faults.clear()  # the resource saw the token of its former authorization server, once
            await sign_in(flow, "ada")
            assert (await flow.run(SHOUT, deps=ADA)).value == SAID
    assert first.faults == second.faults == [] and (first.registered, second.registered) == (1, 1)
