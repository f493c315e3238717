"""Reservations of tokens and money for model calls: the port between the callers and the run's budget."""

from __future__ import annotations

from typing import Protocol

from agentflow.core.data.errors import ConfigurationError, ProviderError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ModelResponse
from agentflow.core.data.provider_errors import (
    CallTimeout,
    ConnectionLost,
    ConnectionRefused,
    ConnectTimeout,
    FirstByteTimeout,
    IdleTimeout,
    IncompleteStream,
    ProtocolError,
)

_UNSENT = (ConnectionRefused, ConnectTimeout)
_UNDERWAY = (FirstByteTimeout, IdleTimeout, CallTimeout, ConnectionLost, IncompleteStream, ProtocolError)


def may_be_billed(error: BaseException) -> bool:
    """Whether the provider was at work on a call that ended with ``error`` before anything had arrived."""
    if isinstance(error, ProviderError):
        return isinstance(error, _UNDERWAY) and not isinstance(error, _UNSENT)
    return not isinstance(error, ConfigurationError)


BATCHED = 0.5
"""The price of a call in a batch as a part of that of an ordinary one, with both vendors."""


@frozen
class PriceQuote:
    """The most that a call may cost: ``input_usd`` dollars for its input, ``output_usd`` for each token of its answer."""

    input_usd: float
    output_usd: float


class Reservation(Protocol):
    """Tokens and money set aside for one call: its estimated input, and ``cap`` tokens of answer.

    ``waits`` says that it has to be awaited with :meth:`granted` first. ``cap`` may be less than was asked for.
    """

    @property
    def waits(self) -> bool: ...
    @property
    def cap(self) -> int: ...
    async def granted(self) -> None:
        """Wait until other calls have given back enough, or none can. Raises LimitExceeded when too little is left."""
        ...

    def check(self, response: ModelResponse) -> None:
        """Raise LimitExceeded, with the partial text, if a lowered cap has cut the answer off."""
        ...

    async def put_by(self, id: str) -> tuple[str, float] | None:
        """Set the purse's part aside under the name ``id`` until the cost is known, also after the end of this process. Returns the
        name and the period of the purse; None without one that a database has."""
        ...

    def free(self) -> None:
        """Return the reservation, once the call is paid for or has failed. Later calls do nothing."""
        ...


class Funds(Protocol):
    """The tokens and money that a run, or a part of it, may still spend. ``priced``: money is limited; ``capped``: money or
    tokens are, so that the answer of a call needs a cap. ``purse`` is the name of the purse that pays, if there is one."""

    @property
    def priced(self) -> bool: ...
    @property
    def capped(self) -> bool: ...
    @property
    def purse(self) -> str | None: ...
    @property
    def usd_left(self) -> float | None:
        """Dollars left to spend; None if there is no limit."""
        ...

    def reserve(
        self,
        input_tokens: int,
        cap: int,
        quote: PriceQuote | None,
        model: str,
        *,
        priority: int = 0,
        exact: bool = False,
        put_by: bool = False,
    ) -> Reservation:
        """Reserve the maximum cost of a call of ``model``, before it is sent; the reservation is freed when the call is
        paid for.

        If it does not fit, it waits for other reservations to be returned, the highest ``priority`` first; without any, its
        output cap is lowered to the rest, unless it is ``exact``. With ``put_by`` the purse's part was set aside before. Raises LimitExceeded when the rest is too small, and
        (``limits/unpriced``) when money is bounded and there is no ``quote``.
        """
        ...
