"""The options of the commands that serve a flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from agentflow.cli.options import FlowOptions


@dataclass(frozen=True, kw_only=True)
class ServeOptions(FlowOptions):
    """The options of the command that serves a flow."""

    export: Annotated[
        list[str] | None,
        typer.Option("--export", metavar="NAME", help="A task, tool or Python workflow to serve (repeatable)."),
    ] = None
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, typer.Option("--port", metavar="NUMBER", min=0, max=65_535, help="The port; 0 takes a free one.")
    ] = 8000
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            help="The keys that may ask, and their limits: TOML. Default: AGENTFLOW_SERVE_KEYS. Without keys only this "
            "machine is served.",
        ),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Another name by which the server is reached (repeatable)."),
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", metavar="URL", help="A site whose pages may ask (repeatable). Default: none."),
    ] = None
    programs: Annotated[
        bool,
        typer.Option("--programs", help="Run programs that are sent, untrusted: they may call what --allow names."),
    ] = False
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="A task or tool that sent programs may call (repeatable)."),
    ] = None
    on_disconnect: Annotated[
        str,
        typer.Option(
            "--on-disconnect",
            metavar="WHAT",
            help="What becomes of a run whose chat client goes away: cancel or continue. Runs of POST /runs go on.",
        ),
    ] = "cancel"
    grace: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", min=0, help="How long runs may go on after Ctrl-C.")
    ] = 10.0
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Keep the events for agentflow runs. Default: yes.")
    ] = True


@dataclass(frozen=True, kw_only=True)
class McpServeOptions(FlowOptions):
    """The options of the command that is an MCP server."""

    export: Annotated[
        list[str] | None,
        typer.Option(
            "--export", "--task", metavar="NAME", help="A task, tool or Python workflow that is a tool (repeatable)."
        ),
    ] = None
    run_program: Annotated[
        bool,
        typer.Option("--run-program", help="A tool that runs programs, untrusted: they may call what --allow names."),
    ] = False
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="A task or tool that such programs may call (repeatable)."),
    ] = None
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Keep the events for agentflow runs. Default: yes.")
    ] = True


__all__ = ["McpServeOptions", "ServeOptions"]
