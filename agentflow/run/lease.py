"""What a run takes of the money and the tokens that it shares with the runs of its branches, on whatever machines.

A run takes what a call lacks before the call is sent, and gives back what is left when it makes no call. Where there is no
more while others are making calls, it asks again: calls usually cost less than was set aside for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from agentflow.core.events.journal import Leased

ASK_AGAIN_S = 0.2
"""Seconds after which a run asks again for what others may have given back."""


class Lender(Protocol):
    """What a run takes from, and gives back to."""

    def lease(self, usd: float, tokens: int) -> asyncio.Future[Leased]:
        """Set US dollars and tokens aside."""
        ...

    def give_back(self, usd: float, tokens: int) -> None:
        """End all that was set aside, of which so much was not spent."""
        ...


class Lease:
    """The share of one purse: ``usd`` and ``tokens`` are the limits of all that share (None: none).

    ``add`` adds what was taken to the purse, and lets those that wait for it go on.
    """

    __slots__ = ("_again", "_asked_for", "_given", "_lender", "_none_for", "_pending", "tokens", "usd")

    def __init__(
        self, lender: Lender, usd: float | None, tokens: int | None, add: Callable[[float, int], None]
    ) -> None:
        self.usd = usd
        self.tokens = tokens
        self._lender = lender
        self._given = add
        self._pending: asyncio.Future[Leased] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._asked_for: object = None
        self._none_for: object = None

    def asks(self, call: object, usd: float, tokens: int) -> bool:
        """Ask for what ``call`` lacks, unless there was not enough for it when that was asked; False then."""
        if self._pending is not None or self._again is not None:
            return True
        if call is self._none_for:
            return False
        self._asked_for = call
        self._pending = self._lender.lease(usd, tokens)
        self._pending.add_done_callback(self._answered)
        return True

    def give_back(self, usd: float, tokens: int) -> None:
        """End all that was taken, of which so much was not spent."""
        self._none_for = None
        self._lender.give_back(usd, tokens)

    def _answered(self, future: asyncio.Future[Leased]) -> None:
        self._pending = None
        failed = future.cancelled() or future.exception() is not None  # the store stops the run then
        leased = Leased(usd=0.0, tokens=0) if failed else future.result()
        if leased.later:
            self._again = asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._ask_again)
        else:
            self._none_for = self._asked_for
            self._given(leased.usd, leased.tokens)

    def _ask_again(self) -> None:
        self._again = None
        self._given(0.0, 0)


__all__ = ["Lease", "Lender"]
