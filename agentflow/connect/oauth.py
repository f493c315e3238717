"""The requests of an OAuth client, as the protocol's authorization part says (2026-07-28): bounded, over https, redirects refused.

Discovery (RFC 9728, RFC 8414, OpenID Connect), registration (RFC 7591), and tokens for one resource (RFC 8707). Nothing that a
server sends is shown in an error but short, escaped codes: a body may repeat a secret.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlsplit

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import BaseModel, ValidationError

from agentflow.connect.sign_in import SignIn, is_local, unsafe
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.lib.text.safe_text import escape

MAX_DOCUMENT = 262_144
"""Bytes of a metadata document and of a token response."""
REQUEST_S = 15.0
"""Seconds for one such request, with its response."""
METHODS = ("none", "client_secret_basic", "client_secret_post")
"""The ways to authenticate at a token endpoint, the ones preferred for a new registration first."""
OFFLINE = "offline_access"
_PROBE: Mapping[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {}}
_PARAMETER = re.compile(r'([A-Za-z_][A-Za-z0-9_-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_CODE = re.compile(r"[a-z_]{1,40}")
M = TypeVar("M", bound=BaseModel)


@frozen(kw_only=True)
class Challenge:
    """A server's refusal of a request: by which ``status``, with which parameters of ``WWW-Authenticate``, and a digest of the token
    that it refused (empty: there was none)."""

    status: int
    parameters: Mapping[str, str]
    token: str = ""

    @property
    def scopes(self) -> list[str]:
        """The scopes that the request needs."""
        return self.parameters.get("scope", "").split()

    @property
    def wants_more(self) -> bool:
        """Whether the token is valid, and has too few scopes."""
        return self.status == 403


def challenge_of(status: int, header: str | None, token: str) -> Challenge | None:
    """The challenge of a response; None for one that no sign-in helps with."""
    scheme, _, rest = (header or "").strip().partition(" ")
    parameters: dict[str, str] = {}
    if scheme.lower() == "bearer":
        for name, quoted, plain in _PARAMETER.findall(rest):
            parameters.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain)
    if status == 401 or (status == 403 and parameters.get("error") == "insufficient_scope"):
        return Challenge(status=status, parameters=parameters, token=token)
    return None


def digest_of(token: str) -> str:
    """A short digest of a token, to tell whether a refusal is of this one."""
    return blake2b(token.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@frozen(kw_only=True)
class AuthorizationServer:
    """The authorization server of a ``resource``, by its validated metadata: its endpoints, the ``scopes`` of the resource's own metadata,
    and its features: ``says_issuer`` in its responses, ``documents`` of clients, ``offline`` access, ``methods`` of authentication."""

    issuer: str
    resource: str
    authorize: str
    token: str
    register: str | None
    scopes: tuple[str, ...]
    says_issuer: bool
    documents: bool
    offline: bool
    methods: tuple[str, ...]


class RefusedGrant(Exception):
    """An authorization server refused a token request, with this error code of RFC 6749."""


class Oauth:
    """The requests for the MCP server at ``url``, called ``name`` in errors.

    Methods raise ConfigurationError: ``mcp/oauth`` for answers that the specification forbids, ``mcp/oauth-down`` for a server
    that cannot be reached.
    """

    def __init__(self, name: str, url: str) -> None:
        self._label = f"the MCP server '{name}'"
        self._url = url
        self._local = is_local(urlsplit(url).hostname)

    def wrong(self, what: str, hint: str = "report it to the server's authors") -> ConfigurationError:
        """The error for an answer that the specification forbids."""
        return ConfigurationError(f"the sign-in at {self._label}: {what}", code="mcp/oauth", hint=hint)

    # -- discovery ---------------------------------------------------------------------------------------------------

    async def discover(self, challenge: Challenge | None, sign_in: SignIn) -> AuthorizationServer:
        """The authorization server of the resource; without a ``challenge`` the server is asked for one."""
        challenge = challenge or await self._probed()
        stated = None if challenge is None else challenge.parameters.get("resource_metadata")
        resource, issuers, scopes = resource_url_from_server_url(self._url), list[str](), list[str]()
        for url in build_protected_resource_metadata_discovery_urls(stated, self._url):
            raw = await self._document(url)
            if raw is None:
                continue
            metadata = self._parsed(ProtectedResourceMetadata, raw, url)
            if not check_resource_allowed(resource, str(raw["resource"])):
                raise self.wrong(f"its metadata is that of another resource, {_shown(raw['resource'])}")
            resource = str(raw["resource"])
            issuers = [str(each) for each in raw["authorization_servers"]]
            scopes = metadata.scopes_supported or []
            break
        return await self._server_of(self._chosen(issuers, sign_in), resource, scopes)

    async def _probed(self) -> Challenge | None:
        """The challenge to a request without a token."""
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": LATEST_MODERN_VERSION}
        status, answered, _ = await self._exchange("POST", self._url, headers=headers, json=_PROBE, body=False)
        return challenge_of(status, answered.get("www-authenticate"), "")

    def _chosen(self, issuers: Sequence[str], sign_in: SignIn) -> str:
        """The authorization server to use: the first of those named that is trusted."""
        trusted = sign_in.issuers if sign_in.client is None else (sign_in.client.issuer,)
        if not issuers:
            if not trusted:
                raise self.wrong("it names no authorization server", "name the one you know: SignIn(issuers=[...])")
            return trusted[0]
        for each in issuers:
            if not trusted or each in trusted:
                return each
        raise self.wrong(
            f"it names the authorization server {_shown(issuers[0])}, which is not one of {', '.join(trusted)}",
            "if it has moved, change issuers= of the SignIn, and issuer= of its client, which you have to register again",
        )

    async def _server_of(self, issuer: str, resource: str, scopes: Sequence[str]) -> AuthorizationServer:
        self._check(issuer, "its authorization server")
        for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, self._url):
            raw = await self._document(url)
            if raw is None:
                continue
            metadata = self._parsed(OAuthMetadata, raw, url)
            if raw["issuer"] != issuer:
                raise self.wrong(f"the metadata of {_shown(issuer)} is that of {_shown(raw['issuer'])}")
            if "S256" not in (metadata.code_challenge_methods_supported or ()):
                raise self.wrong(f"{_shown(issuer)} does not support PKCE with S256, which the protocol requires")
            authorize, token, register = (
                None if (value := raw.get(f"{each}_endpoint")) is None else str(value)
                for each in ("authorization", "token", "registration")
            )
            assert authorize is not None and token is not None  # the model requires them
            for each in filter(None, (authorize, token, register)):
                self._check(each, f"an endpoint of {_shown(issuer)}")
            return AuthorizationServer(
                issuer=issuer,
                resource=resource,
                authorize=authorize,
                token=token,
                register=register,
                scopes=tuple(scopes),
                says_issuer=metadata.authorization_response_iss_parameter_supported is True,
                documents=metadata.client_id_metadata_document_supported is True,
                offline=OFFLINE in (metadata.scopes_supported or ()),
                methods=tuple(metadata.token_endpoint_auth_methods_supported or ("client_secret_basic",)),
            )
        raise self.wrong(f"the authorization server {_shown(issuer)} has no metadata")

    async def _document(self, url: str) -> dict[str, Any] | None:
        """The JSON object at ``url``; None if there is none."""
        self._check(url, "its metadata")
        headers = {"accept": "application/json", "mcp-protocol-version": LATEST_MODERN_VERSION}
        status, _, body = await self._exchange("GET", url, headers=headers)
        if status >= 500 or status == 429:
            raise self._away(f"{_shown(url)} answers HTTP {status}")
        try:
            value: Any = json.loads(body) if status == 200 else None
        except (ValueError, RecursionError):  # a page for people, say: the document may be at the next address
            value = None
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None

    # -- registration and tokens -------------------------------------------------------------------------------------

    async def register(self, server: AuthorizationServer, sign_in: SignIn, scopes: Sequence[str]) -> dict[str, Any]:
        """Register the application, and return its ``id``, ``secret``, ``method`` and when it ``expires`` (seconds since 1970, 0: never)."""
        if server.register is None:
            raise self.wrong(
                f"{_shown(server.issuer)} registers no clients by itself",
                'register your application there, and write SignIn(client=RegisteredClient("id", issuer=...))'
                + (", or host a document for SignIn(document=...)" if server.documents else ""),
            )
        local = is_local(urlsplit(sign_in.redirect_uri).hostname)
        request = {
            "client_name": sign_in.name,
            "redirect_uris": [sign_in.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": next((each for each in METHODS if each in server.methods), "none"),
            "application_type": "native" if local else "web",
            **({"scope": " ".join(scopes)} if scopes else {}),
        }
        status, _, body = await self._exchange("POST", server.register, json=request)
        if status not in (200, 201):
            raise self.wrong(
                f"{_shown(server.issuer)} refuses to register the application: HTTP {status}{_error_in(body)}",
                "check redirect_uri= and scopes=, or register it yourself: SignIn(client=RegisteredClient(...))",
            )
        client = self._parsed(OAuthClientInformationFull, self._object(body, server.register), server.register)
        method = client.token_endpoint_auth_method or ("client_secret_basic" if client.client_secret else "none")
        if method not in METHODS or (method != "none" and not client.client_secret):
            raise self.wrong(
                f"{_shown(server.issuer)} registered a client that cannot authenticate by {_shown(method)}"
            )
        expires = client.client_secret_expires_at or 0
        return {"id": client.client_id, "secret": client.client_secret, "method": method, "expires": expires}

    async def tokens(self, endpoint: str, client: Mapping[str, Any], grant: Mapping[str, str]) -> OAuthToken:
        """The tokens for a ``grant``. Raises RefusedGrant if it is refused."""
        data, headers = {**grant, "client_id": str(client["id"])}, {"accept": "application/json"}
        if client["method"] == "client_secret_post":
            data["client_secret"] = client["secret"]
        elif client["method"] == "client_secret_basic":
            pair = f"{quote(client['id'], safe='')}:{quote(client['secret'], safe='')}"
            headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        status, _, body = await self._exchange("POST", endpoint, headers=headers, data=data)
        if status in (400, 401, 403):
            raise RefusedGrant(_error_in(body).removeprefix(" ") or f"HTTP {status}")
        if status >= 500 or status == 429:
            raise self._away(f"{_shown(endpoint)} answers HTTP {status}")
        if status != 200:
            raise self.wrong(f"{_shown(endpoint)} answers a token request by HTTP {status}")
        raw = self._object(body, endpoint)
        if not isinstance(raw.get("token_type"), str) or raw["token_type"].lower() != "bearer":
            raise self.wrong(f"{_shown(endpoint)} returned a token of a type other than Bearer")
        tokens = self._parsed(OAuthToken, raw, endpoint)
        for each in filter(None, (tokens.access_token, tokens.refresh_token)):
            if not each.isascii() or not each.isprintable() or " " in each:
                raise self.wrong(f"{_shown(endpoint)} returned a token that no header can hold")
        if not tokens.access_token:
            raise self.wrong(f"{_shown(endpoint)} returned an empty token")
        return tokens

    # -- the wire ----------------------------------------------------------------------------------------------------

    def _check(self, url: str, what: str) -> None:
        """Refuse an address that a server must not choose."""
        why = unsafe(url, local=self._local)
        if why is not None:
            raise self.wrong(f"{what} has the address {_shown(url)}, which {why}")

    async def _exchange(
        self, method: str, url: str, *, body: bool = True, **request: Any
    ) -> tuple[int, httpx2.Headers, bytes]:
        """One request: the status, headers and body of its response. No redirect is followed."""
        headers = {**request.pop("headers", {}), "accept-encoding": "identity"}
        try:
            async with asyncio.timeout(REQUEST_S):
                async with (
                    httpx2.AsyncClient(timeout=REQUEST_S, follow_redirects=False) as client,
                    client.stream(method, url, headers=headers, **request) as response,
                ):
                    content = bytearray()
                    if body:
                        async for piece in response.aiter_raw():
                            content += piece
                            if len(content) > MAX_DOCUMENT:
                                raise self.wrong(f"{_shown(url)} sent more than {MAX_DOCUMENT:,} bytes")
                    return response.status_code, response.headers, bytes(content)
        except TimeoutError:
            raise self._away(f"{_shown(url)} did not answer within {REQUEST_S:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:  # without its words: they may have the request in them
            raise self._away(f"{_shown(url)} cannot be reached ({type(error).__name__})") from None

    def _away(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"the sign-in at {self._label}: {what}", code="mcp/oauth-down", hint="call again later"
        )

    def _object(self, body: bytes, url: str) -> dict[str, Any]:
        try:
            value: Any = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self.wrong(f"{_shown(url)} sent something other than a JSON object")
        return cast("dict[str, Any]", value)

    def _parsed(self, model: type[M], raw: dict[str, Any], url: str) -> M:
        try:
            return model.model_validate(raw)
        except (ValidationError, RecursionError) as error:
            fields = error.errors(include_input=False) if isinstance(error, ValidationError) else ()
            where = ", ".join(sorted({".".join(map(str, each["loc"])) for each in fields})) or "its depth"
            raise self.wrong(f"{_shown(url)} sent a document with a fault in {_shown(where)}") from None


def _shown(value: object) -> str:
    return escape(clip(str(value).partition("?")[0], 200))


def _error_in(body: bytes) -> str:
    """The error code of RFC 6749 in a body, after a blank; empty without one."""
    try:
        code: Any = json.loads(body)["error"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return f" {code}" if isinstance(code, str) and _CODE.fullmatch(code) else ""
