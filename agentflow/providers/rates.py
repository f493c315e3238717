"""Limits on requests and tokens per minute in this process, by the generic cell rate algorithm.

Each model key has the time when its past calls would be paid off at its rate. A call may start when that time is at
most a burst ahead, and moves it by its own cost. Tokens count by estimate at the start of a call and by usage at its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.limits import Rate
from agentflow.lib.event_loop import WaitQueue
from agentflow.providers.prices import by_specificity, most_specific

BURST_S = 6.0
"""Seconds of a rate that may be spent at once; one request always may."""
_MINUTE = 60.0
_REQUESTS = (b"anthropic-ratelimit-requests-limit", b"x-ratelimit-limit-requests")
_TOKENS = (b"anthropic-ratelimit-tokens-limit", b"x-ratelimit-limit-tokens")


def read_rates(table: Mapping[str, Any]) -> dict[str, Rate]:
    """Parse rates from tables of numbers, the format of the settings. Raises ConfigurationError."""
    names = ("requests_per_min", "tokens_per_min")
    rates: dict[str, Rate] = {}
    for pattern, rate in table.items():
        if not isinstance(rate, Rate) and not (isinstance(rate, Mapping) and {*rate} <= {*names}):  # pyright: ignore[reportUnknownArgumentType]
            raise ConfigurationError(
                f"the rate of {pattern!r} is not a table of {' and '.join(names)}",
                code="config/rate",
                hint=f'write [rates."{pattern}"] and below it requests_per_min = 60',
            )
        rates[pattern] = rate if isinstance(rate, Rate) else Rate(**rate)  # pyright: ignore[reportUnknownArgumentType]
    return rates


class RateTable:
    """Rates by model key (``dialect:model``) or pattern. Of each of ``tables`` the most specific counts, and of these the lowest."""

    def __init__(self, *tables: Mapping[str, Rate]) -> None:
        self._tables = [by_specificity(table) for table in tables if table]

    def __bool__(self) -> bool:
        return bool(self._tables)

    @property
    def counts_tokens(self) -> bool:
        """Whether any model has a rate of tokens."""
        return any([rate.tokens_per_min for rows in self._tables for _, rate in rows])

    def of(self, key: str) -> Rate | None:
        """The rate of a model; None if it has none."""
        dialect, _, model = key.partition(":")
        rates = [rate for rows in self._tables if (rate := most_specific(rows, dialect, model)) is not None]
        if not rates:
            return None
        return Rate(
            requests_per_min=_least([each.requests_per_min for each in rates]),
            tokens_per_min=_least([each.tokens_per_min for each in rates]),
        )


def _least(values: Iterable[float | None]) -> float | None:
    return min([each for each in values if each is not None], default=None)


class Bucket:
    """The used requests and tokens of one model key; times are seconds of the caller's clock."""

    __slots__ = ("_burst_s", "_held", "_request_at", "_request_s", "_token_at", "_token_s")

    def __init__(self, rate: Rate, burst_s: float = BURST_S) -> None:
        self._burst_s = burst_s
        self._request_s = _MINUTE / rate.requests_per_min if rate.requests_per_min else 0.0
        self._token_s = _MINUTE / rate.tokens_per_min if rate.tokens_per_min else 0.0
        self._request_at = self._token_at = self._held = 0.0

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of the rate that a request and a token cost."""
        return self._request_s, self._token_s

    def delay(self, now: float) -> float:
        """Seconds until a call may start; 0 if it may start now."""
        request = self._request_at - max(0.0, self._burst_s - self._request_s)
        return max(0.0, request - now, self._token_at - self._burst_s - now, self._held - now)

    def take(self, now: float, tokens: int) -> None:
        """Count a call that starts at ``now`` with about ``tokens``."""
        self._request_at = max(now, self._request_at) + self._request_s
        self._token_at = max(now, self._token_at) + tokens * self._token_s

    def correct(self, tokens: int) -> None:
        """Count ``tokens`` more (or fewer, if negative) for a call that has started."""
        self._token_at += tokens * self._token_s

    def hold(self, until: float) -> None:
        """Start nothing before the time ``until``."""
        self._held = max(self._held, until)

    def lower(self, requests_per_min: float | None, tokens_per_min: float | None) -> None:
        """Apply the limits that a server states, where they are lower."""
        if requests_per_min:
            self._request_s = max(self._request_s, _MINUTE / requests_per_min)
        if tokens_per_min:
            self._token_s = max(self._token_s, _MINUTE / tokens_per_min)


class RateQueue(WaitQueue[int]):
    """The calls that wait for one bucket on one event loop."""

    __slots__ = ("timer",)

    def __init__(self) -> None:
        super().__init__()
        self.timer: asyncio.TimerHandle | None = None


class ProcessRates:
    """The :class:`~agentflow.core.ports.ports.RateLimiter` of one process.

    Parameters: ``rates``, a table or several as one; every key is counted separately. ``clock`` returns seconds.
    """

    def __init__(self, rates: Mapping[str, Rate] | RateTable, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates if isinstance(rates, RateTable) else RateTable(rates)
        self._clock = clock
        self._buckets: dict[str, Bucket | None] = {}
        self._queues: dict[tuple[str, asyncio.AbstractEventLoop], RateQueue] = {}

    def _bucket(self, key: str) -> Bucket | None:
        try:
            return self._buckets[key]
        except KeyError:
            rate = self._rates.of(key)
            bucket = self._buckets[key] = None if rate is None else Bucket(rate)
            return bucket

    def ready(self, key: str, tokens: int) -> bool:
        bucket = self._bucket(key)
        if bucket is None:
            return True
        now = self._clock()
        if (key, asyncio.get_running_loop()) in self._queues or bucket.delay(now):
            return False
        bucket.take(now, tokens)
        return True

    async def take(self, key: str, tokens: int, priority: int = 0) -> None:
        """Wait until a call with about ``tokens`` may start, and count it. Higher ``priority`` starts first."""
        bucket = self._bucket(key)
        if bucket is None:
            return
        queue_key = (key, asyncio.get_running_loop())
        queue = self._queues.setdefault(queue_key, RateQueue())
        admitted = queue.join(tokens, priority)
        self._serve(queue_key, queue, bucket)
        try:
            await admitted
        except asyncio.CancelledError:
            self._serve(queue_key, queue, bucket)
            raise

    def _serve(self, queue_key: tuple[str, asyncio.AbstractEventLoop], queue: RateQueue, bucket: Bucket) -> None:
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None

        def goes(tokens: int) -> bool | None:
            now = self._clock()
            delay = bucket.delay(now)
            if delay:
                queue.timer = queue_key[1].call_later(delay, self._serve, queue_key, queue, bucket)
                return None
            bucket.take(now, tokens)
            return True

        queue.serve(goes)
        if queue.timer is not None:
            return
        if self._queues.get(queue_key) is queue:
            del self._queues[queue_key]

    def correct(self, key: str, tokens: int) -> None:
        if (bucket := self._bucket(key)) is not None:
            bucket.correct(tokens)

    def hold(self, key: str, seconds: float) -> None:
        if (bucket := self._bucket(key)) is not None:
            bucket.hold(self._clock() + seconds)

    def learn(self, key: str, headers: Mapping[bytes, bytes]) -> None:
        if (bucket := self._bucket(key)) is not None:
            bucket.lower(*allowed(headers))


def allowed(headers: Mapping[bytes, bytes]) -> tuple[float | None, float | None]:
    """The requests and tokens per minute that an answer's headers allow; None where they do not say."""
    return _number(headers, _REQUESTS), _number(headers, _TOKENS)


def _number(headers: Mapping[bytes, bytes], names: tuple[bytes, ...]) -> float | None:
    for name in names:
        text = headers.get(name, b"")
        if text.isdigit() and len(text) < 16:
            return float(text)
    return None
