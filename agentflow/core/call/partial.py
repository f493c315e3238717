"""The partial values of a form that an error interrupted, for the host that paid for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Any

from agentflow.core.data.errors import AgentflowError, LimitExceeded, ProviderError

MAX_PARTIAL = 1_000
"""Number of values that an error which cut a form has of it."""

CUTTING = (AgentflowError, asyncio.CancelledError)
"""What cuts a form."""


class PartialValues(tuple[Any, ...]):
    """The values of a form that an error interrupted. They are the host's, raw as a run's value is: nobody searches them for secrets,
    no event shows them and no record holds them."""

    __slots__ = ()


def keep_partial(error: BaseException, values: Iterable[Any]) -> None:
    """Attach the ``values`` of a form to the ``error`` that interrupted it, in place of those of a form within it.

    Of a ProviderError ``partial`` is its own text, and of a run that took too much memory there is none: the error would
    keep what has to go.
    """
    if isinstance(error, LimitExceeded) and error.limit == "memory":
        error.partial = ()
    elif not isinstance(error, ProviderError):
        error.partial = PartialValues(islice(values, MAX_PARTIAL))  # pyright: ignore[reportAttributeAccessIssue]


__all__ = ["CUTTING", "MAX_PARTIAL", "PartialValues", "keep_partial"]
