"""Descriptions of MCP servers, as hosts write them. Nothing here imports the protocol's SDK."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from agentflow.connect.sign_in import SignIn, unsafe, wrong_sign_in
from agentflow.connect.token_store import FileTokens
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen

if TYPE_CHECKING:
    from agentflow.core.call.call import CallContext

Approve: TypeAlias = Literal["all", "writes", "none"]
"""The calls by models that need approval: all, those of tools that do not declare themselves read-only, or none."""

Credentials: TypeAlias = "SignIn | Callable[[CallContext[Any]], Mapping[str, str] | Awaitable[Mapping[str, str]]]"
"""Has the user of a call sign in by OAuth, or returns the headers with their credentials."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
RESERVED = frozenset({"system", "files"})
"""Prefixes with another meaning: ``system:`` tools, and grants of files."""


@frozen
class McpStdio:
    """An MCP server run as a program, in the flow's sandbox, over its standard input and output.

    Parameters: ``name`` is the prefix of its tools (``name:tool``); ``command`` is its argument vector. ``allow`` are
    patterns of the tools to offer (``read_*``; None: all). ``env`` are its variables, in addition to PATH, HOME, TMPDIR and
    the locale; ``$NAME`` in a value is that variable of this process and counts as a secret. ``network``: whether it has
    network access. ``writable`` are directories it may write in, ``readable`` those it may read in addition to the roots
    and the system; relative paths start at the first root. ``approve`` says which calls by models need approval.
    ``optional``: the flow starts without the server if it cannot be connected. ``sampling``: it may ask the run's model.
    ``defer_loading``: models do not receive its tools but find them with a search. ``timeout_s`` is the time-out of a request in seconds: each progress of its tool begins it anew, up to ``total_s`` seconds in all
    (None: ten times ``timeout_s``). ``connect_s`` is that of the start, which includes a download of the
    program.

    Raises ConfigurationError (``mcp/server``).
    """

    name: str
    command: Sequence[str]
    allow: Sequence[str] | None = field(default=None, kw_only=True)
    env: Mapping[str, str] = field(default_factory=dict[str, str], kw_only=True, repr=False)
    network: bool = field(default=False, kw_only=True)
    writable: Sequence[str] = field(default=(), kw_only=True)
    readable: Sequence[str] = field(default=(), kw_only=True)
    approve: Approve = field(default="writes", kw_only=True)
    optional: bool = field(default=False, kw_only=True)
    sampling: bool = field(default=False, kw_only=True)
    defer_loading: bool = field(default=False, kw_only=True)
    timeout_s: float = field(default=60.0, kw_only=True)
    total_s: float | None = field(default=None, kw_only=True)
    connect_s: float = field(default=15.0, kw_only=True)

    def __post_init__(self) -> None:
        _check(self)
        if not self.command:
            raise _wrong(self, "has no command", 'command=["npx", "-y", "some-server", "."]')

    @property
    def every_tool(self) -> str:
        """The name under which a list of tools has all tools of this server."""
        from agentflow.core.data.known_names import (
            EVERY,  # here, since the help of the command imports this module and not pydantic
        )

        return f"{self.name}{EVERY}"


@frozen
class McpHttp:
    """An MCP server at an address (Streamable HTTP).

    Parameters: ``name`` is the prefix of its tools (``name:tool``); ``url`` is its address. ``headers`` are sent with every
    request; ``$NAME`` in a value is that variable of this process and counts as a secret. ``credentials`` is a function of the
    :class:`~agentflow.CallContext`, async or plain, that returns further headers for each call, those of its user: calls with
    other headers have a connection of their own; or a :class:`SignIn`, with which users sign in by OAuth. The others are those of
    :class:`McpStdio`.

    Raises ConfigurationError (``mcp/server``).
    """

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], kw_only=True, repr=False)
    credentials: Credentials | None = field(default=None, kw_only=True, repr=False)
    allow: Sequence[str] | None = field(default=None, kw_only=True)
    approve: Approve = field(default="writes", kw_only=True)
    optional: bool = field(default=False, kw_only=True)
    sampling: bool = field(default=False, kw_only=True)
    defer_loading: bool = field(default=False, kw_only=True)
    timeout_s: float = field(default=60.0, kw_only=True)
    total_s: float | None = field(default=None, kw_only=True)
    connect_s: float = field(default=15.0, kw_only=True)

    def __post_init__(self) -> None:
        _check(self)
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _wrong(self, f"has the address {clip(self.url, 200)!r}", 'url="https://example.com/mcp"')
        if isinstance(self.credentials, SignIn):
            why = unsafe(self.url, local=True)
            if why is not None:
                raise _wrong(self, f"has users who sign in, and an address that {why}", 'url="https://example.com/mcp"')
        elif self.credentials is not None and (isinstance(self.credentials, type) or not callable(self.credentials)):
            raise _wrong(
                self,
                "has credentials= that is neither a SignIn nor a function",
                'credentials=SignIn(...); a function: lambda ctx: {"Authorization": f"Bearer {ctx.deps.token}"}; '
                "the same for all: headers={...}",
            )
        if parts.username or parts.password:
            raise _wrong(self, "has a password in its address", 'headers={"Authorization": "Bearer $TOKEN"}')

    @property
    def every_tool(self) -> str:
        """The name under which a list of tools has all tools of this server."""
        from agentflow.core.data.known_names import (
            EVERY,  # here, since the help of the command imports this module and not pydantic
        )

        return f"{self.name}{EVERY}"


McpServer: TypeAlias = McpStdio | McpHttp
"""A server description: a program or an address."""

_TEXTS = ("command", "allow", "writable", "readable")
_TABLES = ("env", "headers")
_SWITCHES = ("network", "optional", "sampling", "defer_loading")


def _check(server: McpServer) -> None:
    """Raise ConfigurationError for an invalid field; copy lists to tuples and mappings to dicts."""
    if not isinstance(server.name, str) or not _NAME.fullmatch(server.name) or server.name in RESERVED:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"{clip(repr(server.name), 80)} cannot be the name of an MCP server",
            code="mcp/server",
            hint="a letter, then letters, digits, _ and -, 32 at most; not 'system' nor 'files', which are reserved",
        )
    for each in fields(server):
        value: Any = getattr(server, each.name)
        if each.name in _TEXTS and value is not None:
            if isinstance(value, str) or not all([_is_text(text) and text for text in value]):
                raise _wrong(server, f"has {each.name}={clip(repr(value), 120)}", f"{each.name} is a list of strings")
            object.__setattr__(server, each.name, tuple(value))
        elif each.name in _SWITCHES:
            if not isinstance(value, bool):
                raise _wrong(server, f"has {each.name}={clip(repr(value), 80)}", f"{each.name} is true or false")
        elif each.name in _TABLES:
            if not isinstance(value, Mapping) or not all(map(_is_text, (*value, *value.values()))):  # pyright: ignore
                raise _wrong(
                    server, f"has {each.name}= that is not a table of strings", f'{each.name}={{"NAME": "$SECRET"}}'
                )
            object.__setattr__(server, each.name, dict(value))  # pyright: ignore[reportUnknownArgumentType]
    if server.approve not in get_args(Approve):
        raise _wrong(server, f"has approve={server.approve!r}", "approve is 'all', 'writes' or 'none'")
    for name in ("timeout_s", "total_s", "connect_s"):
        seconds: Any = getattr(server, name)
        if name == "total_s" and seconds is None:
            continue
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 86_400:
            raise _wrong(server, f"has {name}={clip(repr(seconds), 80)}", f"{name} is a number of seconds above 0")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _wrong(server: McpServer, what: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"the MCP server '{server.name}' {what}", code="mcp/server", hint=hint)


def check_names(servers: Sequence[McpServer]) -> None:
    """Raise ConfigurationError (``mcp/server``) for two servers with one name, and for a value other than a server."""
    names: set[str] = set()
    for server in servers:
        if not isinstance(server, McpStdio | McpHttp):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"mcp= takes McpStdio and McpHttp, not {type(server).__name__}",
                code="mcp/server",
                hint='for example mcp=[McpStdio("notes", ["npx", "-y", "some-server"])]',
            )
        if server.name in names:
            raise _wrong(server, "is listed twice", "each server has a name of its own")
        names.add(server.name)


def check_stores(servers: Sequence[McpServer], roots: Sequence[str]) -> None:
    """Raise ConfigurationError (``mcp/sign-in``) if tools that read the files below ``roots`` can read the tokens of users."""
    for server in servers:
        if not isinstance(server, McpHttp) or not isinstance(server.credentials, SignIn):
            continue
        tokens = server.credentials.tokens
        if isinstance(tokens, FileTokens) and any([tokens.directory.is_relative_to(each) for each in roots]):
            raise wrong_sign_in(
                f"the tokens of the users of the MCP server '{server.name}' are in {str(tokens.directory)!r}, below a root of the "
                "flow: its tools can read them",
                "FileTokens() without a directory keeps them outside, in the state directory of your user",
            )
