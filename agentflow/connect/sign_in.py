"""Descriptions of sign-ins of users at MCP servers, as hosts write them. Nothing here imports the protocol's SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from agentflow.connect.token_store import TokenStore
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.lib.loopback import is_loopback

if TYPE_CHECKING:
    from agentflow.core.call.call import CallContext

UserOf: TypeAlias = "Callable[[CallContext[Any]], str | Awaitable[str]]"
"""Returns the name of the user of a call."""


@frozen
class RegisteredClient:
    """Your application as it is registered with an authorization server.

    Parameters: ``id`` and ``secret`` are those of the registration (no secret: a public client); ``$NAME`` in the secret is that
    variable of this process. ``issuer`` is the identifier of the authorization server, an address: neither the client nor its secret is sent to another.

    Raises ConfigurationError (``mcp/sign-in``).
    """

    id: str
    secret: str | None = field(default=None, kw_only=True, repr=False)
    issuer: str = field(kw_only=True)

    def __post_init__(self) -> None:
        for name in ("id", "issuer"):
            value: Any = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise wrong_sign_in(
                    f"RegisteredClient has {name}={clip(repr(value), 80)}",
                    'RegisteredClient("client-id", secret="$SECRET", issuer="https://login.example.com")',
                )
        _check_address("issuer", self.issuer)


@frozen
class SignIn:
    """Users sign in to an MCP server by OAuth, as the authorization part of the protocol says: ``McpHttp(..., credentials=SignIn(...))``.

    Parameters: ``user`` is a function of the :class:`~agentflow.CallContext`, async or plain, that returns the name of the user of
    a call. ``redirect_uri`` is the address of your application at which a sign-in ends: https, or http on this machine.
    ``tokens`` is the store of the sign-ins. ``client`` is your application's registration, if it has one; ``document`` the
    https address of its client id metadata document, for servers that support these; without either, and where the server does
    not, your application is registered dynamically as ``name``. ``scopes`` are requested in addition to those the
    server names. ``issuers`` are the authorization servers that are trusted (empty: the one that the MCP server names).
    ``lists_as`` names the user whose sign-in lists the tools of a server that shows them to nobody else.

    Raises ConfigurationError (``mcp/sign-in``).
    """

    user: UserOf = field(kw_only=True)
    redirect_uri: str = field(kw_only=True)
    tokens: TokenStore = field(kw_only=True, repr=False)
    client: RegisteredClient | None = field(default=None, kw_only=True)
    document: str | None = field(default=None, kw_only=True)
    name: str = field(default="agentflow", kw_only=True)
    scopes: Sequence[str] = field(default=(), kw_only=True)
    issuers: Sequence[str] = field(default=(), kw_only=True)
    lists_as: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.user):  # pyright: ignore[reportUnnecessaryComparison]
            raise wrong_sign_in(
                f"user={clip(repr(self.user), 80)} is not a function of the call", "user=lambda ctx: ctx.deps.user"
            )
        _check_address("redirect_uri", self.redirect_uri)
        if not isinstance(self.tokens, TokenStore):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_sign_in(
                f"tokens={clip(type(self.tokens).__name__, 80)} is no store of sign-ins",
                'tokens=FileTokens("tokens"), MemoryTokens(), or an object of yours with load, save and lock',
            )
        if self.client is not None and not isinstance(self.client, RegisteredClient):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_sign_in(
                f"client={clip(repr(self.client), 80)} is not a RegisteredClient",
                'client=RegisteredClient("client-id", secret="$SECRET", issuer="https://login.example.com"); '
                'a metadata document: document="https://..."',
            )
        if self.document is not None:
            parts = urlsplit(self.document)
            if parts.scheme != "https" or parts.path in ("", "/"):
                raise wrong_sign_in(
                    f"document={clip(repr(self.document), 200)} is not an https address with a path",
                    'document="https://app.example.com/oauth/client.json"',
                )
        for name in ("scopes", "issuers"):
            value: Any = getattr(self, name)
            if isinstance(value, str) or not all([isinstance(each, str) and each for each in value]):
                raise wrong_sign_in(f"{name}={clip(repr(value), 80)} is not a list of texts", f'{name}=["..."]')
            object.__setattr__(self, name, tuple(value))
        for each in self.issuers:
            _check_address("issuers", each)


def wrong_sign_in(what: str, hint: str) -> ConfigurationError:
    """The error of a description."""
    return ConfigurationError(what, code="mcp/sign-in", hint=hint)


def _check_address(name: str, address: object) -> None:
    if not isinstance(address, str) or unsafe(address, local=True) is not None or "#" in address:
        why = "is not an address" if not isinstance(address, str) else unsafe(address, local=True) or "has a fragment"
        raise wrong_sign_in(
            f"{name}={clip(repr(address), 200)} {why}",
            f"{name}='https://app.example.com/...'; http only on this machine: 'http://127.0.0.1:8000/...'",
        )


def unsafe(address: str, *, local: bool) -> str | None:
    """Why nothing secret may be sent to ``address``; None if it may: over https, and with ``local`` over http on this machine.

    Without ``local``, addresses of this machine and of private networks are refused too: a server elsewhere must not choose
    them for us.
    """
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not an address"
    if not host or parts.scheme not in ("http", "https"):
        return "is not an https address"
    if parts.username is not None or parts.password is not None:
        return "has a name or a password in it"
    if parts.scheme == "http" and not is_local(host):
        return "is not encrypted (http)"
    if not local and (is_local(host) or _is_private(host)):
        return "leads to this machine or a private network, which a server elsewhere may not choose"
    return None


def is_local(host: str | None) -> bool:
    """Whether a host is this machine, by its name or address."""
    # also the names below localhost, unlike elsewhere: browsers take each of them to be the machine they run on
    return host is not None and (is_loopback(host) or host.endswith(".localhost"))


def _is_private(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return False
