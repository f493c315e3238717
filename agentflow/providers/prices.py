"""What a call costs: from the user's own table, else from ``genai-prices`` (optional extra, data shipped with it)."""

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
        """Dollars for ``usage``. Input tokens include what the cache gave and took."""
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

    Parameters: ``table`` maps model names (``name`` or ``provider:name``) to :class:`Price`; it wins over genai-prices.
    ``lookup`` false keeps to the table.
    """

    def __init__(self, table: Mapping[str, Price] | None = None, *, lookup: bool = True) -> None:
        self._table = dict(table or {})
        self._lookup = lookup
        self._known: dict[tuple[str, str], tuple[float, Any]] = {}
        self._library: Any = None

    def load(self) -> None:
        """Import genai-prices and its data, where installed (0.7 s of CPU): call it on a worker thread.

        Costs are only looked up after this; without it, only the user's table counts.
        """
        if self._lookup and self._library is None and importlib.util.find_spec("genai_prices") is not None:
            library = importlib.import_module("genai_prices")
            try:
                library.calc_price(library.Usage(input_tokens=1), "gpt-4o", provider_id="openai")
            except LookupError:
                pass  # Only the data had to be loaded; which models it has does not matter here.
            self._library = library

    def cost(self, provider: str, model: str, usage: Usage) -> float | None:
        """Dollars for ``usage``, None when the price is not known."""
        price = self._table.get(f"{provider}:{model}") or self._table.get(model)
        if price is not None:
            return price.cost(usage)
        found = self._find(provider, model)
        if isinstance(found, Price):
            return found.cost(usage)
        if found is None:
            return None
        return float(self._calculate(provider, model, usage).total_price)

    def context_window(self, provider: str, model: str) -> int | None:
        """Tokens of the model's context window, where the price data knows them."""
        if self._library is None:
            return None
        try:
            return self._calculate(provider, model, Usage(input_tokens=1)).model.context_window
        except LookupError:
            return None

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

    def _find(self, provider: str, model: str) -> Any:
        """A Price where prices are linear, ``True`` where they are tiered, None where unknown. Kept for an hour."""
        if self._library is None:
            return None
        key = (provider, model)
        known = self._known.get(key)
        now = time.monotonic()
        if known is not None and now - known[0] < _FRESH_S:
            return known[1]
        try:
            found = _linear(self._calculate(provider, model, Usage(input_tokens=1)).model_price)
        except LookupError:
            found = None
        if len(self._known) > 1_000:
            self._known.clear()
        self._known[key] = (now, found)
        return found


def _linear(price: Any) -> Price | bool:
    """One price per token and direction, or True when the price depends on the size of the call."""
    rates = [
        getattr(price, name, None) for name in ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
    ]
    if any(rate is not None and not isinstance(rate, int | float | Decimal) for rate in rates) or None in rates[:2]:
        return True
    values = [None if rate is None else float(rate) for rate in rates]
    return Price(values[0] or 0.0, values[1] or 0.0, values[2], values[3])
