"""Rate limits shared by several processes; each asks a common store for its share."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from agentflow.core.data.limits import Rate
from agentflow.core.ports.store_ports import RateShare, RateStore
from agentflow.providers.rates import BURST_S, Bucket, RateQueue, RateTable, allowed

AT_ONCE = 20
"""Maximum number of calls asked for at once, so that a process does not take the shares of others."""
AWAY_S = 5.0
"""Seconds that a process uses its last share before it asks an unreachable store again."""
_LEAST_S = 0.005
_MOST_S = 0.5
"""Maximum seconds before a waiting process asks again: another one may have returned part of its share."""

_log = logging.getLogger(__name__)
_QueueKey: TypeAlias = tuple[str, asyncio.AbstractEventLoop]


class _RateKey:
    """One model key: its rate, and this process's share while the store is unreachable."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.bucket = Bucket(rate)
        self.own: Bucket | None = None
        self.away_until = 0.0
        self.processes = 1

    def leave(self, until: float) -> None:
        """Use this process's share until the time ``until``."""
        self.away_until = until
        if self.own is None:
            requests, tokens = [60.0 / each if each else None for each in self.bucket.seconds]
            share = self.processes
            self.own = Bucket(
                Rate(requests_per_min=requests and requests / share, tokens_per_min=tokens and tokens / share),
                burst_s=BURST_S / share,
            )


class FleetRates:
    """The :class:`~agentflow.core.ports.ports.RateLimiter` of all processes that share ``store``.

    Parameters as for :class:`~agentflow.providers.rates.ProcessRates`. If the store cannot be reached, each process continues
    at its last share of the rate.
    """

    def __init__(
        self, rates: Mapping[str, Rate] | RateTable, store: RateStore, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rates = rates if isinstance(rates, RateTable) else RateTable(rates)
        self._store = store
        self._clock = clock
        self._keys: dict[str, _RateKey | None] = {}
        self._queues: dict[_QueueKey, RateQueue] = {}
        self._asking: set[_QueueKey] = set()

    def _key(self, name: str) -> _RateKey | None:
        try:
            return self._keys[name]
        except KeyError:
            rate = self._rates.of(name)
            key = self._keys[name] = None if rate is None else _RateKey(rate)
            return key

    def ready(self, key: str, tokens: int) -> bool:
        """Whether a call may start without asking the store: only if its key has no rate."""
        return self._key(key) is None

    async def take(self, key: str, tokens: int, priority: int = 0) -> None:
        """Wait until a call with about ``tokens`` may start, and count it. Higher ``priority`` starts first."""
        state = self._key(key)
        if state is None:
            return
        queue_key = (key, asyncio.get_running_loop())
        queue = self._queues.setdefault(queue_key, RateQueue())
        admitted = queue.join(tokens, priority)
        self._serve(queue_key, queue, state)
        await admitted

    def _serve(self, queue_key: _QueueKey, queue: RateQueue, key: _RateKey) -> None:
        """Ask the store for the waiting calls, unless a request is under way or scheduled."""
        if queue_key in self._asking or queue.timer is not None:
            return
        if queue.first() is None:
            if self._queues.get(queue_key) is queue:
                del self._queues[queue_key]
        elif key.away_until > self._clock():
            self._serve_alone(queue_key, queue, key)
        else:
            waiting = sorted([entry[:4] for entry in queue.entries if not entry[4].done()])[:AT_ONCE]
            self._asking.add(queue_key)
            asked = self._store.share(queue_key[0], key.bucket.seconds, BURST_S, [entry[3] for entry in waiting])
            asked.add_done_callback(partial(self._served, queue_key, queue, key))

    def _served(self, queue_key: _QueueKey, queue: RateQueue, key: _RateKey, asked: asyncio.Future[RateShare]) -> None:
        self._asking.discard(queue_key)
        share = self._answer(key, asked)
        if share is not None:
            left = share.calls

            def goes(tokens: int) -> bool | None:
                nonlocal left
                left -= 1
                return True if left >= 0 else None

            if left:
                queue.serve(goes)
            if share.delay:
                self._later(queue_key, queue, key, share.delay)
        self._serve(queue_key, queue, key)

    def _serve_alone(self, queue_key: _QueueKey, queue: RateQueue, key: _RateKey) -> None:
        own = key.own
        assert own is not None

        def goes(tokens: int) -> bool | None:
            delay = own.delay(self._clock())
            if delay:
                self._later(queue_key, queue, key, delay)
                return None
            own.take(self._clock(), tokens)
            return True

        queue.serve(goes)
        self._serve(queue_key, queue, key)

    def _later(self, queue_key: _QueueKey, queue: RateQueue, key: _RateKey, delay: float) -> None:
        def look() -> None:
            queue.timer = None
            self._serve(queue_key, queue, key)

        queue.timer = queue_key[1].call_later(min(max(_LEAST_S, delay), _MOST_S), look)

    def _answer(self, key: _RateKey, asked: asyncio.Future[RateShare]) -> RateShare | None:
        """The answer of the store; None if it could not be reached."""
        if asked.cancelled():
            return None
        error = asked.exception()
        if error is None:
            share = asked.result()
            key.processes, key.own = share.processes, None
            return share
        if key.own is None:
            _log.warning("the shared rates are unreachable: %s; this process continues at its share of them", error)
        key.leave(self._clock() + AWAY_S)
        return None

    def correct(self, key: str, tokens: int) -> None:
        state = self._key(key)
        if state is not None and state.rate.tokens_per_min is not None and tokens:
            self._tell(key, state, more=tokens)

    def hold(self, key: str, seconds: float) -> None:
        """Start no call of ``key`` for ``seconds``, in any process: the server has refused one."""
        state = self._key(key)
        if state is not None and seconds > 0:
            self._tell(key, state, hold=seconds)

    def _tell(self, key: str, state: _RateKey, more: int = 0, hold: float = 0.0) -> None:
        if state.own is not None:
            state.own.correct(more)
            state.own.hold(self._clock() + hold)
        if state.away_until <= self._clock():
            shared = self._store.share(key, state.bucket.seconds, BURST_S, (), more, hold)
            shared.add_done_callback(partial(self._answer, state))

    def learn(self, key: str, headers: Mapping[bytes, bytes]) -> None:
        if (state := self._key(key)) is not None:
            state.bucket.lower(*allowed(headers))
