"""Costs of calls: from the user's own table, or else from ``genai-prices``, which ships its data."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from agentflow.core.call.spending import BATCHED, PriceQuote
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import NANO
from agentflow.core.data.messages import PromptCache, Usage
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers.fallback import FallbackProvider

T = TypeVar("T")

_FRESH_S = 3_600.0
_VENDORS = {"openai-chat": "openai", "bedrock": "aws", "vertex": "google", "foundry": "anthropic"}
_FREE = frozenset({"local", "offline", "scripted"})
HOUR = 1.6
"""Cost of caching a prompt for an hour as a multiple of that for five minutes: twice the input's price instead
of a quarter more. https://platform.claude.com/docs/en/build-with-claude/prompt-caching"""


def batched_cost(cost: float | None) -> float | None:
    """The cost of a call in a batch, from that of an ordinary one; None if that is unknown."""
    return None if cost is None else round(cost * BATCHED * NANO) / NANO


@frozen
class Price:
    """US dollars per million tokens. ``cache_read`` and ``cache_write`` default to the input price.

    Writing to a cache that lasts an hour costs :data:`HOUR` times as much.

    Raises ConfigurationError (``config/price``) for anything but a number of 0 or more.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            optional = value is None and field.name.startswith("cache_")
            if not optional and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise ConfigurationError(
                    f"Price({field.name}={value!r}): a price is a number of US dollars per million tokens",
                    code="config/price",
                    hint="for example Price(input=3, output=15)",
                )

    def cost(self, usage: Usage) -> float:
        """Dollars for ``usage``; its input tokens include cache reads and writes."""
        plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        millionths = (
            max(0, plain) * self.input
            + usage.cache_read_tokens * read
            + (usage.cache_write_tokens + usage.cache_write_1h_tokens * (HOUR - 1)) * write
            + usage.output_tokens * self.output
        )
        return round(millionths * 1_000) / NANO

    def quote(self, input_tokens: int) -> PriceQuote:
        """The most that a call can cost: input is priced as a cache write if more expensive."""
        return PriceQuote(input_tokens * max(self.input, self.cache_write or 0.0) / 1e6, self.output / 1e6)


def read_prices(table: Mapping[str, Any]) -> dict[str, Price]:
    """Parse prices from tables of numbers, the format of the settings. Raises ConfigurationError."""
    names = [field.name for field in fields(Price)]
    prices: dict[str, Price] = {}
    for pattern, price in table.items():
        if isinstance(price, Price):
            prices[pattern] = price
            continue
        if not isinstance(price, Mapping) or not {"input", "output"} <= {*price} <= {*names}:  # pyright: ignore[reportUnknownArgumentType]
            raise ConfigurationError(
                f"the price of {pattern!r} is not a table of {', '.join(names)}",
                code="config/price",
                hint=f'write [prices."{pattern}"] and below it input = 3 and output = 15, dollars per million tokens',
            )
        prices[pattern] = Price(**price)  # pyright: ignore[reportUnknownArgumentType]
    return prices


class Prices:
    """Costs by dialect and model. Implements :class:`~agentflow.core.ports.ports.Pricing`.

    Parameters: ``table`` maps models to :class:`Price`; keys are ``dialect:name``, ``name``, or a pattern of either with
    ``*`` and ``?``; the most specific counts, and it takes precedence over genai-prices. ``offered`` is a table from
    files of another author: it may raise prices, but not lower them, and price unlisted models if it is ``vouched`` for.
    With ``lookup`` false only the tables are used. The dialects ``local``, ``offline`` and ``scripted`` are free unless a table lists
    them.
    """

    def __init__(
        self,
        table: Mapping[str, Price] | None = None,
        *,
        offered: Mapping[str, Price] | None = None,
        vouched: bool = True,
        lookup: bool = True,
    ) -> None:
        self._table = by_specificity(table or {})
        self.offer(offered or {}, vouched=vouched)
        self._lookup = lookup
        self._listings: dict[tuple[str, str], tuple[float, _Listing | None]] = {}
        self._library: Any = None
        self._loading: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    def offer(self, table: Mapping[str, Price], *, vouched: bool) -> None:
        """Use ``table``, from a file of another author, from now on, replacing the one before."""
        self._offered = by_specificity(table)
        self._vouched = vouched

    @property
    def stated(self) -> bool:
        """Whether there is a table."""
        return bool(self._table or self._offered)

    def load(self) -> None:
        """Import genai-prices and its data (0.7 s of CPU): call it on a worker thread.

        Until then, only the tables are used.
        """
        if self._lookup and self._library is None:
            library = importlib.import_module("genai_prices")
            try:
                library.calc_price(library.Usage(input_tokens=1), "gpt-4o", provider_id="openai")
            except LookupError:
                pass  # The call only loads the data; whether it has this model does not matter.
            self._library = library

    async def loaded(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._loading.setdefault(loop, asyncio.Lock()):
            await asyncio.to_thread(self.load)
        self._loading.pop(loop, None)

    async def quote(
        self, adapter: ProviderAdapter, model: str, input_tokens: int, prompt_cache: PromptCache | None = None
    ) -> PriceQuote | None:
        """The most that a call of ``input_tokens`` may cost on its most expensive route; None if a price is unknown."""
        quotes: list[PriceQuote] = []
        for dialect, name in routes_of(adapter, model):
            if (price := most_specific(self._table, dialect, name)) is not None:
                quote = price.quote(input_tokens)
            else:
                if self._lookup and self._library is None and dialect not in _FREE:
                    await self.loaded()
                quote = self._quote(dialect, name, input_tokens)
            if quote is None:
                return None
            quotes.append(quote)
        if len(quotes) == 1 and prompt_cache != "1h":
            return quotes[0]
        dearer = HOUR if prompt_cache == "1h" else 1.0
        return PriceQuote(max([each.input_usd for each in quotes]) * dearer, max([each.output_usd for each in quotes]))

    def batched(self, quote: PriceQuote) -> PriceQuote:
        return PriceQuote(quote.input_usd * BATCHED, quote.output_usd * BATCHED)

    def _quote(self, dialect: str, model: str, tokens: int) -> PriceQuote | None:
        listing = None if self._offered else self._find(dialect, model)
        if listing is not None and listing.price is not None and (listing.up_to is None or tokens <= listing.up_to):
            return listing.price.quote(tokens)
        plain, written, answered = (
            self.cost(dialect, model, usage)
            for usage in (Usage(tokens), Usage(tokens, cache_write_tokens=tokens), Usage(tokens, 1_000_000))
        )
        if plain is None or written is None or answered is None:
            return None
        return PriceQuote(max(plain, written), (answered - plain) / 1e6)

    def cost_of(self, adapter: ProviderAdapter, model: str, usage: Usage) -> float | None:
        """Dollars for ``usage`` on the most expensive route; None if the price of a route is unknown."""
        costs = [self.cost(dialect, name, usage) for dialect, name in routes_of(adapter, model)]
        return None if None in costs else max([cost for cost in costs if cost is not None])

    def unpriced(self, adapter: ProviderAdapter, model: str) -> str:
        for dialect, name in routes_of(adapter, model):
            if self.cost(dialect, name, Usage(1, 1)) is None:
                return name if ":" in name else f"{dialect}:{name or '*'}"
        return model

    def cost(self, dialect: str, model: str, usage: Usage, *, asked: str = "") -> float | None:
        """US dollars for ``usage``; None if the price is unknown.

        ``model`` is the name in the answer; ``asked`` the one in the request, if it differs.
        """
        names = (model,) if asked in ("", model) else (asked, model)
        if self._table and (price := most_specific(self._table, dialect, *names)) is not None:
            return price.cost(usage)
        cost = self._listed(dialect, model, usage)
        if cost is None and len(names) > 1:
            cost = self._listed(dialect, asked, usage)
        if cost is None and dialect in _FREE:
            cost = 0.0
        if self._offered and (cost is not None or self._vouched):
            price = most_specific(self._offered, dialect, *names)
            return cost if price is None else max(price.cost(usage), cost or 0.0)
        return cost

    def _listed(self, dialect: str, model: str, usage: Usage) -> float | None:
        listing = self._find(dialect, model)
        if listing is None:
            return None
        if listing.price is not None and (listing.up_to is None or usage.input_tokens <= listing.up_to):
            return listing.price.cost(usage)
        provider = _VENDORS.get(dialect, dialect)
        total = float(self._calculate(provider, model, usage).total_price)
        if usage.cache_write_1h_tokens:
            written = Usage(usage.input_tokens, cache_write_tokens=usage.input_tokens)
            each = float(self._calculate(provider, model, written).total_price) / usage.input_tokens
            total += usage.cache_write_1h_tokens * each * (HOUR - 1)
        return round(total * NANO) / NANO

    def context_window(self, dialect: str, model: str) -> int | None:
        """The size of the model's context window in tokens; None if the price data does not state it."""
        listing = self._find(dialect, model)
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

    def _find(self, dialect: str, model: str) -> _Listing | None:
        """The library's entry for a model, or None. A look-up takes half a millisecond, so it is cached for an hour."""
        if self._library is None:
            return None
        provider = _VENDORS.get(dialect, dialect)
        key = (provider, model)
        cached = self._listings.get(key)
        now = time.monotonic()
        if cached is not None and now - cached[0] < _FRESH_S:
            return cached[1]
        try:
            listing = _listing_of(self._calculate(provider, model, Usage(input_tokens=1)))
        except LookupError:
            listing = None
        if len(self._listings) > 1_000:
            self._listings.clear()
        self._listings[key] = (now, listing)
        return listing


def routes_of(adapter: ProviderAdapter, model: str) -> Iterable[tuple[str, str]]:
    """``(dialect, model)`` of all models that may answer a call: one, or those of a fallback list."""
    if isinstance(adapter, FallbackProvider):
        return [pair for each, name in adapter.routes for pair in routes_of(each, name or model)]
    profile = adapter.profile(model)
    return ((profile.route or profile.provider, model),)


def by_specificity(table: Mapping[str, T]) -> tuple[tuple[str, T], ...]:
    """The patterns of ``table`` with their values, most specific first: those with the most literal text."""

    def rank(pattern: str) -> tuple[bool, int]:
        literal = len(pattern) - pattern.count("*") - pattern.count("?")
        return literal == len(pattern), literal

    return tuple(sorted(table.items(), key=lambda row: rank(row[0]), reverse=True))


def most_specific(rows: tuple[tuple[str, T], ...], dialect: str, *models: str) -> T | None:
    """The value of the first of ``rows`` with a pattern that matches one of ``models``, alone or after ``dialect:``."""
    for pattern, value in rows:
        for model in models:
            if fnmatchcase(f"{dialect}:{model}", pattern) or fnmatchcase(model, pattern):
                return value
    return None


@frozen
class _Listing:
    """The data of genai-prices about a model.

    ``price`` applies to calls with at most ``up_to`` input tokens (None: to any call); None if it has to be calculated each
    time. ``window`` is the size of the model's context in tokens.
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
