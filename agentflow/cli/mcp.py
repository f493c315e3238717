"""``agentflow mcp``: the MCP servers that options and settings name, and trust in a directory's settings."""

from __future__ import annotations

import asyncio
import shlex
import sys
import tomllib
from dataclasses import fields, replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from agentflow.cli.approving import approver
from agentflow.cli.common import Exit, UsageError, check_packages, guarded, run_async, write_json, write_out
from agentflow.cli.options import AsJson, FlowOptions, open_flow, takes_options
from agentflow.cli.serve_options import McpServeOptions
from agentflow.connect.servers import McpServer, McpStdio
from agentflow.lib.terminal import clean, escape

mcp = typer.Typer(no_args_is_help=True, help="Serve over MCP; list tools of other servers; trust a directory.")


@mcp.command("list")
@takes_options
def list_servers(options: FlowOptions, json: AsJson = False) -> None:
    """Connect the servers that options and settings name, and list their tools.

    Exit code 1 if one that is not optional cannot be connected.
    """
    sys.exit(run_async(lambda: show_servers(options, as_json=json), as_json=json))


async def show_servers(options: FlowOptions, *, as_json: bool) -> int:
    """Print each server with its tools, or the error of its connection. Returns the exit code."""
    from agentflow.app import AgentFlow
    from agentflow.cli.mcp_names import remember
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

    Its tools are programs of FILE and DIR, the saved workflows of --workflows, and what --export names. An MCP client starts
    this command.
    """
    sys.exit(run_async(lambda: serve_on_stdio(paths or [], options)))


async def serve_on_stdio(paths: list[str], options: McpServeOptions) -> int:
    """Serve the client that started this process until it disconnects. Returns the exit code. Raises UsageError."""
    check_packages("starlette", "mcp", extra="mcp")
    from agentflow.serve.exports import exports_of, offers_of
    from agentflow.serve.mcp.stdio import serve_stdio
    from agentflow.serve.service import Service

    every = [*paths, *([options.workflows] if options.workflows is not None else ())]
    exports = exports_of(every, options.export or ())
    if not exports and not options.run_program:
        raise UsageError(
            "there is nothing to serve", hint="pass programs, --workflows DIR, --export TASK or --run-program"
        )
    asked = None if options.approve == "ask" else approver(options.approve)
    async with open_flow(options, approve=asked, answer=None) as flow:
        grants = frozenset(options.allow or ()) if options.run_program else None
        await serve_stdio(Service(flow, offers_of(flow, exports), grants))
    return Exit.OK


@mcp.command("trust")
def trust_settings(
    directory: Annotated[
        str | None, typer.Argument(metavar="DIR", help="The directory of an agentflow.toml. Default: this one.")
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Stop trusting it.")] = False,
    json: AsJson = False,
) -> None:
    """Trust the MCP servers in a directory's agentflow.toml as it is now.

    Shows the programs and addresses in it, and what each may do. After any change to the file it must be trusted again.
    """
    sys.exit(guarded(lambda: trust_file(Path(directory or "."), forget=forget, as_json=json), as_json=json))


def trust_file(directory: Path, *, forget: bool, as_json: bool) -> int:
    """Trust (or ``forget``) the settings of ``directory``, and print the servers. Returns the exit code. Raises UsageError."""
    from agentflow.connect.config import servers_of_table
    from agentflow.lib.trust import FILE_NAME, trust

    path = directory / FILE_NAME
    try:
        content = path.read_bytes()
        read: dict[str, Any] = tomllib.loads(content.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    table: Any = read.get("mcp", {})
    servers = servers_of_table(cast("dict[str, Any]", table) if isinstance(table, dict) else {"mcp": table})
    named = {
        each.name: {"command" if isinstance(each, McpStdio) else "url": _what(each), **_options(each)}
        for each in servers
    }
    trust(path, None if forget else content)
    if as_json:
        write_json({"ok": True, "path": str(path.resolve()), "trusted": not forget, "servers": named})
        return Exit.OK
    write_out(f"{path.resolve()} is {'not trusted any more' if forget else 'trusted as it is now'}\n")
    for server in servers:
        what = _what(server)
        write_out(f"  {server.name}: {escape(what if isinstance(what, str) else shlex.join(what))}\n")
        for option, value in _options(server).items():
            write_out(f"    {option} = {escape(dumps(value, ensure_ascii=False))}\n")
    return Exit.OK


def _what(server: McpServer) -> str | list[str]:
    return list(server.command) if isinstance(server, McpStdio) else server.url


def _options(server: McpServer) -> dict[str, Any]:
    """The options of a server besides its command or address: everything that trusting it accepts."""
    named = [each for each in fields(server) if each.kw_only]
    defaults = {each.name: each.default_factory() if callable(each.default_factory) else each.default for each in named}
    return {name: value for name, default in defaults.items() if (value := getattr(server, name)) != default}
