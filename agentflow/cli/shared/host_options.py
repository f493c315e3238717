"""Options of commands that work for others: workers, schedules and servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from agentflow.cli.shared.options import (
    AsJson,
    DatabaseOptions,
    FlowOptions,
    Otel,
    Purse,
    QueueOptions,
    Record,
    Variables,
)


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(DatabaseOptions, FlowOptions):
    """The options of the command that executes runs of others."""

    slots: Annotated[
        int, typer.Option("--slots", metavar="NUMBER", min=1, help="Maximum number of concurrent runs.")
    ] = 100
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME[:NUMBER]",
            help="A queue to work on; with a number, the maximum of concurrent runs in all workers together "
            "(repeatable). Default: default.",
        ),
    ] = None
    drain: Annotated[
        float,
        typer.Option(
            "--drain",
            metavar="SECONDS",
            min=0,
            help="How long runs may continue after SIGTERM or Ctrl-C; then other workers resume them.",
        ),
    ] = 30.0
    record: Record = True
    otel: Otel = False


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(DatabaseOptions, QueueOptions, FlowOptions):
    """The options of the command that schedules programs."""

    purse: Purse = None
    bind: Variables = None
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="Do not trust the program: it may call only NAME (repeatable)."),
    ] = None
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The schedule's name. Default: that of the file.")
    ] = None
    zone: Annotated[str, typer.Option("--zone", metavar="ZONE", help="The time zone of CRON.")] = "UTC"
    remove: Annotated[str | None, typer.Option("--remove", metavar="NAME", help="Remove this schedule.")] = None
    as_json: AsJson = False


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
            "--allow-origin", metavar="URL", help="Let pages of this site use the server (repeatable). Default: none."
        ),
    ] = None
    programs: Annotated[
        bool,
        typer.Option(
            "--programs", help="Run programs sent by clients, untrusted: they may call only the names in --allow."
        ),
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
            help="When a chat client disconnects, its run can cancel or continue. Runs of POST /runs continue.",
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
            "--run-program", help="Offer a tool that runs untrusted programs: they may call only the names in --allow."
        ),
    ] = False
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="A task or tool that such programs may call (repeatable)."),
    ] = None
    record: Record = True
