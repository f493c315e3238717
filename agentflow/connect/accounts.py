"""The sign-ins of users at one MCP server: tokens, renewed one at a time, and sign-ins in two steps that survive a restart.

A sign-in begins with an address for the user to open. All that its end needs is in the store by then: the verifier and the
recorded issuer, under the ``state`` of the address. So any process that shares the store can end it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import count
from secrets import token_hex
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

import httpx2
from mcp.client.auth import PKCEParameters
from mcp.shared.auth import OAuthToken

from agentflow.connect.live import expand
from agentflow.connect.oauth import METHODS, OFFLINE, AuthorizationServer, Challenge, Oauth, RefusedGrant, digest_of
from agentflow.connect.servers import McpHttp
from agentflow.connect.sign_in import SignIn
from agentflow.connect.token_store import tokens_key
from agentflow.core.call.call import CallContext
from agentflow.core.call.endings import called_by_host
from agentflow.core.data.errors import ConfigurationError, SexpEvaluationError, TaskError, clip
from agentflow.core.data.results import NO_USAGE
from agentflow.core.data.values import to_json
from agentflow.lib.redact import Redactor
from agentflow.lib.shielded import run_to_completion

EARLY_S = 30.0
"""Seconds before its end that a token is renewed, or a tenth of its life if that is less."""
FRESH_S = 300.0
"""Seconds after a sign-in in which the refusal of its token is the servers' fault: signing in again would not help."""
SHARED_S = 86_400.0
"""Seconds after its begin in which other calls of the user wait for the same sign-in."""
MAX_PENDING = 20
"""Sign-ins of one user at one server that have begun and not ended; the oldest are forgotten."""
MAX_RUNS = 1_000
"""Runs that wait for one sign-in and are answered at its end."""
_UNASKED = frozenset({"question/unanswered", "provenance/denied", "provenance/readers"})
T = TypeVar("T")


class Accounts:
    """The accounts of the users of ``server``, whose credentials are a :class:`SignIn`. ``redactor`` must find no secret in an address."""

    def __init__(self, server: McpHttp, redactor: Redactor) -> None:
        self.server = server
        self.sign_in = cast(SignIn, server.credentials)
        self.oauth = Oauth(server.name, server.url)
        self.redactor = redactor

    async def user_of(self, call: CallContext) -> str:
        """The name of the user of ``call``. Raises ConfigurationError (``mcp/credentials``) and the errors of the function."""
        label = f"the function user= of the SignIn of the MCP server '{self.server.name}'"
        inner = call.at(call.marked_path("mcp-credentials", self.server.name))
        try:
            user: object = await called_by_host(self.sign_in.user, (inner,), inner, label)
        except TaskError as error:  # the call fails, not the task of the model that made it
            raise ConfigurationError(error.message, code=error.code, details=error.details) from error
        if not isinstance(user, str) or not user:
            raise ConfigurationError(
                f"{label} returned no name", code="mcp/credentials", hint="return the name of the user: ctx.deps.user"
            )
        return user

    async def begin(self, user: str) -> str | None:
        """The address at which ``user`` signs in; None for one who has."""
        asked = await UserAccount(self, user).begin(None, "")
        return None if asked is None else asked["address"]

    async def forget(self, user: str) -> None:
        """Delete the tokens of ``user``, and the sign-ins that have begun."""
        account = UserAccount(self, user)
        async with account.changed() as record:
            for state in record.get("pending", {}):
                await self.sign_in.tokens.save(_state_key(state), None)
            record.clear()

    async def owner_of(self, state: str) -> str | None:
        """The user whose sign-in has this state; None for one that is unknown here, or has ended."""
        begun = json.loads(await self.sign_in.tokens.load(_state_key(state)) or "{}")
        return begun.get("user") if begun.get("server") == self.server.url else None

    async def end(self, user: str, parameters: Mapping[str, str]) -> tuple[str, list[tuple[str, str]]]:
        """End a sign-in with the ``parameters`` of its callback. Returns why it failed (empty: it did not), and the ids of the runs that
        wait, with the addresses that they wait for.

        Raises ConfigurationError: ``mcp/sign-in-state`` for parameters that do not belong to it, and those of the requests.
        """
        state, account = parameters["state"], UserAccount(self, user)
        async with account.changed() as record:
            pending: dict[str, Any] = record.get("pending", {})
            begun = pending.get(state)
            if begun is None:
                raise unknown_state()
            issuer, said = begun["server"]["issuer"], parameters.get("iss")
            if (said is None and begun["server"]["says_issuer"]) or (said is not None and said != issuer):
                raise ConfigurationError(  # and nothing of the response counts or is shown (RFC 9207)
                    "the response to the sign-in does not come from its authorization server",
                    code="mcp/sign-in-state",
                    hint="hand over all parameters of the callback: await flow.mcp.signed_in(request.query_params, user=...)",
                )
            why = "" if parameters.get("code") and not parameters.get("error") else "the user refused, or was refused"
            if not why:
                try:
                    await self._redeem(account, record, begun, parameters["code"])
                except RefusedGrant as error:
                    why = f"the authorization server refused the code ({clip(str(error), 80)})"
                    await self.doubt(begun, error)
            ended = {state: begun} if why else pending
            for each in ended:
                await self.sign_in.tokens.save(_state_key(each), None)
            record["pending"] = {} if not why else {key: each for key, each in pending.items() if key != state}
        return why, [(run, each["address"]) for each in ended.values() for run in each["runs"]]

    async def _redeem(self, account: UserAccount, record: dict[str, Any], begun: dict[str, Any], code: str) -> None:
        grant = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun["redirect_uri"],
            "code_verifier": begun["verifier"],
            "resource": begun["server"]["resource"],
        }
        client = self.client_in(begun["client"], begun["server"]["issuer"])
        tokens = await self.oauth.tokens(begun["server"]["token"], client, grant)
        record.update(server=begun["server"], client=begun["client"], scopes=begun["scopes"], signed_in_at=time.time())
        record["refresh"] = None
        account.keep(record, tokens)

    # -- clients -----------------------------------------------------------------------------------------------------

    async def client_of(self, server: AuthorizationServer, scopes: list[str]) -> dict[str, Any]:
        """The client to present to an authorization server: registered by the host, a document, or registered once by us."""
        if self.sign_in.client is not None:
            own = self.sign_in.client
            methods = [each for each in METHODS[1:] if each in server.methods]
            return {"id": own.id, "method": "none" if own.secret is None else (methods or METHODS[1:])[0]}
        if self.sign_in.document is not None and server.documents:
            return {"id": self.sign_in.document, "method": "none"}
        key = self._client_key(server.issuer)
        async with self.sign_in.tokens.lock(key):
            client = json.loads(await self.sign_in.tokens.load(key) or "null")
            if client is None or 0 < client["expires"] < time.time() + 60:
                client = await self.oauth.register(server, self.sign_in, [*dict.fromkeys([*scopes, *server.scopes])])
                await self.sign_in.tokens.save(key, to_json(client))
        return client

    def client_in(self, client: dict[str, Any], issuer: str) -> dict[str, Any]:
        """A stored client with its secret: that of one that the host registered stays in the host's environment."""
        own = self.sign_in.client
        if own is None or own.secret is None or own.id != client["id"] or own.issuer != issuer:
            return client
        return {**client, **expand({"secret": own.secret}, os.environ, self.redactor.add, self.server.name)}

    async def doubt(self, begun: dict[str, Any], error: RefusedGrant) -> None:
        """Forget our own registration if the authorization server has."""
        if str(error) == "invalid_client":
            await self.sign_in.tokens.save(self._client_key(begun["server"]["issuer"]), None)

    def _client_key(self, issuer: str) -> str:
        return to_json(["client", issuer, self.sign_in.redirect_uri, self.sign_in.name])


class UserAccount:
    """The sign-in of one ``user``. ``secret`` takes each token that is sent, to be kept out of events, records and errors."""

    def __init__(self, accounts: Accounts, user: str, secret: Callable[[str], None] = lambda token: None) -> None:
        self._accounts = accounts
        self._name = accounts.server.name
        self._store = accounts.sign_in.tokens
        self._secret = secret
        self._shown: str | None = None
        self.user = user
        self.url = accounts.server.url
        self._key = tokens_key(accounts.server.url, user)

    def __repr__(self) -> str:
        return f"UserAccount({self.user!r})"

    async def _loaded(self) -> dict[str, Any]:
        return json.loads(await self._store.load(self._key) or "{}")

    @asynccontextmanager
    async def changed(self) -> AsyncGenerator[dict[str, Any]]:
        """A block that may change the record of the account, which is stored at its end; one at a time, of all processes."""
        async with self._store.lock(self._key):
            record = await self._loaded()
            before = to_json(record)
            yield record
            if (after := to_json(record)) != before:
                await self._store.save(self._key, after if record else None)

    def keep(self, record: dict[str, Any], tokens: OAuthToken) -> None:
        """Put tokens into the record; a refresh token stays until another takes its place."""
        record["access"] = tokens.access_token
        record["refresh"] = tokens.refresh_token or record.get("refresh")
        life = None if tokens.expires_in is None else max(0.0, float(tokens.expires_in))
        record["until"] = None if life is None else time.time() + life
        record["renew_at"] = None if life is None else time.time() + life - min(EARLY_S, life / 10)

    def _lent(self, token: str) -> str:
        if token != self._shown:
            self._shown = token
            self._secret(token)
        return token

    # -- tokens ------------------------------------------------------------------------------------------------------

    async def token(self, refused: str | None = None) -> str | None:
        """The access token, renewed if its time is over or it is the one that was ``refused``; None if the user has to sign in.

        Raises ConfigurationError (``mcp/oauth-down``, ``mcp/oauth``) if it cannot be renewed now.
        """
        record = await self._loaded()
        access = record.get("access")
        if access is None:
            return None
        if access != refused and not _is_past(record.get("renew_at" if record.get("refresh") else "until")):
            return self._lent(access)
        return await run_to_completion(self._renewed(access, refused))  # the answer holds the only valid token

    async def _renewed(self, old: str, refused: str | None) -> str | None:
        async with self.changed() as record:
            access = record.get("access")
            if access is None or access != old:  # another task has renewed it meanwhile
                return None if access is None else self._lent(access)
            try:
                if not record.get("refresh"):
                    raise RefusedGrant("there is no refresh token")
                server, client = record["server"], record["client"]
                grant = {
                    "grant_type": "refresh_token",
                    "refresh_token": record["refresh"],
                    "resource": server["resource"],
                }
                self._secret(record["refresh"])
                client = self._accounts.client_in(client, server["issuer"])
                self.keep(record, await self._accounts.oauth.tokens(server["token"], client, grant))
            except RefusedGrant as error:
                for name in ("access", "refresh", "until", "renew_at"):
                    record.pop(name, None)
                await self._accounts.doubt(record, error)
                return None
            except ConfigurationError:
                if access == refused or _is_past(record["until"]):
                    raise
                return self._lent(access)  # it is valid for a while
            return self._lent(record["access"])

    # -- signing in --------------------------------------------------------------------------------------------------

    async def ready(self, call: CallContext) -> None:
        """Ask the user to sign in, unless they have. Raises as :meth:`ask`."""
        if await self.token() is None:
            await self.ask(call, None)

    async def ask(self, call: CallContext, challenge: Challenge | None) -> None:
        """Ask the user to sign in, because of a ``challenge``, and return once they have.

        Raises ConfigurationError: ``mcp/sign-in-refused``, ``mcp/signed-out`` if no person can be asked, ``mcp/scope``, and those
        of the requests.
        """
        if challenge is not None and await self._is_renewed(challenge):
            return
        journal, name, content = call.run.journal, self._name, {"the server": self._name}
        for number in count():
            # recorded, so that a resumed run that was told no does not ask again at the same point
            at = call.at(call.marked_path("mcp-sign-in", name, number))
            asked = None if journal is None else await journal.recall("mcp-sign-in", name, content, at)
            if asked is None:
                asked = await self.begin(challenge, call.run.run_id)
                if asked is None:
                    return
                if journal is not None:
                    await journal.keep("mcp-sign-in", name, content, asked, at, NO_USAGE, 0.0)
            try:
                answer = await at.ask_human(
                    f"Sign in to '{name}' at {asked['address']}\nHave you?", {"type": "boolean"}
                )
            except SexpEvaluationError as error:
                if error.code not in _UNASKED:
                    raise
                raise ConfigurationError(
                    f"the user has not signed in to the MCP server '{name}', and cannot be asked to: {error.message}",
                    code="mcp/signed-out",
                    hint="await flow.mcp.sign_in(server, user=...) gives the address of a sign-in before a run begins",
                ) from error
            if answer is not True:
                raise ConfigurationError(
                    f"the user did not sign in to the MCP server '{name}'",
                    code="mcp/sign-in-refused",
                    hint="the next call asks again",
                )
            refused = "" if challenge is None else challenge.token
            token = await self.token()
            if token is not None and digest_of(token) != refused:
                return
            begun: dict[str, Any] = (await self._loaded()).get("pending", {})
            if any([each["address"] == asked["address"] for each in begun.values()]):
                raise ConfigurationError(
                    f"the question to sign in to the MCP server '{name}' was answered, and the user has not signed in",
                    code="mcp/signed-out",
                    hint="hand the parameters of the callback over, which answers the question: "
                    "await flow.mcp.signed_in(request.query_params, user=...)",
                )

    async def begin(self, challenge: Challenge | None, run_id: str) -> dict[str, str] | None:
        """Begin a sign-in, or join one that has begun. Returns its ``address``; None if the user has signed in meanwhile."""
        async with self.changed() as record:
            if self._is_signed_in(record, challenge):
                return None
            needed = [] if challenge is None else challenge.scopes
            pending: dict[str, Any] = record.setdefault("pending", {})
            for each in pending.values():
                young = time.time() - each["began"] < SHARED_S and each["redirect_uri"] == self._sign_in.redirect_uri
                if young and set(needed) <= set(each["scopes"]):
                    self._join(each, run_id)
                    return {"address": each["address"]}
            state, begun = await self._begun(challenge, record.get("scopes", []))
            self._join(begun, run_id)
            pending[state] = begun
            while len(pending) > MAX_PENDING:
                await self._store.save(_state_key(oldest := next(iter(pending))), None)
                del pending[oldest]
            owner = {"server": self._accounts.server.url, "user": self.user}
            await self._store.save(_state_key(state), to_json(owner))
            return {"address": begun["address"]}

    @property
    def _sign_in(self) -> SignIn:
        return self._accounts.sign_in

    def _join(self, begun: dict[str, Any], run_id: str) -> None:
        if run_id and run_id not in begun["runs"]:
            begun["runs"] = [*begun["runs"], run_id][-MAX_RUNS:]

    def _is_signed_in(self, record: dict[str, Any], challenge: Challenge | None) -> bool:
        """Whether the user has a token other than the refused one. Raises ConfigurationError if signing in would not help."""
        access = record.get("access")
        if access is None:
            return False
        if challenge is None or digest_of(access) != challenge.token:
            return True
        if challenge.wants_more and set(challenge.scopes) <= set(record["scopes"]):
            raise ConfigurationError(
                f"the MCP server '{self._name}' asks for the scopes {clip(' '.join(challenge.scopes), 200) or 'of none'}, which the user was "
                "asked for, and has not got",
                code="mcp/scope",
                hint="await flow.mcp.sign_out(server, user=...) lets the user sign in again, with other rights",
            )
        return False

    async def _is_renewed(self, challenge: Challenge) -> bool:
        """Whether there is a token now other than the refused one, without a sign-in. Raises ConfigurationError if none can be had now."""
        record = await self._loaded()
        access = record.get("access")
        if access is None or challenge.wants_more:
            return False
        same = digest_of(access) == challenge.token
        if same and not record.get("refresh") and time.time() - record["signed_in_at"] < FRESH_S:
            raise self.refused()
        newer = await self.token(access if same else None)
        return newer is not None and digest_of(newer) != challenge.token

    def refused(self) -> ConfigurationError:
        """The error for a server that takes no token of its own authorization server."""
        return self._accounts.oauth.wrong("it refuses the tokens that its authorization server has just issued")

    async def _begun(self, challenge: Challenge | None, before: list[str]) -> tuple[str, dict[str, Any]]:
        server = await self._accounts.oauth.discover(challenge, self._sign_in)
        needed = challenge.scopes if challenge is not None and challenge.scopes else server.scopes
        scopes = [*dict.fromkeys([*before, *needed, *self._sign_in.scopes, *([OFFLINE] if server.offline else ())])]
        client = await self._accounts.client_of(server, scopes)
        while True:
            state, pkce = token_hex(32), PKCEParameters.generate()
            query = {
                "response_type": "code",
                "client_id": client["id"],
                "redirect_uri": self._sign_in.redirect_uri,
                "state": state,
                "code_challenge": pkce.code_challenge,
                "code_challenge_method": "S256",
                "resource": server.resource,
                **({"scope": " ".join(scopes)} if scopes else {}),
                **({"prompt": "consent"} if OFFLINE in scopes else {}),
            }
            address = f"{server.authorize}{'&' if '?' in server.authorize else '?'}{urlencode(query)}"
            if not self._accounts.redactor.finds(address):  # by chance it may look like a key, and would be redacted
                break
        return state, {
            "address": address,
            "verifier": pkce.code_verifier,
            "server": asdict(server),
            "client": client,
            "redirect_uri": self._sign_in.redirect_uri,
            "scopes": scopes,
            "began": time.time(),
            "runs": [],
        }


class Bearer(httpx2.Auth):
    """Sends the token of an ``account`` with each request to its server, and renews it once if it is refused."""

    def __init__(self, account: UserAccount) -> None:
        self._account = account
        self._url = httpx2.URL(account.url)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        token = await self._token(request)
        if token is None:
            yield request
            return
        request.headers["authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401:
            newer = await self._token(request, token)
            if newer is not None and newer != token:
                request.headers["authorization"] = f"Bearer {newer}"
                yield request

    async def _token(self, request: httpx2.Request, refused: str | None = None) -> str | None:
        own = (request.url.scheme, request.url.host, request.url.port)
        if own != (self._url.scheme, self._url.host, self._url.port):
            return None
        try:
            return await self._account.token(refused)
        except (
            ConfigurationError
        ):  # an error here would end the connection; without a token the refusal of this request alone says so
            return None


def unknown_state() -> ConfigurationError:
    """The error for parameters of a callback that belong to no sign-in."""
    return ConfigurationError(
        "these parameters belong to no sign-in that has begun here, or to one that has ended",
        code="mcp/sign-in-state",
        hint="an address works once; a new call, or flow.mcp.sign_in, gives another. All processes need the same store",
    )


def _state_key(state: str) -> str:
    return to_json(["state", state])


def _is_past(moment: float | None) -> bool:
    return moment is not None and time.time() >= moment
