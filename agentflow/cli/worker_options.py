"""The options of the commands for many machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from agentflow.cli.options import DatabaseOptions, FlowOptions


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
