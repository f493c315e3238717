"""The options of the commands that serve a flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from agentflow.cli.shared.options import FlowOptions, Record


@dataclass(frozen=True, kw_only=True)
class ServeOptions(FlowOptions):
    """The options of the command that serves a flow."""

    export: Annotated[
        list[str] | None,
        typer.Option("--export", metavar="NAME", help="A task, tool or Python workflow to serve (repeatable)."),
    ] = None
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, typer.Option("--port", metavar="NUMBER", min=0, max=65_535, help="The port; 0 picks a free one.")
    ] = 8000
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            help="The keys file, with the limits of each key: TOML. Default: AGENTFLOW_SERVE_KEYS. Without keys only "
            "this machine is served.",
        ),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Another host name of the server (repeatable)."),
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin", metavar="URL", help="A site whose pages may use the server (repeatable). Default: none."
        ),
    ] = None
    programs: Annotated[
        bool,
        typer.Option("--programs", help="Run programs sent by clients, untrusted: they may call what --allow names."),
    ] = False
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="A task or tool that sent programs may call (repeatable)."),
    ] = None
    fleet: Annotated[
        bool,
        typer.Option(
            "--fleet",
            help="Also show, answer and cancel the runs of workers and of other processes with the same --db. With keys, the "
            "key says so: fleet = true.",
        ),
    ] = False
    on_disconnect: Annotated[
        str,
        typer.Option(
            "--on-disconnect",
            metavar="WHAT",
            help="What happens to a run whose chat client disconnects: cancel or continue. Runs of POST /runs continue.",
        ),
    ] = "cancel"
    grace: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", min=0, help="How long runs may continue after Ctrl-C.")
    ] = 10.0
    record: Record = True


@dataclass(frozen=True, kw_only=True)
class McpServeOptions(FlowOptions):
    """The options of the command that is an MCP server."""

    export: Annotated[
        list[str] | None,
        typer.Option(
            "--export", "--task", metavar="NAME", help="A task, tool or Python workflow to offer (repeatable)."
        ),
    ] = None
    run_program: Annotated[
        bool,
        typer.Option(
            "--run-program", help="Offer a tool that runs programs, untrusted: they may call what --allow names."
        ),
    ] = False
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="A task or tool that such programs may call (repeatable)."),
    ] = None
    record: Record = True


__all__ = ["McpServeOptions", "ServeOptions"]
