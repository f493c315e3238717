"""The purses of evaluations: their rows in the database have an end, so that they do not stay for good."""

from __future__ import annotations

import time

from agentflow.core.data.allowances import Allowance, PurseGrant, PurseUse, Spending
from agentflow.core.ports.store_ports import PurseStore

CONTINUED_S = 30 * 86_400.0
"""Seconds for which an evaluation can be continued under one limit, from its first call on; its purse is forgotten some time after."""


class EndingPurses:
    """The :class:`~agentflow.core.ports.store_ports.PurseStore` ``store``, with an end for purses that have a single period.

    The end that a purse was opened with stays. The store removes the rows of purses that ended long ago.
    """

    def __init__(self, store: PurseStore) -> None:
        self._store = store

    async def lease(
        self, name: str, starts: float, ends: float | None, allowance: Allowance, asked: Spending
    ) -> PurseGrant:
        return await self._store.lease(name, starts, _end(ends), allowance, asked)

    async def settle(self, name: str, starts: float, ends: float | None, spent: Spending, number: int) -> None:
        await self._store.settle(name, starts, _end(ends), spent, number)

    async def look(self, name: str, starts: float) -> PurseUse:
        return await self._store.look(name, starts)

    async def list(self, now: float) -> list[PurseUse]:
        return await self._store.list(now)


def _end(ends: float | None) -> float:
    return time.time() + CONTINUED_S if ends is None else ends
