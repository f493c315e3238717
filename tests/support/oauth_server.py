"""A strict authorization server and an MCP server that trusts it, on loopback: both refuse what the specification forbids.

Each refusal is noted in ``faults``: a client that keeps to the specification leaves it empty.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

import httpx2
from mcp_types import ToolAnnotations
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.connect.http_servers import running, sdk_server

REDIRECT = "http://127.0.0.1:8000/callback"
METADATA = "/.well-known/oauth-authorization-server"


@dataclass
class Issued:
    """A token: whose it is, for which resource and scopes, until when."""

    user: str
    resource: str
    scopes: frozenset[str]
    until: float
    client: str
    refresh: str = ""


@dataclass
class StrictAuthorizationServer:
    """The authorization server. ``patch`` changes its metadata, ``life`` is that of its access tokens in seconds."""

    path: str = ""
    patch: dict[str, Any] = field(default_factory=dict[str, Any])
    life: float | None = 3600.0
    clients: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    documents: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The redirect URIs of client id metadata documents, by their addresses."""
    grants: set[str] | None = None
    """The scopes that it grants at most."""
    well_known: str = METADATA
    away: bool = False
    instead: Callable[[Request], Awaitable[Response]] | None = None
    """Answers token requests in its place."""
    issuer: str = ""
    faults: list[str] = field(default_factory=list[str])
    registered: int = 0
    refreshed: int = 0
    exchanged: int = 0
    access: dict[str, Issued] = field(default_factory=dict[str, Issued])
    refresh: dict[str, Issued] = field(default_factory=dict[str, Issued])
    used: set[str] = field(default_factory=set[str])
    codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    secrets: list[str] = field(default_factory=list[str])
    """Everything that must be seen nowhere."""

    def fault(self, what: str, status: int = 400, code: str = "invalid_request") -> Response:
        self.faults.append(what)
        return JSONResponse({"error": code, "error_description": what}, status)

    def secret(self, kind: str) -> str:
        token = f"{kind}-{secrets.token_urlsafe(24)}"
        self.secrets.append(token)
        return token

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route(f"{self.well_known}{self.path}", self.metadata),
                Route(f"{self.path}/authorize", self.authorize),
                Route(f"{self.path}/token", self.token, methods=["POST"]),
                Route(f"{self.path}/register", self.register, methods=["POST"]),
            ]
        )

    async def metadata(self, request: Request) -> Response:
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": bool(self.documents),
            **self.patch,
        }
        return JSONResponse({key: value for key, value in document.items() if value is not None})

    async def register(self, request: Request) -> Response:
        body = await request.json()
        self.registered += 1
        if "application_type" not in body:
            return self.fault("no application type", code="invalid_client_metadata")
        if not all(_is_safe(each) for each in body["redirect_uris"]):
            return self.fault("a redirect URI without https", code="invalid_redirect_uri")
        identity, method = f"client-{secrets.token_hex(4)}", body["token_endpoint_auth_method"]
        secret = None if method == "none" else self.secret("client")
        self.clients[identity] = {"redirect_uris": body["redirect_uris"], "secret": secret}
        answer = {"client_id": identity, "redirect_uris": body["redirect_uris"], "token_endpoint_auth_method": method}
        return JSONResponse({**answer, **({"client_secret": secret} if secret else {})}, 201)

    async def authorize(self, request: Request) -> Response:
        query = request.query_params
        client = query.get("client_id", "")
        redirects = self.documents.get(client) or self.clients.get(client, {}).get("redirect_uris", [])
        if query.get("redirect_uri") not in redirects:
            return self.fault("another redirect URI than the registered ones")
        for name, value in (("response_type", "code"), ("code_challenge_method", "S256")):
            if query.get(name) != value:
                return self.fault(f"{name} is not {value}")
        if not query.get("state") or not query.get("code_challenge") or not query.get("resource"):
            return self.fault("no state, code_challenge or resource")
        code = self.secret("code")
        self.codes[code] = {**query, "user": request.headers["x-user"]}
        answer = {"code": code} if "x-refuse" not in request.headers else {"error": "access_denied"}
        iss = {"iss": self.issuer} if self.patch.get("authorization_response_iss_parameter_supported", True) else {}
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode({**answer, **iss, 'state': query['state']})}", 302)

    async def token(self, request: Request) -> Response:
        if self.away:
            return Response(status_code=503)
        if self.instead is not None:
            return await self.instead(request)
        form = dict(parse_qsl((await request.body()).decode()))
        basic = request.headers.get("authorization", "")
        client, secret = form.get("client_id", ""), None
        if basic:
            pair = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
            client, secret = unquote_plus(pair[0]), unquote_plus(pair[2])  # RFC 6749, 2.3.1
        if client not in self.documents and self.clients.get(client, {"secret": ""})["secret"] != secret:
            return self.fault("an unknown client, or a wrong secret", 401, "invalid_client")
        if form.get("grant_type") == "authorization_code":
            return self._exchange(form, client)
        if form.get("grant_type") == "refresh_token":
            return self._renew(form, client)
        return self.fault("another grant type", code="unsupported_grant_type")

    def _exchange(self, form: Mapping[str, str], client: str) -> Response:
        self.exchanged += 1
        code = form.get("code", "")
        if code in self.used:
            return self.fault("a code was used twice", code="invalid_grant")
        asked = self.codes.get(code)
        if asked is None or asked["client_id"] != client:
            return self.fault("a code of another client", code="invalid_grant")
        self.used.add(code)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked["code_challenge"]:
            return self.fault("a wrong code verifier", code="invalid_grant")
        if form.get("redirect_uri") != asked["redirect_uri"]:
            return self.fault("another redirect URI than the code's", code="invalid_grant")
        if form.get("resource") != asked["resource"]:
            return self.fault("another resource than the code's", code="invalid_target")
        scopes = frozenset(asked.get("scope", "").split())
        return self._issue(asked["user"], asked["resource"], scopes, client)

    def _renew(self, form: Mapping[str, str], client: str) -> Response:
        self.refreshed += 1
        token = form.get("refresh_token", "")
        issued = self.refresh.pop(token, None)
        if token in self.used:
            return self.fault("a refresh token was used twice", code="invalid_grant")
        if issued is None or issued.client != client:
            return JSONResponse({"error": "invalid_grant"}, 400)
        if form.get("resource") != issued.resource:
            return self.fault("another resource than the refresh token's", code="invalid_target")
        self.used.add(token)
        return self._issue(issued.user, issued.resource, issued.scopes, client)

    def _issue(self, user: str, resource: str, scopes: frozenset[str], client: str) -> Response:
        if self.grants is not None:
            scopes &= self.grants
        access, refresh = self.secret("access"), self.secret("refresh")
        until = time.time() + (3600 if self.life is None else self.life)
        issued = Issued(user, resource, scopes, until, client, refresh)
        self.access[access] = self.refresh[refresh] = issued
        body = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "scope": " ".join(scopes)}
        return JSONResponse({**body, **({} if self.life is None else {"expires_in": self.life})})

    def revoke(self, user: str, *, refresh: bool) -> None:
        """Make the access tokens of a user invalid, and with ``refresh`` those that renew them."""
        self.access = {token: each for token, each in self.access.items() if each.user != user}
        if refresh:
            self.refresh = {token: each for token, each in self.refresh.items() if each.user != user}

    def expire(self) -> None:
        """Let the time of all access tokens be over."""
        self.access.clear()


@dataclass
class StrictMcpServer:
    """An MCP server that takes no request without a token that its authorization server has issued for it.

    ``needs`` are the scopes of a call of a tool by its name, ``patch`` changes its metadata. ``seen`` are the users of its calls.
    """

    authority: StrictAuthorizationServer
    needs: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    patch: dict[str, Any] = field(default_factory=dict[str, Any])
    challenge: Callable[[str], str] = lambda url: (
        f'Bearer resource_metadata="{url}/.well-known/oauth-protected-resource/mcp", scope="read"'
    )
    service: str = ""
    """A token that is good for listing tools alone."""
    url: str = ""
    seen: list[str] = field(default_factory=list[str])
    refused: int = 0
    paid: int = 0

    def __post_init__(self) -> None:
        server = sdk_server()

        async def pay() -> str:
            """Pay, which may not be repeated."""
            self.paid += 1
            return "paid"

        server.add_tool(pay, annotations=ToolAnnotations(idempotent_hint=False))
        self._app = server.streamable_http_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith("/.well-known/oauth-protected-resource"):
            document = {
                "resource": f"{self.url}/mcp",
                "authorization_servers": [self.authority.issuer],
                "scopes_supported": ["read"],
                **self.patch,
            }
            await JSONResponse({key: value for key, value in document.items() if value is not None})(
                scope, receive, send
            )
            return
        request = Request(scope, receive)
        if parse_qs(urlsplit(str(request.url)).query).get("access_token"):
            self.authority.faults.append("a token in an address")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        method = request.headers.get("mcp-method", "")
        if token and token == self.service:
            if method == "tools/call":
                self.authority.faults.append("a call with the token of the service")
            await self._app(scope, receive, send)
            return
        issued = self.authority.access.get(token)
        if issued is not None and issued.resource != f"{self.url}/mcp":
            self.authority.faults.append("a token for another resource")
            issued = None
        if token and issued is None and token not in self.authority.secrets:
            self.authority.faults.append("a token of another authorization server")
        if issued is None or issued.until < time.time():
            self.refused += 1
            await Response(status_code=401, headers={"www-authenticate": self.challenge(self.url)})(
                scope, receive, send
            )
            return
        missing = self.needs.get(request.headers.get("mcp-name", ""), set()) - issued.scopes
        if method == "tools/call" and missing:
            wanted = f'Bearer error="insufficient_scope", scope="{" ".join(sorted(missing))}"'
            await Response(status_code=403, headers={"www-authenticate": wanted})(scope, receive, send)
            return
        self.seen += [issued.user] if method == "tools/call" else []
        await self._app(scope, receive, send)


@asynccontextmanager
async def strict_servers(
    authority: StrictAuthorizationServer | None = None, port: int = 0, **options: Any
) -> AsyncIterator[tuple[StrictAuthorizationServer, StrictMcpServer]]:
    """Both servers, at two addresses. ``options`` are those of the MCP server."""
    authority = authority or StrictAuthorizationServer()
    async with running(authority.app) as own:
        authority.issuer = f"http://127.0.0.1:{own}{authority.path}"
        server = StrictMcpServer(authority, **options)
        async with running(server, port) as at:
            server.url = f"http://127.0.0.1:{at}"
            yield authority, server


async def browse(address: str, user: str, *, refuse: bool = False) -> dict[str, str]:
    """Open an address as a browser in which ``user`` agrees, or refuses. Returns the parameters of the callback."""
    headers = {"x-user": user, **({"x-refuse": "1"} if refuse else {})}
    async with httpx2.AsyncClient() as client:
        answer = await client.get(address, headers=headers)
    assert answer.status_code == 302, answer.text
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query))


def address_in(question: str) -> str:
    """The address in the question of a sign-in."""
    return question.split(" at ", 1)[1].split("\n")[0]


def _is_safe(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "https" or parts.hostname in ("127.0.0.1", "localhost")
