"""Costs of calls: from the user's own table, else from ``genai-prices`` (an optional extra that ships its data)."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agentflow.core.messages import Usage

_FRESH_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. ``cache_read`` and ``cache_write`` default to the input price."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        """Dollars for ``usage``, whose input tokens include cache reads and writes."""
        plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        return (
            max(0, plain) * self.input
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * write
            + usage.output_tokens * self.output
        ) / 1_000_000


class Prices:
    """Costs by provider and model.

    Parameters: ``table`` maps model names (``name`` or ``provider:name``) to :class:`Price`; it takes precedence over
    genai-prices. ``lookup`` false uses only the table.
    """

    def __init__(self, table: Mapping[str, Price] | None = None, *, lookup: bool = True) -> None:
        self._table = dict(table or {})
        self._lookup = lookup
        self._known: dict[tuple[str, str], tuple[float, _Listing | None]] = {}
        self._library: Any = None

    def load(self) -> None:
        """Import genai-prices and its data, if installed (0.7 s of CPU): call it on a worker thread.

        Until then, only the user's table is used.
        """
        if self._lookup and self._library is None and importlib.util.find_spec("genai_prices") is not None:
            library = importlib.import_module("genai_prices")
            try:
                library.calc_price(library.Usage(input_tokens=1), "gpt-4o", provider_id="openai")
            except LookupError:
                pass  # The call only loads the data; whether it has this model does not matter.
            self._library = library

    def cost(self, provider: str, model: str, usage: Usage) -> float | None:
        """Dollars for ``usage``, None if the price is unknown."""
        price = self._table.get(f"{provider}:{model}") or self._table.get(model)
        if price is not None:
            return price.cost(usage)
        listing = self._find(provider, model)
        if listing is None:
            return None
        if listing.price is not None and (listing.up_to is None or usage.input_tokens <= listing.up_to):
            return listing.price.cost(usage)
        return float(self._calculate(provider, model, usage).total_price)

    def context_window(self, provider: str, model: str) -> int | None:
        """Tokens of the model's context window, None if the price data does not say."""
        listing = self._find(provider, model)
        return None if listing is None else listing.window

    def _calculate(self, provider: str, model: str, usage: Usage) -> Any:
        return self._library.calc_price(
            self._library.Usage(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
            ),
            model,
            provider_id=provider,
        )

    def _find(self, provider: str, model: str) -> _Listing | None:
        """What the library has of a model, None if nothing. Looking it up takes half a millisecond: cached for an hour."""
        if self._library is None:
            return None
        key = (provider, model)
        cached = self._known.get(key)
        now = time.monotonic()
        if cached is not None and now - cached[0] < _FRESH_S:
            return cached[1]
        try:
            listing = _listing_of(self._calculate(provider, model, Usage(input_tokens=1)))
        except LookupError:
            listing = None
        if len(self._known) > 1_000:
            self._known.clear()
        self._known[key] = (now, listing)
        return listing


@dataclass(frozen=True, slots=True)
class _Listing:
    """What genai-prices has of a model.

    ``price`` is that of a call with at most ``up_to`` input tokens (None: of any call); None if it has to be calculated
    each time. ``window`` is the size of the model's context in tokens.
    """

    price: Price | None
    up_to: int | None
    window: int | None


_RATES = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


def _listing_of(calculated: Any) -> _Listing:
    rates = [getattr(calculated.model_price, name, None) for name in _RATES]
    starts = [tier.start for rate in rates for tier in getattr(rate, "tiers", ())]
    bases = [getattr(rate, "base", rate) for rate in rates]
    window = calculated.model.context_window
    if None in bases[:2] or not all([base is None or isinstance(base, int | float | Decimal) for base in bases]):
        return _Listing(None, None, window)
    values = [None if base is None else float(base) for base in bases]
    price = Price(values[0] or 0.0, values[1] or 0.0, values[2], values[3])
    return _Listing(price, min(starts, default=None), window)
