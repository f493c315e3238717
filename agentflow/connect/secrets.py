"""``$NAME`` in what a server is given: read from the environment when it is connected, and never shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from agentflow.core.errors import ConfigurationError

_REFERENCE = re.compile(r"\$(?:\$|\{(\w+)\}|([A-Za-z_]\w*))")


def filled(
    table: Mapping[str, str], environ: Mapping[str, str], secret: Callable[[str], None], server: str
) -> dict[str, str]:
    """``table`` with ``$NAME`` and ``${NAME}`` in its values replaced by variables; ``$$`` is a dollar.

    Each variable is told to ``secret``. Raises ConfigurationError (``mcp/variable``) for one that is not set.
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

    return {name: _REFERENCE.sub(value_of, text) for name, text in table.items()}


__all__ = ["filled"]
