"""The inbox of a durable run. Any process stores messages; the one that owns the run reads them.

A message is an open record until the record of what has read it is stored, in the same transaction. So a kill at any point
neither loses a message nor has it read twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import replace
from typing import Any, Protocol

from agentflow.core.call.inbox import Inbox, SaidText, SentSignal, take_in
from agentflow.core.events.journal_rows import AGAIN, SAID, EffectRow, EffectState

LOOK_S = 1.0
"""Seconds between two queries for signals from other processes, while a run at work waits for one."""


class OwnedRecords(Protocol):
    """The records of the run, as far as its inbox needs them: a :class:`~agentflow.durable.run_records.Records`."""

    live: Any
    parking: Any

    async def looked_into(self) -> object: ...
    def commit_soon(self, rows: Sequence[EffectRow]) -> None: ...
    def abandon(self, error: Exception) -> None: ...


class StoredInbox(Inbox):
    """The messages to the run of ``records``, which is open; ``rows`` are those that were unread when this process took it. The process
    adds those that it stores itself (:meth:`receive`)."""

    def __init__(self, records: OwnedRecords, rows: Iterable[EffectRow]) -> None:
        super().__init__()
        self._records = records
        self._rows: dict[str, EffectRow] = {}
        self._run: Any = records.live
        self._waiting: dict[str, list[str]] = {}
        self._run.shared.inbox = self
        for row in rows:
            self.receive(row)

    def receive(self, row: EffectRow) -> None:
        """Take a stored message, once."""
        if row.path not in self._rows:
            self._rows[row.path] = row
            take_in(self._run, message_of(row))

    async def refresh(self) -> None:
        await self._records.looked_into()

    def wake(self, name: str) -> None:
        """Wake the first wait for a signal of this name, if one has come."""
        if self._signals.get(name):
            for path in self._waiting.get(name, ()):
                if self._records.parking.answer(path, None):
                    return

    @contextmanager
    def waiting(self, name: str, path: str) -> Generator[None]:
        """A block in which the effect at ``path`` waits for signals of this name, from other processes too."""
        waiting = self._waiting.setdefault(name, [])
        waiting.append(path)
        # Not a task of the workflow, which would be one of its branches
        looking = asyncio.Task(self._look(), loop=asyncio.get_running_loop(), context=Context())
        try:
            yield
        finally:
            looking.cancel()
            waiting.remove(path)
            self.wake(name)  # perhaps it was woken, and has ended without it

    async def _look(self) -> None:
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                await self.refresh()
        except Exception as error:  # noqa: BLE001 - else the run would wait without end
            self._records.abandon(error)

    def drop(self, signal: SentSignal) -> None:
        self._records.commit_soon(self.read_rows([signal]))

    def read_rows(self, messages: Sequence[SaidText | SentSignal]) -> list[EffectRow]:
        """The records of messages as they are once something has read them."""
        return [replace(self._rows[each.key], state=EffectState.OK, ended=time.time()) for each in messages]

    def unread_again(self, messages: Sequence[SaidText | SentSignal]) -> None:
        """Store messages anew whose reader was cancelled while that was stored."""
        for message in messages:
            path = message.key + AGAIN
            row = self._rows[path] = replace(self._rows[message.key], path=path)
            self._seen.add(path)
            self._records.commit_soon([row])
            again = replace(message, key=path)
            if isinstance(again, SaidText):
                self.put_back([again])
            else:
                self.put_signal_back(again)


def message_of(row: EffectRow) -> SaidText | SentSignal:
    """The message of a stored record."""
    if row.kind == SAID:
        return SaidText(row.path, row.value["text"], row.name or None)
    return SentSignal(row.path, row.value["signal"], row.value["ok"])
