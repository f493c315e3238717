"""Decides whether a failed model call is retried, and how long to wait before."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from agentflow.core.data.errors import ConfigurationError, ProviderError
from agentflow.core.data.frozen import frozen
from agentflow.lib.option_table import policy_of


@frozen(kw_only=True)
class RetryPolicy:
    """Retries of one model call: at most ``attempts`` in all, only before any part of the answer was delivered.

    The wait before attempt n + 1 is ``base_s`` * 2 ** (n - 1), at most ``cap_s`` seconds, less a random part of up to
    half. A server's ``retry-after`` replaces it, up to ``retry_after_cap_s`` and the call's remaining time; if the server
    asks for more, the call fails at once with ``error.retry_after`` set.
    Raises ConfigurationError for ``attempts`` below 1 or negative seconds.
    """

    attempts: int = 4
    base_s: float = 0.5
    cap_s: float = 8.0
    retry_after_cap_s: float = 60.0

    def __post_init__(self) -> None:
        seconds = (self.base_s, self.cap_s, self.retry_after_cap_s)
        numbers = all([type(each) in (int, float) and each >= 0 for each in seconds])
        if not numbers or type(self.attempts) is not int or self.attempts < 1:
            raise ConfigurationError(
                f"{self}: attempts are a whole number of 1 or more, and seconds are not negative", code="config/retry"
            )

    def wait(self, error: ProviderError, number: int, remaining_s: float | None) -> float | None:
        """Seconds to wait after attempt ``number`` failed with ``error``; None if there must not be another.

        ``remaining_s`` is the call's remaining time (None: unbounded).
        """
        if number >= self.attempts or not error.retryable:
            return None
        if error.retry_after is not None:
            wait = error.retry_after
            if wait > self.retry_after_cap_s:
                return None
        else:
            # Jitter keeps calls that failed together from retrying together.
            wait = min(self.cap_s, self.base_s * 2 ** (number - 1)) * (0.5 + random.random() / 2)
        return None if remaining_s is not None and wait >= remaining_s else wait


def retry_of(stated: RetryPolicy | Mapping[str, Any] | None) -> RetryPolicy:
    """The policy as stated, whole or by name over the usual one. Raises ConfigurationError (``config/retry``; ``config/option`` for a
    name that there is not)."""
    return policy_of(RetryPolicy, "retry", stated)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds a response asks to wait: ``retry-after-ms``, or ``retry-after`` as seconds or date (RFC 9110, 10.2.3).

    None if the header is missing, invalid or in the past.
    """
    for name, unit in (("retry-after-ms", 1_000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if not text or len(text) > 100:
            continue
        try:
            seconds = float(text) / unit
        except ValueError:
            seconds = _seconds_until(text)
        if seconds is not None and 0 < seconds < float("inf"):
            return seconds
    return None


def _seconds_until(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError, OSError):
        return None
