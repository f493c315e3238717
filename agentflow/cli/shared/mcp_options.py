"""The options that name MCP servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from agentflow.cli.shared.own_sign_ins import PORT, with_own_sign_ins

if TYPE_CHECKING:
    from agentflow.connect.servers import McpServer
    from agentflow.settings import Settings


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
        if self.mcp_config is not None:
            named += servers_of_file(self.mcp_config)
        return with_own_sign_ins(named) if named else []


@dataclass(frozen=True, kw_only=True)
class McpSignInOptions(McpOptions):
    """The options of the command that signs in to a server."""

    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="N", min=1, max=65_535, help="The port of this machine at which the browser comes back."
        ),
    ] = PORT
    browser: Annotated[bool, typer.Option(help="Open the browser; without, only the address is printed.")] = True


def servers_of(settings: Settings, options: McpOptions) -> list[McpServer]:
    """The servers that settings and options name. Raises ConfigurationError (``mcp/server``, ``mcp/config``)."""
    if not settings.mcp:
        return options.servers()
    from agentflow.connect.config import servers_of_table

    return [*with_own_sign_ins(servers_of_table(settings.mcp)), *options.servers()]
