"""``agentflow sessions``: stored conversations, of ``run --session`` and ``flow.session``."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from agentflow.cli.shared.common import Exit, moment, print_rows, run_async, write_json, write_out
from agentflow.cli.shared.help_text import HelpGroup
from agentflow.cli.shared.options import AsJson, Database
from agentflow.cli.shared.state import stored_runs
from agentflow.cli.shared.wrapping import say
from agentflow.core.events.journal_rows import SessionInfo
from agentflow.lib.text.safe_text import clean

sessions = typer.Typer(cls=HelpGroup, invoke_without_command=True, help="List or delete stored conversations.")


@sessions.callback()
def list_(
    context: typer.Context,
    db: Database = None,
    limit: Annotated[
        int, typer.Option("-n", "--limit", min=1, metavar="NUMBER", help="Maximum number of conversations.")
    ] = 100,
    json: AsJson = False,
) -> None:
    """List stored conversations, latest change first, with their length and the run that holds each."""
    if context.invoked_subcommand is None:
        sys.exit(run_async(partial(list_sessions, db, limit=limit, as_json=json), as_json=json))


async def list_sessions(db: str | None, *, limit: int, as_json: bool) -> int:
    """Print conversations, one per line or as JSON. Returns the exit code. Raises JournalError."""
    async with stored_runs(db) as flow:
        stored = await flow.store.sessions(limit)
    nothing = "no conversations; agentflow run FILE --session NAME begins one"
    return print_rows(stored, _line, nothing, as_json=as_json)


def _line(each: SessionInfo) -> str:
    run = f"held by {each.run_id}" if each.run_id is not None else ""
    return f"{moment(each.updated)}  {each.exchanges:6}  {each.name}  {run}"


@sessions.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Conversations, as the list names them.")],
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Delete conversations for good.

    Conversations of unfinished runs, and conversations open elsewhere, stay: the command names their holder.
    """
    sys.exit(run_async(partial(delete_sessions, names, db, as_json=json), as_json=json))


async def delete_sessions(names: list[str], db: str | None, *, as_json: bool) -> int:
    """Delete conversations; return the exit code, FAILED if a name does not exist. Raises SessionBusy, JournalError."""
    async with stored_runs(db) as flow:
        deleted = [name for name in names if await flow.store.delete_session(name)]
    missing = [name for name in names if name not in deleted]
    if as_json:
        write_json({"ok": not missing, "deleted": deleted, "missing": missing})
    else:
        write_out("".join([f"deleted {clean(name)}\n" for name in deleted]))
        for name in missing:
            say(f"there is no conversation '{name}'")
    return Exit.FAILED if missing else Exit.OK
