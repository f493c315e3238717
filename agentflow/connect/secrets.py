"""Expands ``$NAME`` in variables and headers of a server: read from the environment on connection, and never shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.lib.redact import secrets_of

_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_REFERENCE = re.compile(r"\$(?:\$|\{(\w+)\}|([A-Za-z_]\w*))")


def expand(
    table: Mapping[str, str], environ: Mapping[str, str], secret: Callable[[str], None], server: str
) -> dict[str, str]:
    """Return ``table`` with ``$NAME`` and ``${NAME}`` in its values replaced from ``environ``; ``$$`` is a dollar.

    ``secret`` takes each replaced value, and each value whose name denotes a credential. ``server`` is named in errors.
    Raises ConfigurationError (``mcp/variable``) for a variable that is not set.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            return "$"
        value = environ.get(name)
        if not value:
            raise ConfigurationError(
                f"the MCP server '{server}' uses ${name}, which is not set",
                code="mcp/variable",
                hint=f"set the variable {name}, or write $$ for a dollar",
            )
        secret(value)
        return value

    values = {name: _REFERENCE.sub(value_of, text) for name, text in table.items()}
    for name, value in values.items():
        for credential in value.split()[-1:] if name.lower() in _CREDENTIALS else secrets_of(name, value):
            secret(credential)
    return values


def expand_headers(
    table: Mapping[str, str], environ: Mapping[str, str], secret: Callable[[str], None], server: str
) -> dict[str, str]:
    """Do the same for headers. Raises ConfigurationError (``mcp/variable``) also for names and values no header can hold."""
    values = expand(table, environ, secret, server)
    for name, value in values.items():
        if not _HEADER.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise ConfigurationError(  # no value: it may be a secret
                f"the MCP server '{server}' cannot be sent the header {clip(repr(name), 80)}",
                code="mcp/variable",
                hint="names have no blanks; values have no line ends and only ASCII characters: check the variable",
            )
    return values


__all__ = ["expand", "expand_headers"]
