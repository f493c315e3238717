"""Daily use of keys, stored beside the durable runs, so that a restarted server continues counting."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import added
from agentflow.core.events.journal import StoredResult
from agentflow.core.ports.store_ports import ResultStore
from agentflow.run.reservation import RunPurse
from agentflow.serve.keys import Key

_log = logging.getLogger(__name__)

KEEP_S = 1.0
"""Seconds between two stores of the use: the most that a killed server forgets."""
_KIND = "key"


class KeyUse:
    """Loads and stores the use of keys in ``store``; without a store, the use is counted in memory only."""

    def __init__(self, store: ResultStore | None) -> None:
        self._store = store
        self._loading = asyncio.Lock()
        self._stored: dict[Key, tuple[RunPurse, tuple[int, float]]] = {}

    async def load(self, key: Key) -> None:
        """Add the stored use of a key today, from before this server started. Raises JournalError."""
        purse = key.purse
        if self._store is None or purse is None:
            return
        async with self._loading:
            loaded = self._stored.get(key)
            if loaded is not None and loaded[0] is purse:
                return
            before = await self._store.find(_content(key), 0.0)
            if before is not None:
                tokens, usd = before.value
                purse.used_tokens += int(tokens)
                purse.used_usd = added(purse.used_usd, float(usd)) or 0.0
            self._stored[key] = purse, _used(purse)

    async def keep(self) -> None:
        """Store the use that changed since the last time. A database error is logged as a warning."""
        if self._store is None:
            return
        for key, (purse, stored) in list(self._stored.items()):
            used = _used(purse)
            if used == stored or key.purse is not purse:  # yesterday's use is no longer needed
                continue
            result = StoredResult(
                kind=_KIND, name=key.name, value=list(used), turns=None, usage=None, cost=None, at=time.time()
            )
            try:
                await self._store.keep(_content(key), result)
            except AgentflowError as error:
                _log.warning("the use of the key '%s' cannot be stored: %s", key.name, error)
            else:
                self._stored[key] = purse, used

    async def keep_storing(self) -> None:
        """Store the use repeatedly, until cancelled."""
        while True:
            await asyncio.sleep(KEEP_S)
            await self.keep()


def _used(purse: RunPurse) -> tuple[int, float]:
    return purse.used_tokens, purse.used_usd


def _content(key: Key) -> bytes:
    """The content hash under which the daily use is stored: a key with the same name but another digest counts separately."""
    digest = key.rules.digest if key.rules is not None else ""
    return hashlib.blake2b(f"key {key.name} {digest} {key.day}".encode(), digest_size=16).digest()
