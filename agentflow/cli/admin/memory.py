"""``agentflow memory``: lets people see and change the notes that programs and models had remembered."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from agentflow.cli.shared.common import Exit, UsageError, run_async, write_json, write_out
from agentflow.cli.shared.help_text import HelpGroup
from agentflow.cli.shared.options import AsJson, Root
from agentflow.cli.shared.wrapping import say
from agentflow.lib.text.safe_text import clean

if TYPE_CHECKING:
    from agentflow.core.data.remembered import Note
    from agentflow.memory.notes import NoteBook

memory = typer.Typer(cls=HelpGroup, invoke_without_command=True, help="List, add, edit or forget remembered notes.")

Database = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        help="The database of the notes, as sqlite:///runs.db. Default: the command's own, which also has the notes of other runs.",
    ),
]
Scope = Annotated[
    str | None, typer.Option("--scope", metavar="SCOPE", help="Only the notes of this scope, as the list names it.")
]


@contextlib.asynccontextmanager
async def _book(db: str | None) -> AsyncGenerator[NoteBook, None]:
    from agentflow.arguments import notes_file
    from agentflow.lib.redact import Redactor
    from agentflow.memory.notes import NoteBook

    book = NoteBook(notes_file(db), redact=Redactor.from_environment(os.environ).redact)
    try:
        yield book
    finally:
        await book.aclose()


@memory.callback()
def list_notes(context: typer.Context, scope: Scope = None, db: Database = None, json: AsJson = False) -> None:
    """List remembered notes, latest change first."""
    if context.invoked_subcommand is None:
        sys.exit(run_async(lambda: show_notes(None, scope, db, as_json=json), as_json=json))


@memory.command("search")
def search(
    query: Annotated[str, typer.Argument(metavar="WORDS", help="What to look for.")],
    scope: Scope = None,
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Find the notes a question is about, best first."""
    sys.exit(run_async(lambda: show_notes(query, scope, db, as_json=json), as_json=json))


async def show_notes(query: str | None, scope: str | None, db: str | None, *, as_json: bool) -> int:
    """Print notes, one per line or as JSON. Returns the exit code. Raises DataError (``notes/database``)."""
    async with _book(db) as book:
        notes = await (book.notes(scope) if query is None else book.search(scope, query, 100))
    if as_json:
        from agentflow.core.data.values import plain

        write_json({"ok": True, "notes": plain(notes)})
        return Exit.OK
    for note in notes:
        write_out(_line(note))
    if not notes:
        say("nothing is remembered" if query is None else "nothing found")
    return Exit.OK


def _line(note: Note) -> str:
    when = datetime.fromtimestamp(note.updated).strftime("%Y-%m-%d %H:%M")
    key = f"[{note.key}] " if note.key is not None else ""
    return " ".join(clean(f"{note.id}  {when}  {note.scope}  {key}{note.text}").splitlines()) + "\n"


@memory.command("add")
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to remember.")],
    key: Annotated[str | None, typer.Option("--key", metavar="NAME", help="Replaces the note of this key.")] = None,
    root: Root = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="SCOPE", help="The scope of the note. Default: the root's flow.")
    ] = None,
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Remember a text for the flows of a directory."""

    whose = scope or f"flow:{os.path.realpath(root or '.')}"

    async def work() -> int:
        async with _book(db) as book:
            note = await book.add(whose, text, key)
        _print_note(note, json)
        return Exit.OK

    sys.exit(run_async(work, as_json=json))


@memory.command("edit")
def edit(
    note: Annotated[str, typer.Argument(metavar="ID", help="The note, as the list names it.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Its new text.")],
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Replace the text of a note."""

    async def work() -> int:
        async with _book(db) as book:
            _print_note(await book.edit(note, text), json)
        return Exit.OK

    sys.exit(run_async(work, as_json=json))


def _print_note(note: Note, as_json: bool) -> None:
    if as_json:
        from agentflow.core.data.values import plain

        write_json({"ok": True, "note": plain(note)})
    else:
        write_out(_line(note))


@memory.command("forget")
def forget(
    notes: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Notes, as the list names them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All notes, of the scope if one is given.")] = False,
    scope: Scope = None,
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Delete notes for good."""

    async def work() -> int:
        if bool(notes) == everything:
            raise UsageError(
                "say which notes to forget", hint="agentflow memory forget ID..., or --all, --all --scope SCOPE"
            )
        async with _book(db) as book:
            count = await (book.clear(scope) if everything else book.forget(notes or []))
        if json:
            write_json({"ok": True, "forgotten": count})
        else:
            say(f"{count} note{'' if count == 1 else 's'} forgotten")
        return Exit.OK

    sys.exit(run_async(work, as_json=json))
