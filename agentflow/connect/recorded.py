"""The tools that a server was last seen to have, kept on this machine for what may not start it: checks and editors.

A list is kept for the very server: another command, address, root or choice of tools is another one. What is kept are the
server's words, of bounded size. Nothing here imports the SDK.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from agentflow.connect.servers import McpServer, McpStdio
from agentflow.core.frozen import frozen
from agentflow.core.messages import ToolSpec
from agentflow.core.ports import Tool
from agentflow.core.values import to_json
from agentflow.lib.private_files import state_path, write_private

MAX_RECORD = 4_000_000
"""Characters that are kept of one server; the schemas of what is past them are left out."""
MAX_SERVERS = 100
"""Servers that are kept; the oldest lists go."""


@frozen
class RecordedTool:
    """A tool as it was registered when its server was last connected. ``approval``: a model's call of it waits for a yes."""

    spec: ToolSpec
    read_only: bool
    approval: bool

    @property
    def about(self) -> str:
        """What it is for, in its server's words, and what it may do."""
        does = "It says that it only reads." if self.read_only else "It may change something."
        asks = " A model's call of it waits for a yes." if self.approval else ""
        return f"{self.spec.description}\n\n{does}{asks}"


def record(server: McpServer, root: Path, tools: Sequence[Tool]) -> None:
    """Keep the tools of ``server``, which is started in ``root`` if it is a program. Raises OSError. Blocking."""
    left = MAX_RECORD
    rows: list[str] = []
    for tool in tools:
        row = _row(tool, tool.spec.input_schema)
        if len(row) > left:
            row = _row(tool, {"type": "object"})
        if len(row) > left:
            break
        left -= len(row)
        rows.append(row)
    path = _path(server, root)
    write_private(path, f"[{','.join(rows)}]")
    kept = sorted(path.parent.glob("*.json"), key=lambda each: each.stat().st_mtime)
    for old in kept[:-MAX_SERVERS]:
        old.unlink(missing_ok=True)


def recorded(server: McpServer, root: Path) -> list[RecordedTool] | None:
    """The tools that ``server`` was last seen to have; None for one that was never connected. Blocking."""
    try:
        read: Any = json.loads(_path(server, root).read_text("utf-8"))
        return [_tool(row) for row in read]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # a file that is no list of tools says as little as none


def _row(tool: Tool, schema: dict[str, Any]) -> str:
    spec = tool.spec
    return to_json([spec.name, spec.description, schema, tool.read_only, tool.approval])


def _tool(row: Any) -> RecordedTool:
    name, description, schema, read_only, approval = cast("Iterable[Any]", row)
    if not (isinstance(name, str) and isinstance(description, str) and isinstance(schema, dict)):
        raise TypeError("no tool")
    return RecordedTool(
        ToolSpec(name, description, cast("dict[str, Any]", schema)), read_only is True, approval is True
    )


def _path(server: McpServer, root: Path) -> Path:
    """Where the list of ``server`` is kept. Values of variables and headers, which may be secrets, are no part of it."""
    identity = (
        [server.command, sorted(server.env), str(root.resolve())]
        if isinstance(server, McpStdio)
        else [server.url, sorted(server.headers)]
    )
    text = to_json([server.name, server.allow, server.approve, *identity])
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return state_path() / "mcp" / f"{digest}.json"


__all__ = ["RecordedTool", "record", "recorded"]
