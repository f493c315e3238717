"""The tools that a server last listed, kept on this machine for checks and editors, which may not start it.

The key covers the whole description of a server: a different command, address, root or ``allow`` has a list of its own.
The lists hold the server's own words, bounded in size. Nothing here imports the SDK.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from agentflow.connect.servers import McpServer, McpStdio
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.values import to_json
from agentflow.core.ports.ports import Tool
from agentflow.lib.file_writer import state_path, write_private

MAX_RECORD = 4_000_000
"""Characters kept per server; further schemas are left out."""
MAX_SERVERS = 100
"""Number of servers kept; the oldest lists are removed."""


@frozen
class RecordedTool:
    """A tool as it was registered when its server was last connected. ``approval``: calls by models need approval."""

    spec: ToolSpec
    read_only: bool
    approval: bool

    @property
    def about(self) -> str:
        """The description in the server's words, and the tool's declared behaviour."""
        does = "It says that it only reads." if self.read_only else "It may change something."
        asks = " A model's call of it waits for a yes." if self.approval else ""
        return f"{self.spec.description}\n\n{does}{asks}"


def record(server: McpServer, root: Path, tools: Sequence[Tool]) -> None:
    """Store the ``tools`` of ``server``; ``root`` is the directory a program is started in. Raises OSError. Blocking."""
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
    """The tools that ``server`` last listed; None if it was never connected. Blocking."""
    try:
        read: Any = json.loads(_path(server, root).read_text("utf-8"))
        return [_tool(row) for row in read]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # a damaged file is treated as a missing one


def _row(tool: Tool, schema: dict[str, Any]) -> str:
    spec = tool.spec
    return to_json([spec.name, spec.description, schema, tool.read_only, tool.approval])


def _tool(row: Any) -> RecordedTool:
    name, description, schema, read_only, approval = cast("Iterable[Any]", row)
    if not (isinstance(name, str) and isinstance(description, str) and isinstance(schema, dict)):
        raise TypeError("not a tool")
    return RecordedTool(
        ToolSpec(name, description, cast("dict[str, Any]", schema)), read_only is True, approval is True
    )


def _path(server: McpServer, root: Path) -> Path:
    """The file of the list of ``server``. Values of variables and headers are left out of the key: they may be secrets."""
    identity = (
        [server.command, sorted(server.env), str(root.resolve())]
        if isinstance(server, McpStdio)
        else [server.url, sorted(server.headers)]
    )
    text = to_json([server.name, server.allow, server.approve, *identity])
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return state_path() / "mcp" / f"{digest}.json"
