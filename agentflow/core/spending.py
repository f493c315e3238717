"""What model calls may still cost: the ports between those who make calls, who know prices and who keep the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentflow.core.call import CallContext
    from agentflow.core.messages import ModelResponse, Usage
    from agentflow.core.ports import ProviderAdapter


@dataclass(frozen=True, slots=True)
class Quote:
    """The most that a call may cost: ``input_usd`` dollars for its input, ``output_usd`` for each token of its answer."""

    input_usd: float
    output_usd: float


class Pricing(Protocol):
    """Who knows what calls cost."""

    async def quote(self, adapter: ProviderAdapter, model: str, input_tokens: int) -> Quote | None:
        """What a call of ``input_tokens`` may cost at its dearest route; None if a route's price is unknown."""
        ...

    def cost_of(self, adapter: ProviderAdapter, model: str, usage: Usage) -> float | None:
        """Dollars for ``usage`` at the dearest route; None if a route's price is unknown."""
        ...


class Reservation(Protocol):
    """Tokens and money set aside for one call: its estimated input, and ``cap`` tokens of answer.

    ``lowered`` says that ``cap`` is less than was asked for, because no more was left.
    """

    @property
    def cap(self) -> int: ...
    @property
    def lowered(self) -> bool: ...
    def cut_off(self, response: ModelResponse) -> bool:
        """Whether the answer has been cut off by the lowered cap."""
        ...

    def cut(self, response: ModelResponse) -> Exception:
        """The LimitExceeded for an answer that was cut off so; it carries the partial text."""
        ...

    def free(self) -> None:
        """Give back what was set aside, once the call is paid for or has failed. Later calls do nothing."""
        ...


class Purse(Protocol):
    """What a run, or a part of it, may still spend of tokens and money. ``priced`` says that money is among them."""

    @property
    def priced(self) -> bool: ...
    async def reserve(
        self, input_tokens: int, cap: int, quote: Quote | None, model: str, call: CallContext
    ) -> Reservation:
        """Set aside what a call of ``model`` may take at most, before it is sent; free it when the call is paid for.

        If it does not fit, this waits for other calls to give back; when there are none, the cap is lowered to what is
        left. Raises LimitExceeded when that is too little, and (``limits/unpriced``) when money is bounded and there is
        no ``quote``.
        """
        ...
