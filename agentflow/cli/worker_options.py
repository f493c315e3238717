"""The options of the commands for many machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from agentflow.cli.options import AsJson, DatabaseOptions, FlowOptions, QueueOptions


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(DatabaseOptions, FlowOptions):
    """The options of the command that does runs of others."""

    slots: Annotated[int, typer.Option("--slots", metavar="NUMBER", min=1, help="Runs that are done at a time.")] = 100
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME[:NUMBER]",
            help="A queue whose runs are done; with a number at most so many at a time, in all workers together "
            "(repeatable). Default: default.",
        ),
    ] = None
    drain: Annotated[
        float,
        typer.Option(
            "--drain",
            metavar="SECONDS",
            min=0,
            help="How long runs may go on after SIGTERM or Ctrl-C; then others go on with them.",
        ),
    ] = 30.0
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Keep the events for agentflow runs. Default: yes.")
    ] = True
    otel: Annotated[
        bool,
        typer.Option(
            "--otel",
            help="Write spans and metrics to the OpenTelemetry SDK of the process: opentelemetry-instrument agentflow ...",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(DatabaseOptions, QueueOptions, FlowOptions):
    """The options of the command that has programs run at certain times."""

    bind: Annotated[
        list[str] | None,
        typer.Option("--bind", "-b", metavar="NAME=VALUE", help="A variable of the program (repeatable)."),
    ] = None
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="Do not trust the program: what it may call (repeatable)."),
    ] = None
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The schedule's name. Default: that of the file.")
    ] = None
    zone: Annotated[str, typer.Option("--zone", metavar="ZONE", help="The time zone of the line of cron's.")] = "UTC"
    remove: Annotated[str | None, typer.Option("--remove", metavar="NAME", help="Remove this schedule.")] = None
    as_json: AsJson = False
