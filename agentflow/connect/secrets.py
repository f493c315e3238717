"""``$NAME`` in what a server is given: read from the environment when it is connected, and never shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from agentflow.core.errors import ConfigurationError, clip
from agentflow.lib.secret_forms import secrets_of

_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_REFERENCE = re.compile(r"\$(?:\$|\{(\w+)\}|([A-Za-z_]\w*))")


def filled(
    table: Mapping[str, str], environ: Mapping[str, str], secret: Callable[[str], None], server: str
) -> dict[str, str]:
    """``table`` with ``$NAME`` and ``${NAME}`` in its values replaced by variables; ``$$`` is a dollar.

    Each variable is told to ``secret``, and what else stands under a name that says so. Raises ConfigurationError (``mcp/variable``) for one that is not set.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            return "$"
        value = environ.get(name)
        if not value:
            raise ConfigurationError(
                f"the MCP server '{server}' is to be given ${name}, which is not set",
                code="mcp/variable",
                hint=f"set the variable {name}, or write $$ for a dollar",
            )
        secret(value)
        return value

    values = {name: _REFERENCE.sub(value_of, text) for name, text in table.items()}
    for name, value in values.items():
        for known in value.split()[-1:] if name.lower() in _CREDENTIALS else secrets_of(name, value):
            secret(known)
    return values


def filled_headers(
    table: Mapping[str, str], environ: Mapping[str, str], secret: Callable[[str], None], server: str
) -> dict[str, str]:
    """The same for what is sent as headers. Raises ConfigurationError (``mcp/variable``) also for what no header can hold."""
    values = filled(table, environ, secret, server)
    for name, value in values.items():
        if not _HEADER.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise ConfigurationError(  # without the value: it may be a secret, and an HTTP library would show it
                f"the MCP server '{server}' cannot be sent the header {clip(repr(name), 80)}",
                code="mcp/variable",
                hint="a name has no blanks, and a value no line end and no character outside of ASCII: look at the variable",
            )
    return values


__all__ = ["filled", "filled_headers"]
