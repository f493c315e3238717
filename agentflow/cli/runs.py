"""``agentflow runs``: what earlier runs did, and what may be done with them.

Each command here parses its options, calls one function and exits with its code; without one the runs are listed.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from agentflow.cli.common import run_async
from agentflow.cli.options import AsJson, Database, ForkOptions, takes_options

runs = typer.Typer(invoke_without_command=True, help="List earlier runs, newest first, or look at one.")


@runs.callback()
def list_runs(
    context: typer.Context,
    directory: Annotated[
        str | None, typer.Option("--dir", metavar="DIR", help="Where the event files are. Default: the demo's.")
    ] = None,
    db: Database = None,
    durable: Annotated[bool, typer.Option("--durable", help="List durable runs, those of the command.")] = False,
    json: AsJson = False,
) -> None:
    """List earlier runs, newest first.

    By their event files, or with --durable or --db those of a database.
    """
    if context.invoked_subcommand is not None:
        return
    from agentflow.cli.run_list import list_durable, list_recorded

    if durable or db is not None:
        sys.exit(run_async(partial(list_durable, db, as_json=json), as_json=json))
    sys.exit(list_recorded(directory, as_json=json))


@runs.command("fork")
@takes_options
def fork(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a durable run.")], options: ForkOptions
) -> None:
    """Carry a durable run out again from one effect on, beside it, and print the value.

    The effect at the path and what started after it had ended run again; all else is answered from its records.
    """
    from agentflow.cli.durable import fork_run

    sys.exit(run_async(partial(fork_run, run, options), as_json=options.as_json or options.events))
