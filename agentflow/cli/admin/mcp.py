"""``agentflow mcp``: the MCP servers that options and settings name."""

from __future__ import annotations

import asyncio
import sys
import webbrowser
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentflow.cli.shared.approving import approver
from agentflow.cli.shared.common import Exit, UsageError, check_packages, run_async, write_json, write_out
from agentflow.cli.shared.help_text import HelpGroup
from agentflow.cli.shared.host_options import McpServeOptions
from agentflow.cli.shared.made_flows import open_flow
from agentflow.cli.shared.mcp_options import McpOptions, McpSignInOptions, servers_of
from agentflow.cli.shared.options import AsJson, FlowOptions, takes_options
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.errors import ConfigurationError
from agentflow.lib.text.safe_text import clean

if TYPE_CHECKING:
    from agentflow.connect.servers import McpHttp
    from agentflow.connect.user_sign_ins import UserSignIns

mcp = typer.Typer(
    cls=HelpGroup, no_args_is_help=True, help="Serve over MCP; list tools of other servers, sign in to them."
)


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

    settings = options.settings()
    servers = servers_of(settings, options)
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
        if row["error"] and row["error"].get("hint"):
            write_out(f"  hint: {clean(row['error']['hint'])}\n")
        for tool in row["tools"]:
            marks = ["reads" if tool["read_only"] else "writes", *(["asks"] if tool["approval"] else [])]
            marks += [] if tool["offered"] else ["if named"]
            description = tool["description"].partition("words.) ")[2] or tool["description"]
            first = (description.splitlines() or [""])[0][:100]
            write_out(f"  {tool['name']:<32}{', '.join(marks):<16}{clean(first)}\n")
    for text in news:
        write_out(f"{clean(text)}\n")


Server = Annotated[str, typer.Argument(metavar="NAME|URL", help="A server of options or settings, or an address.")]


@mcp.command("sign-in")
@takes_options
def sign_in(server: Server, options: McpSignInOptions) -> None:
    """Sign in to an MCP server in your browser.

    The tokens are stored in agentflow's state directory, in files that only you can read. Commands that name the
    server's address, in --mcp, --mcp-config or settings, use them from then on.
    """
    sys.exit(run_async(lambda: sign_in_here(server, options)))


async def sign_in_here(name: str, options: McpSignInOptions) -> int:
    """Open the browser, wait until it comes back, and store the tokens. Returns the exit code. Raises UsageError."""
    from agentflow.cli.shared.own_sign_ins import USER, listening

    server = _server_at(name, options)
    sign_ins = await _sign_ins(server, options.port)
    async with listening(options.port) as callbacks:
        address = await sign_ins.begin(server.name, USER)
        if address is None:
            say(f"you are signed in to {server.url}; agentflow mcp sign-out ends that")
            return Exit.OK
        say(f"Sign in at:\n  {address}")
        if options.browser:
            await asyncio.to_thread(webbrowser.open, address)
        done = None
        while done is None:
            parameters = await callbacks.next()
            try:
                done, _ = await sign_ins.end(parameters, USER)
            except ConfigurationError as error:
                if error.code != "mcp/sign-in-state":
                    raise
                say(f"a request that does not belong to this sign-in was ignored: {error.message}")
    say(f"you are signed in to {server.url}" if done else f"you are not signed in to {server.url}: it was refused")
    return Exit.OK if done else Exit.FAILED


@mcp.command("sign-out")
@takes_options
def sign_out(server: Server, options: McpOptions) -> None:
    """Delete the tokens of your sign-in to an MCP server. They are not revoked there."""
    sys.exit(run_async(lambda: sign_out_here(server, options)))


async def sign_out_here(name: str, options: McpOptions) -> int:
    """Delete the tokens. Returns the exit code. Raises UsageError."""
    from agentflow.cli.shared.own_sign_ins import PORT, USER

    server = _server_at(name, options)
    await (await _sign_ins(server, PORT)).forget(server.name, USER)
    say(f"you are signed out of {server.url}")
    return Exit.OK


def _server_at(name: str, options: McpOptions) -> McpHttp:
    """The server of this name or address. Raises UsageError, ConfigurationError (``mcp/server``)."""
    from agentflow.connect.servers import McpHttp
    from agentflow.settings import load_settings

    if name.startswith(("http://", "https://")):
        return McpHttp("server", name)
    every = servers_of(load_settings(), options)
    server = next((each for each in every if each.name == name), None)
    if server is None:
        names = ", ".join([each.name for each in every if isinstance(each, McpHttp)])
        raise UsageError(
            f"no MCP server is called '{name}'",
            hint=f"write its address, or one of: {names}" if names else "write its address: https://example.com/mcp",
        )
    if not isinstance(server, McpHttp):
        raise UsageError(f"the MCP server '{name}' is a command, and nobody signs in to it", hint="give it env=")
    return server


async def _sign_ins(server: McpHttp, port: int) -> UserSignIns:
    check_packages("mcp", extra="mcp")
    from agentflow.cli.shared.own_sign_ins import own_sign_in
    from agentflow.connect.user_sign_ins import UserSignIns
    from agentflow.lib.redact import Redactor

    return UserSignIns([replace(server, credentials=own_sign_in(port))], Redactor(), None)


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
