"""What keys have used today, kept beside the durable runs, so that a server that is started anew goes on counting."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time

from agentflow.core.errors import AgentflowError
from agentflow.core.journal import StoredResult
from agentflow.core.store_ports import ResultStore
from agentflow.runtime.reservation import RunPurse
from agentflow.serve.keys import Key

_log = logging.getLogger(__name__)

KEEP_S = 1.0
"""Seconds after which what was used is stored: a server that is killed forgets no more."""
_KIND = "key"


class KeyUse:
    """Loads and stores what keys use, in ``store``; counts in memory alone without one."""

    def __init__(self, store: ResultStore | None) -> None:
        self._store = store
        self._loading = asyncio.Lock()
        self._known: dict[Key, tuple[RunPurse, tuple[int, float]]] = {}

    async def load(self, key: Key) -> None:
        """Have a key go on with what it used today before this server was started. Raises JournalError."""
        purse = key.purse
        if self._store is None or purse is None:
            return
        async with self._loading:
            known = self._known.get(key)
            if known is not None and known[0] is purse:
                return
            before = await self._store.find(_content(key), 0.0)
            if before is not None:
                tokens, usd = before.value
                purse.used_tokens += int(tokens)
                purse.used_usd += float(usd)
            self._known[key] = purse, _used(purse)

    async def keep(self) -> None:
        """Store what was used since the last time. A database that cannot be written is a line in the log."""
        if self._store is None:
            return
        for key, (purse, stored) in list(self._known.items()):
            used = _used(purse)
            if used == stored or key.purse is not purse:  # of yesterday nothing more is asked
                continue
            result = StoredResult(
                kind=_KIND, name=key.name, value=list(used), turns=None, usage=None, cost=None, at=time.time()
            )
            try:
                await self._store.keep(_content(key), result)
            except AgentflowError as error:
                _log.warning("what the key '%s' used is not stored: %s", key.name, error)
            else:
                self._known[key] = purse, used

    async def keep_on(self) -> None:
        """Store it again and again, until cancelled."""
        while True:
            await asyncio.sleep(KEEP_S)
            await self.keep()


def _used(purse: RunPurse) -> tuple[int, float]:
    return purse.used_tokens, purse.used_usd


def _content(key: Key) -> bytes:
    """What a key uses in a day is stored under: a key of the same name with another digest counts for itself."""
    digest = key.rules.digest if key.rules is not None else ""
    return hashlib.blake2b(f"key {key.name} {digest} {key.day}".encode(), digest_size=16).digest()


__all__ = ["KeyUse"]
