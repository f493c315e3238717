"""Stored sessions: loading, locking and saving them, for runs of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from agentflow.core.data.errors import ConfigurationError, JournalError, SessionBusy, cut
from agentflow.core.data.session import Session
from agentflow.core.events.journal_rows import RunRow, SessionChanges, SessionInfo, session_held
from agentflow.core.ports.store_ports import SessionStore
from agentflow.durable.values.codec import Codec
from agentflow.durable.values.record_values import fingerprint
from agentflow.lib.redact import Redactor
from agentflow.lib.redacted_copy import redacted

_PAUSE_S = 0.05
_NAME_CHARS = 200


class Conversations:
    """The stored sessions of one flow.

    ``codec`` encodes their stored form, ``redactor`` removes secrets from it.
    """

    def __init__(self, store: SessionStore, codec: Codec, redactor: Redactor | None) -> None:
        self.store = store
        self.open: dict[str, LastingSession] = {}
        self._codec = codec
        self._redactor = redactor

    def session(self, name: str, wait_s: float, keep_partial: bool = False) -> LastingSession:
        """The session called ``name``, to be opened. Raises ConfigurationError (``config/session``)."""
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"a session has a name of 1 to {_NAME_CHARS} characters, not {cut(str(name), 80)!r}",
                code="config/session",
                hint="for example flow.session('user-42')",
            )
        if self._redactor is not None and self._redactor.finds(name):
            raise ConfigurationError(
                "the name of the session contains a secret, and names are shown and stored as they are",
                code="config/session",
                hint="choose a name without a secret, or use a digest of the secret",
            )
        return LastingSession(self, name, wait_s, keep_partial)

    def write(self, changes: dict[str, Any]) -> SessionChanges:
        """Encode changes of a session (see :meth:`Session.changes_since`) for the store."""
        rest = {name: self._stored(value) for name, value in changes.items() if name not in ("turns", "reset")}
        turns = [self._stored(each) for each in changes.get("turns", ())]
        return SessionChanges(turns=turns, state=rest, reset="reset" in changes)

    def apply(self, stored: SessionChanges, session: Session) -> None:
        """Apply changes that :meth:`write` encoded to ``session``."""
        changes = {name: self._codec.decode(value) for name, value in stored.state.items()}
        turns = [self._codec.decode(each) for each in stored.turns]
        session.apply({**changes, "turns": turns, "reset": stored.reset})

    def mark(self, session: Session | None) -> list[Any]:
        """The identity of ``session`` as an input of a run: its name, or its content."""
        if session is None:
            return []
        return [name_of(session) or fingerprint("session", session.whole()).hex()]

    def opening(self, session: Session | None) -> tuple[dict[str, Any] | None, list[Any]]:
        """The stored form of a new run's session, and the number of exchanges in it."""
        if session is None:
            return None, []
        scope = session.scope if session.named else None
        changes = self.write(session.whole())
        return {
            "name": name_of(session),
            "scope": scope,
            "exchanges": len(changes.turns),
            "state": changes.state,
        }, changes.turns

    async def list(self, limit: int) -> list[SessionInfo]:
        """At most ``limit`` stored sessions, the last changed first. Raises JournalError."""
        return await self.store.list(limit)

    async def remove(self, name: str, wait_s: float) -> bool:
        """Delete the session called ``name``; false if there is none. Raises SessionBusy if it is in use for ``wait_s`` seconds."""
        lasting = self.session(name, wait_s)
        async with lasting as session:
            removed = await self.store.remove(name)
            session.reset()
            session.data_context = None
            lasting.forget()
        return removed

    async def copy(self, row: RunRow) -> Session | None:
        """A copy of a run's session as it was before the run; None if the run has none. Raises JournalError."""
        opening: dict[str, Any] | None = row.input.get("session")
        if opening is None:
            return None
        return RunSession(self, Session(scope=opening["scope"]), await self._before(row), None).session

    async def _before(self, row: RunRow) -> SessionChanges:
        """The session of a run as it was before the run. Raises JournalError (``durable/corrupt``)."""
        opening: dict[str, Any] = row.input["session"]
        exchanges = await self.store.opening(row.run)
        if len(exchanges) != opening["exchanges"]:
            raise JournalError(
                f"the database of durable runs is damaged: the conversation before the run '{row.run}' is missing",
                code="durable/corrupt",
            )
        return SessionChanges(turns=exchanges, state=opening["state"])

    def with_changes(self, result: dict[str, Any] | None, run: RunRow, changes: SessionChanges | None) -> Any:
        """The stored result of a run, with its changes of an unstored session."""
        opening = run.input.get("session")
        if changes is None or opening is None or opening["name"] is not None:
            return result
        return {**(result or {}), "session": _data(changes)}

    def ended(self, row: RunRow, session: Session | None) -> None:
        """Apply to the caller's ``session`` the changes of a run that had already ended."""
        if session is not None and row.result is not None and "session" in row.result:
            self.apply(_changes(row.result["session"]), session)

    async def begin(self, row: RunRow, target: Session | None) -> RunSession | None:
        """The session of a run being started or resumed; None if the run has none.

        ``target`` is the caller's session, which changes when the run has ended. Raises SessionBusy, and JournalError
        (``durable/session``) for a run that has ended if its session was used since.
        """
        opening: dict[str, Any] | None = row.input.get("session")
        if opening is None:
            return None
        before = await self._before(row)
        if opening["name"] is not None:
            target = await self._held(opening["name"], row.run)
        elif target is not None:
            target.acquire()
        return RunSession(self, Session(scope=opening["scope"]), before, target)

    async def _held(self, name: str, run: str) -> Session:
        """Acquire the session called ``name`` for a run: the one open here, or one opened for the run."""
        lasting = self.open.get(name)
        if lasting is None:
            async with LastingSession(self, name, 0.0) as session:
                session.acquire()  # so it stays open when the block ends
        else:
            session = lasting.session
            session.acquire()
        try:
            holder, last = await self.store.runs(name)
            if run != (holder or last):
                raise JournalError(
                    f"the session '{name}' was used again after the run '{run}' ended",
                    code="durable/session",
                    hint="start another run in it",
                )
        except BaseException:  # also when cancelled: the session is free and stored again
            session.release()
            if session.keeper is not None:
                await session.keeper.keep()
            raise
        return session

    def _stored(self, data: Any) -> Any:
        written = self._codec.encode(data)
        return written if self._redactor is None else redacted(written, self._redactor)


class LastingSession:
    """A stored session: ``async with flow.session(name) as session``.

    The block owns the session: no other process can use it meanwhile, but several runs in the block may. Messages of a run
    are stored when that run ends, all other changes at the end of the block.
    """

    def __init__(self, conversations: Conversations, name: str, wait_s: float, keep_partial: bool = False) -> None:
        self.name = name
        self._keep_partial = keep_partial
        self.session = Session()
        self._mark = self.session.mark()
        self._all = conversations
        self._wait_s = wait_s
        self._left = True
        self._storing = asyncio.Lock()

    async def __aenter__(self) -> Session:
        """The session as it was last stored. Raises SessionBusy while another process or block uses it, and JournalError."""
        store = self._all.store
        end = asyncio.get_running_loop().time() + self._wait_s
        while (stored := await store.open(self.name)) is None:
            if asyncio.get_running_loop().time() >= end:
                raise SessionBusy(
                    f"the session '{self.name}' is in use, here or in another process",
                    hint=f"wait for it: flow.session({self.name!r}, wait_s=30)",
                )
            await asyncio.sleep(_PAUSE_S)
        session = self.session = Session(scope=self.name, keep_partial=self._keep_partial)
        self._all.apply(SessionChanges(turns=stored.turns, state=stored.state), session)
        self._mark = session.mark()
        self._left = False
        self._all.open[self.name] = self
        session.keeper = self
        return session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        if not self.session.busy:  # else the run that uses it stores and releases it
            await self.keep()

    async def begin(self) -> None:
        """Check that a run may begin. Raises SessionBusy while a durable run uses the session, JournalError (``session/closed``)
        after the block."""
        if self._left:
            raise JournalError(
                f"the session '{self.name}' is closed",
                code="session/closed",
                hint="use it within its block: async with flow.session(name) as session",
            )
        holder, _ = await self._all.store.runs(self.name)
        if holder is not None:
            raise session_held(self.name, holder)

    async def keep(self) -> None:
        """Store additions in their order; after the block, release the session too."""
        changes = self.session.changes_since(self._mark)
        self._mark = self.session.mark()
        try:
            if changes is not None:
                async with self._storing:
                    await self._all.store.change(self.name, self._all.write(changes))
        finally:
            if self._left and not self.session.busy and self._all.open.get(self.name) is self:
                del self._all.open[self.name]
                self._all.store.close(self.name)

    def forget(self) -> None:
        """Treat the session's present content as stored."""
        self._mark = self.session.mark()

    def follow(self, changes: SessionChanges) -> None:
        """Apply already stored changes."""
        self._all.apply(changes, self.session)
        self._mark = self.session.mark()


class RunSession:
    """The session of a durable run: ``session`` begins with the content stored with the run.

    ``target`` is the caller's session, or the stored one: changed when the run has ended.
    """

    def __init__(
        self, conversations: Conversations, session: Session, opening: SessionChanges, target: Session | None
    ) -> None:
        self.session = session
        conversations.apply(opening, self.session)
        self._mark = self.session.mark()
        self._all = conversations
        self._target = target
        self._before = None if target is None else target.mark()
        self._opening = opening

    def changes(self, *, again: bool) -> SessionChanges:
        """The changes of the run so far; with ``again``, for a run that had ended before, they replace those it made then."""
        added = self._all.write(self.session.changes_since(self._mark) or {})
        if not again:
            return added
        turns = added.turns if added.reset else [*self._opening.turns, *added.turns]
        before = {"data_context": None, "compaction": None, **self._opening.state}
        return SessionChanges(turns=turns, state={**before, **added.state}, reset=True)

    async def end(self, changes: SessionChanges | None) -> None:
        """Release the target session, with ``changes`` applied if the run has ended."""
        target = self._target
        if target is None:
            return
        try:
            if changes is not None and isinstance(target.keeper, LastingSession):
                target.keeper.follow(changes)
            elif changes is not None:
                if self._before is not None and target.changes_since(self._before) is not None:
                    state = {name: value for name, value in changes.state.items() if name != "compaction"}
                    changes = replace(changes, state=state)  # a summary would stand for exchanges of other runs
                self._all.apply(changes, target)
        finally:
            target.release()
            if target.keeper is not None:
                await target.keeper.keep()


def _data(changes: SessionChanges) -> dict[str, Any]:
    return {"turns": changes.turns, "state": changes.state, "reset": changes.reset}


def _changes(data: Mapping[str, Any]) -> SessionChanges:
    """The data that :func:`_data` wrote."""
    return SessionChanges(turns=data["turns"], state=data["state"], reset=data["reset"])


def name_of(session: Session) -> str | None:
    """The name of a stored session; None for any other."""
    return session.keeper.name if isinstance(session.keeper, LastingSession) else None
