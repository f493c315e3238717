"""Notes in SQLite: user data, kept apart from the index, which can be rebuilt."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import DataError, cut
from agentflow.core.data.labels import NO_SOURCES, UNKNOWN, Sources
from agentflow.core.data.remembered import MAX_KEY, MAX_NOTE, Note, NoteSharing
from agentflow.core.data.session import Session
from agentflow.lib.file_writer import make_private_file
from agentflow.lib.text.terms import Tokeniser

T = TypeVar("T")

_BUSY_S = 5.0
_SCHEMA = """
create table if not exists af_note(seq integer primary key, id text not null unique, scope text not null, key text,
  text text not null, created real not null, updated real not null);
create index if not exists af_note_scope on af_note(scope, updated);
create unique index if not exists af_note_key on af_note(scope, key) where key is not null;
create virtual table if not exists af_note_terms using fts5(t, tokenize='ascii');
create table if not exists af_note_source(note text not null, source text not null, primary key(note, source)) without rowid;
"""
_FIELDS = "n.id, n.scope, n.text, n.key, n.created, n.updated"


class NoteBook:
    """The notes in one database, of all scopes.

    Parameters: ``database`` is the file, readable by its owner only (None: in memory); ``redact`` removes secrets from stored
    text. Every method raises DataError: ``notes/database`` if the file cannot be used. Close it with :meth:`aclose`.
    """

    def __init__(self, database: Path | None, *, redact: Callable[[str], str] = str) -> None:
        self._path = database
        self._redact = redact
        self._db: sqlite3.Connection | None = None
        self._tokeniser = Tokeniser(20_000)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentflow-notes")

    async def add(self, scope: str, text: str, key: str | None = None, sources: Sources = NO_SOURCES) -> Note:
        """Store a note. A note with the same key in its scope is replaced; equal texts without a key are stored once.

        ``sources`` are where the text and the key came from; a text stored again has those of all times.

        Raises DataError: ``notes/size`` for an empty or overlong text or key.
        """
        text = self._redact(text)
        key = None if key is None else self._redact(key)
        _check(text, key)

        def work(db: sqlite3.Connection) -> Note:
            now = time.time()
            where, value = ("key", key) if key is not None else ("key is null and text", text)
            held = db.execute(f"select seq, id from af_note where scope = ? and {where} = ?", (scope, value)).fetchone()
            if held is not None:
                if key is not None:
                    db.execute("delete from af_note_source where note = ?", (held[1],))
                self._put_sources(db, held[1], sources)
                return self._change(db, held[1], text, now)
            note = Note(secrets.token_hex(4), scope, text, key, now, now)
            row = db.execute(
                "insert into af_note(id, scope, key, text, created, updated) values (?, ?, ?, ?, ?, ?)",
                (note.id, scope, key, text, now, now),
            ).lastrowid
            self._put_terms(db, row, text, key)
            self._put_sources(db, note.id, sources)
            return note

        return await self._run(work)

    async def sources(self, notes: Sequence[Note]) -> Sources:
        """The sources of notes, other than the user."""

        def work(db: sqlite3.Connection) -> Sources:
            query = "select source from af_note_source where note = ?"
            return frozenset([row[0] for note in notes for row in db.execute(query, (note.id,))])

        return await self._run(work)

    def _put_sources(self, db: sqlite3.Connection, note: str, sources: Sources) -> None:
        db.executemany("insert or ignore into af_note_source values (?, ?)", [(note, each) for each in sources])

    async def edit(self, note: str, text: str) -> Note:
        """Replace the text of the note with this id. Raises DataError: ``notes/unknown``, ``notes/size``."""
        text = self._redact(text)
        _check(text, None)

        def work(db: sqlite3.Connection) -> Note:
            db.execute("delete from af_note_source where note = ?", (note,))  # the new text is the user's
            return self._change(db, note, text, time.time())

        return await self._run(work)

    def _change(self, db: sqlite3.Connection, note: str, text: str, now: float) -> Note:
        row = db.execute("select seq, key from af_note where id = ?", (note,)).fetchone()
        if row is None:
            raise _unknown(note)
        db.execute("update af_note set text = ?, updated = ? where seq = ?", (text, now, row[0]))
        db.execute("delete from af_note_terms where rowid = ?", (row[0],))
        self._put_terms(db, row[0], text, row[1])
        return Note(*db.execute(f"select {_FIELDS} from af_note n where n.id = ?", (note,)).fetchone())

    def _put_terms(self, db: sqlite3.Connection, row: int | None, text: str, key: str | None) -> None:
        terms = " ".join(self._tokeniser.terms(f"{key or ''} {text}"))
        db.execute("insert into af_note_terms(rowid, t) values (?, ?)", (row, terms))

    async def forget(self, notes: Sequence[str]) -> int:
        """Delete the notes with these ids, all or none; returns their number. Raises DataError: ``notes/unknown``."""

        def work(db: sqlite3.Connection) -> int:
            for note in dict.fromkeys(notes):
                row = db.execute("select seq from af_note where id = ?", (note,)).fetchone()
                if row is None:
                    raise _unknown(note)
                db.execute("delete from af_note where seq = ?", row)
                db.execute("delete from af_note_terms where rowid = ?", row)
                db.execute("delete from af_note_source where note = ?", (note,))
            return len(set(notes))

        return await self._run(work)

    async def clear(self, scope: str | None = None) -> int:
        """Delete the notes of a scope (None: of all); returns their number."""

        def work(db: sqlite3.Connection) -> int:
            where, values = ("", ()) if scope is None else (" where scope = ?", (scope,))
            db.execute(f"delete from af_note_terms where rowid in (select seq from af_note{where})", values)
            db.execute(f"delete from af_note_source where note in (select id from af_note{where})", values)
            return db.execute(f"delete from af_note{where}", values).rowcount

        return await self._run(work)

    async def search(self, scope: str | None, question: str, limit: int = 10) -> list[Note]:
        """The notes of a scope (None: of all) that share words with ``question``, best first."""

        def work(db: sqlite3.Connection) -> list[Note]:
            terms = self._tokeniser.query_terms(question)
            if not terms:
                return []
            wanted = " OR ".join(f'"{term}"' for term in terms)
            rows = db.execute(
                f"select {_FIELDS}, bm25(af_note_terms) from af_note_terms join af_note n on n.seq = af_note_terms.rowid"
                " where af_note_terms match ? and (? is null or n.scope = ?) order by 7, n.updated desc limit ?",
                (wanted, scope, scope, limit),
            ).fetchall()
            best = min((row[6] for row in rows), default=-1.0) or -1.0
            return [Note(*row[:6], score=round(min(1.0, max(0.0, row[6] / best)), 4)) for row in rows]

        return await self._run(work)

    async def notes(self, scope: str | None = None, limit: int = 1_000) -> list[Note]:
        """The notes of a scope (None: of all), latest change first."""

        def work(db: sqlite3.Connection) -> list[Note]:
            where, values = ("", ()) if scope is None else (" where n.scope = ?", (scope,))
            rows = db.execute(
                f"select {_FIELDS} from af_note n{where} order by n.updated desc, n.seq desc limit ?", (*values, limit)
            )
            return [Note(*row) for row in rows]

        return await self._run(work)

    async def aclose(self) -> None:
        """Close the database and its thread."""
        if self._db is not None:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._db.close)
            self._db = None
        self._worker.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._transaction, work)

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            db = self._db or self._open()
            db.execute("begin immediate")
            try:
                result = work(db)
                db.execute("commit")
                return result
            finally:
                if db.in_transaction:
                    db.execute("rollback")
        except (sqlite3.Error, OSError) as error:
            raise DataError(
                f"the notes in {self._path or 'memory'} cannot be used: {error}",
                code="notes/database",
                hint="notes are your data, so a damaged file is left as it is: repair it with sqlite3, or move it away",
            ) from error

    def _open(self) -> sqlite3.Connection:
        if self._path is not None:
            make_private_file(self._path)
        db = sqlite3.connect(self._path or ":memory:", isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
        try:
            db.execute("pragma journal_mode = wal")
            db.executescript(_SCHEMA)
        except BaseException:  # also when interrupted: no connection stays open without an owner
            db.close()
            raise
        self._db = db
        return db


class FlowNotes:
    """The notes of a flow: :class:`~agentflow.core.ports.memory_ports.NotePort`.

    Parameters: ``sharing`` is ``session`` (a note is found again in its conversation) or ``flow`` (in every run); ``home``
    is the owner of the flow's notes (its root); ``book`` holds lasting notes; ``passing`` those of unnamed conversations,
    which cannot be continued.
    """

    def __init__(self, sharing: NoteSharing, home: str, book: NoteBook, passing: NoteBook) -> None:
        self.sharing = sharing
        self.book = book
        self._home = home
        self._passing = passing

    async def remember(self, text: str, key: str | None, call: CallContext) -> Note:
        """Store a note, with where it came from as far as the flow follows that. Raises DataError."""
        book, scope = self._of(call.session)
        return await book.add(scope, text, key, UNKNOWN if call.reading is None else call.reading.sources)

    async def recall(self, question: str, limit: int, call: CallContext) -> list[Note]:
        book, scope = self._of(call.session)
        notes = await (book.search(scope, question, limit) if question.strip() else book.notes(scope, limit))
        if call.reading is not None:
            call.reading.add(await book.sources(notes))
        return notes

    def _of(self, session: Session) -> tuple[NoteBook, str]:
        if self.sharing == "flow":
            return self.book, f"flow:{self._home}"
        return (self.book if session.named else self._passing), f"session:{session.scope}"

    async def aclose(self) -> None:
        """Close the databases."""
        await self.book.aclose()
        await self._passing.aclose()


def _check(text: str, key: str | None) -> None:
    if not text.strip() or (key is not None and not key.strip()):
        raise DataError("the text or the key of a note must not be empty", code="notes/size")
    if len(text) > MAX_NOTE or len(key or "") > MAX_KEY:
        raise DataError(
            f"a note has at most {MAX_NOTE:,} characters, and its key {MAX_KEY}; these have {len(text):,} and {len(key or '')}",
            code="notes/size",
            hint="shorten it, or write a file",
        )


def _unknown(note: str) -> DataError:
    return DataError(
        f"there is no note '{cut(note, 40)}'", code="notes/unknown", hint="agentflow memory lists them with their ids"
    )
