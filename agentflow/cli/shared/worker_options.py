"""The options of the commands for many machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from agentflow.cli.shared.options import AsJson, DatabaseOptions, FlowOptions, Otel, QueueOptions, Record


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
    zone: Annotated[str, typer.Option("--zone", metavar="ZONE", help="The time zone of CRON.")] = "UTC"
    remove: Annotated[str | None, typer.Option("--remove", metavar="NAME", help="Remove this schedule.")] = None
    as_json: AsJson = False
