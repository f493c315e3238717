"""Reads server descriptions from files and options: ``NAME=COMMAND``, ``NAME=URL``, and the tables other programs use."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from agentflow.connect.servers import McpHttp, McpServer, McpStdio
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.lib.text.suggest import did_you_mean

_STDIO = frozenset([each.name for each in fields(McpStdio)]) - {"name"} | {"args"}
_HTTP = frozenset([each.name for each in fields(McpHttp)]) - {"name", "credentials"}
_OTHERS = frozenset({"type", "transport", "disabled"})
"""Keys of other programs' tables: accepted and mostly ignored."""


def server_of_option(text: str) -> McpServer:
    """Parse ``NAME=COMMAND`` or ``NAME=URL``. Raises ConfigurationError (``mcp/server``)."""
    name, _, target = text.partition("=")
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise _wrong(f"--mcp {clip(text, 200)}: {error}", "quote the command as in a shell") from None
    if not words:
        raise _wrong(f"--mcp {clip(text, 200)} names no command and no address", "write --mcp NAME=COMMAND or NAME=URL")
    return McpHttp(name, target) if target.startswith(("http://", "https://")) else McpStdio(name, words)


def servers_of_file(path: str) -> list[McpServer]:
    """Read the servers of a JSON file with a table ``mcpServers``, the format of other programs; unknown keys are ignored.

    Raises ConfigurationError (``mcp/config``, ``mcp/server``).
    """
    try:
        read: Any = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}", code="mcp/config", hint='it is JSON: {"mcpServers": {"NAME": {...}}}'
        ) from error
    table = cast("dict[str, Any]", read).get("mcpServers") if isinstance(read, dict) else None
    if not isinstance(table, dict):
        raise ConfigurationError(
            f"{path} has no table of servers", code="mcp/config", hint='it is {"mcpServers": {"NAME": {...}}}'
        )
    return servers_of_table(cast("dict[str, Any]", table), lenient=True)


def servers_of_table(table: Mapping[str, Any], *, lenient: bool = False) -> list[McpServer]:
    """Build servers from a table by name: ``command``, ``args`` and ``env``, or ``url`` and ``headers``, and our options.

    Unknown keys are errors unless ``lenient``. Raises ConfigurationError (``mcp/server``).
    """
    servers: list[McpServer] = []
    for name, entry in table.items():
        if not isinstance(entry, Mapping):
            raise _wrong(
                f"the MCP server '{clip(name, 80)}' is not a table", 'it has command = ["..."], or url = "..."'
            )
        options = dict(cast("Mapping[str, Any]", entry))
        allowed = _HTTP if "url" in options else _STDIO
        unknown = [key for key in options if key not in allowed | _OTHERS]
        if unknown and not lenient:
            raise _wrong(
                f"the MCP server '{name}' has an unknown option '{clip(unknown[0], 80)}'",
                did_you_mean(unknown[0], allowed) or f"the options are {', '.join(sorted(allowed))}",
            )
        if options.get("type", options.get("transport")) == "sse":
            raise _wrong(
                f"the MCP server '{name}' uses the SSE transport, which was retired in 2025",
                "use its Streamable HTTP address, usually /mcp",
            )
        if options.get("disabled") is True:
            continue
        servers.append(_server(name, {key: value for key, value in options.items() if key in allowed}))
    return servers


def _server(name: str, options: dict[str, Any]) -> McpServer:
    try:
        if "url" in options:
            return McpHttp(name, **options)
        command, more = options.pop("command", ()), options.pop("args", ())
        return McpStdio(name, [*([command] if isinstance(command, str) else command), *more], **options)
    except TypeError as error:
        raise _wrong(
            f"the MCP server '{name}': {error}", "the options have the types of the fields of McpStdio and McpHttp"
        ) from error


def _wrong(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="mcp/server", hint=hint)
