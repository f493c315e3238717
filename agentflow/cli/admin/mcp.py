"""``agentflow mcp``: the MCP servers that options and settings name."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from agentflow.cli.shared.approving import approver
from agentflow.cli.shared.common import Exit, UsageError, check_packages, run_async, write_json, write_out
from agentflow.cli.shared.help_text import HelpGroup
from agentflow.cli.shared.options import AsJson, FlowOptions, McpServeOptions, open_flow, takes_options
from agentflow.lib.text.safe_text import clean

mcp = typer.Typer(cls=HelpGroup, no_args_is_help=True, help="Serve over MCP; list tools of other servers.")


@mcp.command("list")
@takes_options
def list_servers(options: FlowOptions, json: AsJson = False) -> None:
    """Connect the servers that options and settings name, and list their tools.

    Exit code 1 if a server is not optional and cannot be connected.
    """
    sys.exit(run_async(lambda: show_servers(options, as_json=json), as_json=json))


async def show_servers(options: FlowOptions, *, as_json: bool) -> int:
    """Print each server with its tools, or the error of its connection. Returns the exit code."""
    from agentflow.app import AgentFlow
    from agentflow.cli.shared.mcp_names import remember
    from agentflow.connect.config import servers_of_table

    settings = options.settings()
    servers = [*servers_of_table(settings.mcp), *options.servers()]
    required = {server.name for server in servers if not server.optional}
    every = [replace(server, optional=True) for server in servers]
    async with AgentFlow(model="offline", settings=settings.model_copy(update={"mcp": {}}), mcp=every) as flow:
        rows: list[dict[str, Any]] = [
            {
                "server": server.name,
                "error": None if (error := flow.mcp.failed.get(server.name)) is None else error.to_dict(),
                "tools": [
                    {
                        "name": tool.name,
                        "read_only": tool.read_only,
                        "approval": tool.approval,
                        "offered": not tool.builtin,
                        "description": tool.spec.description,
                        "input_schema": tool.spec.input_schema,
                    }
                    for tool in flow.mcp.tools_of(server.name)
                ],
            }
            for server in every
        ]
        await asyncio.to_thread(remember, flow)
        news = [text for code, text in flow.mcp.news() if code == "mcp/tool-refused"]
    failed = [row for row in rows if row["error"] is not None and row["server"] in required]
    if as_json:
        write_json({"ok": not failed, "servers": rows, "refused": news})
    else:
        _print(rows, news)
    return Exit.FAILED if failed else Exit.OK


def _print(rows: list[dict[str, Any]], news: list[str]) -> None:
    if not rows:
        write_out(
            "no MCP servers are configured: --mcp NAME=COMMAND|URL, --mcp-config FILE, or [mcp.NAME] in agentflow.toml\n"
        )
    for row in rows:
        write_out(
            f"{row['server']}: "
            + (clean(row["error"]["message"]) if row["error"] else f"{len(row['tools'])} tools")
            + "\n"
        )
        for tool in row["tools"]:
            marks = ["reads" if tool["read_only"] else "writes", *(["asks"] if tool["approval"] else [])]
            marks += [] if tool["offered"] else ["if named"]
            description = tool["description"].partition("words.) ")[2] or tool["description"]
            first = (description.splitlines() or [""])[0][:100]
            write_out(f"  {tool['name']:<32}{', '.join(marks):<16}{clean(first)}\n")
    for text in news:
        write_out(f"{clean(text)}\n")


@mcp.command("serve")
@takes_options
def serve_client(
    options: McpServeOptions,
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="FILE|DIR...", help="Programs, each a tool under its file's name.")
    ] = None,
) -> None:
    """Serve as an MCP server on standard input and output.

    Its tools are programs of FILE and DIR, the saved workflows of --workflows, and the names in --export. An MCP client
    starts this command.
    """
    sys.exit(run_async(lambda: serve_on_stdio(paths or [], options)))


async def serve_on_stdio(paths: list[str], options: McpServeOptions) -> int:
    """Serve the client that started this process until it disconnects. Returns the exit code. Raises UsageError."""
    check_packages("starlette", "mcp", extra="mcp")
    from agentflow.serve.exports import exports_of, offers_of
    from agentflow.serve.mcp.mcp_server import serve_stdio
    from agentflow.serve.served_flow import ServedFlow

    every = [*paths, *([options.workflows] if options.workflows is not None else ())]
    exports = exports_of(every, options.export or ())
    if not exports and not options.run_program:
        raise UsageError(
            "there is nothing to serve", hint="pass programs, --workflows DIR, --export TASK or --run-program"
        )
    asked = None if options.approve == "ask" else approver(options.approve)
    async with open_flow(options, approve=asked, answer=None) as flow:
        grants = frozenset(options.allow or ()) if options.run_program else None
        await serve_stdio(ServedFlow(flow, offers_of(flow, exports), grants))
    return Exit.OK
