"""The options that name MCP servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentflow.connect.servers import McpServer


@dataclass(frozen=True, kw_only=True)
class McpOptions:
    """The options of a command with a flow that may have tools of MCP servers."""

    mcp_server: Annotated[
        list[str] | None,
        typer.Option(
            "--mcp",
            metavar="NAME=COMMAND|URL",
            help="An MCP server: a COMMAND, which runs in the sandbox, or its address; you call its tools NAME:tool"
            " (repeatable).",
        ),
    ] = None
    mcp_config: Annotated[
        str | None,
        typer.Option("--mcp-config", metavar="FILE", help="A JSON file of MCP servers, a table mcpServers."),
    ] = None

    def servers(self) -> list[McpServer]:
        """The servers that the options name. Raises ConfigurationError (``mcp/server``, ``mcp/config``)."""
        from agentflow.connect.config import server_of_option, servers_of_file

        named = [server_of_option(text) for text in self.mcp_server or ()]
        return [*named, *(servers_of_file(self.mcp_config) if self.mcp_config is not None else ())]
