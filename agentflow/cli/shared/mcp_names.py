"""The facts of ``check`` and ``lsp`` about MCP servers, which they do not start: the tools each of them last listed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentflow.cli.shared.mcp_options import McpOptions
from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import NameInfo, Names, Template, info_of_schema
from agentflow.core.ports.ports import Tool
from agentflow.lib.file_writer import FILE_NAME

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.connect.recorded import RecordedTool
    from agentflow.connect.servers import McpServer


@frozen
class KnownServers:
    """The recorded ``tools`` of servers by name; ``unknown`` are servers without a record, and ``notes`` explain why. ``sampling`` are
    servers that may ask the model."""

    tools: Mapping[str, RecordedTool] = field(default_factory=dict[str, "RecordedTool"])
    unknown: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    sampling: frozenset[str] = frozenset()

    def around(self, names: Names) -> Names:
        """``names``, and after them the servers' tools."""
        return NamesWithServers(names, self) if self.tools or self.unknown else names

    @property
    def descriptions(self) -> dict[str, str]:
        """The description of each tool, in its server's words."""
        return {name: tool.about for name, tool in self.tools.items()}


class NamesWithServers:
    """The names ``inner``, and after them the tools of ``servers``. Any tool of an unknown server may be called."""

    def __init__(self, inner: Names, servers: KnownServers) -> None:
        self._inner = inner
        self._unknown = servers.unknown
        self._infos = {name: info_of_schema("tool", each.spec.input_schema) for name, each in servers.tools.items()}

    def describe(self, name: str) -> NameInfo | None:
        own = self._inner.describe(name) or self._infos.get(name)
        server, colon, _ = name.partition(":")
        return NameInfo("tool") if own is None and colon and server in self._unknown else own

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        return self._inner.prepare(fields)

    def known_names(self) -> Iterable[str]:
        return {**dict.fromkeys(self._inner.known_names()), **self._infos}


def servers_of(options: McpOptions) -> KnownServers:
    """The recorded tools of the servers that ``options`` and the settings of this directory name.

    Of untrusted settings only the names are read. Raises ConfigurationError for options that name no valid server.
    """
    named = options.servers()
    table = _named_in_settings()
    if not named and not table:
        return KnownServers()
    from agentflow.connect.config import servers_of_table
    from agentflow.settings import load_settings

    try:
        settings = load_settings()
    except AgentflowError as error:
        recorded = look_up(named, Path())
        note = f"{error.message}, so the tools of its MCP servers are unknown"
        return replace(recorded, unknown=recorded.unknown | table, notes=(note, *recorded.notes))
    return look_up([*servers_of_table(settings.mcp), *named], Path(settings.root))


def servers_of_flow(flow: AgentFlow) -> KnownServers:
    """The recorded tools of the servers of an unconnected flow."""
    return look_up(flow.mcp.servers, flow.files.roots[0])


def look_up(servers: Sequence[McpServer], root: Path) -> KnownServers:
    """The recorded tools of ``servers``; ``root`` is the directory to start programs in."""
    if not servers:
        return KnownServers()
    from agentflow.connect.recorded import recorded

    tools: dict[str, RecordedTool] = {}
    unknown: list[str] = []
    for server in servers:
        last = recorded(server, root)
        if last is None:
            unknown.append(server.name)
        else:
            tools.update({each.spec.name: each for each in last})
    notes = tuple(
        f"the MCP server '{name}' was never connected here, so calls of its tools are not checked: agentflow mcp list,"
        " with the same options, lists them"
        for name in unknown
    )
    return KnownServers(tools, frozenset(unknown), notes, frozenset(each.name for each in servers if each.sampling))


def stand_ins(servers: KnownServers) -> list[Tool]:
    """The servers' tools as tools of an unconnected flow: programs can be analysed with them, but not call them."""

    async def call(arguments: dict[str, Any], context: CallContext) -> Any:
        raise AgentflowError("the MCP server is not connected", code="mcp/down")

    return [
        Tool(
            spec=each.spec,
            call=call,
            read_only=each.read_only,
            approval=each.approval,
            calls_models=each.spec.name.partition(":")[0] in servers.sampling,
        )
        for each in servers.tools.values()
    ]


def remember(flow: AgentFlow) -> None:
    """Record the tools of the servers that ``flow`` is connected to, for checks and editors. Blocking."""
    if not flow.mcp.servers:
        return
    from agentflow.connect.recorded import record

    for server in flow.mcp.servers:
        if server.name not in flow.mcp.failed:
            try:
                record(server, flow.files.roots[0], flow.mcp.tools_of(server.name))
            except OSError:  # without a state directory nothing is recorded, and the run continues
                return


def _named_in_settings() -> frozenset[str]:
    """The names of the servers in this directory's settings, trusted or not."""
    try:
        read: dict[str, Any] = tomllib.loads(Path(FILE_NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return frozenset()
    table: Any = read.get("mcp")
    return frozenset(cast("dict[str, Any]", table)) if isinstance(table, dict) else frozenset()
