"""What calls cost: tables of prices, their patterns, and what nobody may lower."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow, Price, ScriptedProvider
from agentflow.core.call.spending import PriceQuote
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import Usage
from agentflow.providers import FallbackProvider, Prices, Router
from agentflow.providers.offline import OfflineProvider
from agentflow.settings import load_settings

ASK = '(defatom ask (params) (instructions "Go.")) (value-of (ask))'
MILLION = Usage(1_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("dialect", "model", "cost"),
    [
        ("anthropic", "claude-x", 1),
        ("anthropic", "claude-x-mini", 2),
        ("anthropic", "other", 3),
        ("openai-chat", "llama3:8b", 4),
        ("openai-chat", "claude-x", 5),
        ("openai", "gpt-none", None),
    ],
)
def test_the_most_specific_pattern_counts(dialect: str, model: str, cost: float | None) -> None:
    """A name goes before patterns, a longer pattern before a shorter; a pattern is of a model, with its dialect or not."""
    table = {
        "anthropic:*": Price(3, 0),
        "anthropic:claude-*": Price(2, 0),
        "anthropic:claude-x": Price(1, 0),
        "*": Price(5, 0),
        "llama3:*": Price(4, 0),
    }
    if cost is None:
        del table["*"]
    assert Prices(table, lookup=False).cost(dialect, model, MILLION) == cost


def test_a_price_for_what_was_asked_is_that_of_the_answer() -> None:
    """Servers answer with the full name of a version: the table is read under the name that was asked for."""
    prices = Prices({"openai:gpt-x": Price(1, 1)}, lookup=False)
    assert prices.cost("openai", "gpt-x-2026-01-01", MILLION) is None
    assert prices.cost("openai", "gpt-x-2026-01-01", MILLION, asked="gpt-x") == 2


def test_an_offered_price_raises_and_names_but_never_lowers() -> None:
    """A table that comes with files can name unknown prices and raise known ones; the host's own table can do all."""
    known = Prices()
    known.load()
    true = known.cost("openai", "gpt-4o", MILLION)
    assert true is not None
    for offered, cost in ((Price(0, 0), true), (Price(true, true), 2 * true)):
        prices = Prices(offered={"openai:*": offered})
        prices.load()
        assert prices.cost("openai", "gpt-4o", MILLION) == pytest.approx(cost)
    prices = Prices({"openai:gpt-4o": Price(1, 1)}, offered={"openai:gpt-4o": Price(9, 9), "openai:new": Price(2, 2)})
    assert (prices.cost("openai", "gpt-4o", MILLION), prices.cost("openai", "new", MILLION)) == (2, 4)


async def test_a_quote_is_the_dearest_route_with_its_cache_written() -> None:
    """Of a fallback list, the dearest input and the dearest output; a price for cache writes where it is dearer."""
    router = Router("anthropic:a", api_key="k", api_keys={"openai": "k"})
    prices = Prices({"anthropic:a": Price(2, 10, cache_write=2.5), "openai:b": Price(1, 20)})
    routes = FallbackProvider([router.resolve(None), router.resolve("openai:b")])
    assert await prices.quote(routes, "a", 1_000_000) == PriceQuote(2.5, 20 / 1e6)
    assert prices.cost_of(routes, "a", MILLION) == 21
    unknown = FallbackProvider([router.resolve(None), router.resolve("openai:no-such-model")])
    assert await prices.quote(unknown, "a", 1) is None and prices.cost_of(unknown, "a", MILLION) is None


async def test_a_quote_is_what_the_price_library_says_of_long_calls() -> None:
    """Prices that depend on the length of the call are those of that length; local models cost nothing."""
    prices = Prices()
    router = Router("anthropic:claude-sonnet-4-5", api_key="k")
    adapter, model = router.resolve(None)
    for tokens in (1_000, 500_000):
        quote = await prices.quote(adapter, model, tokens)
        written = prices.cost("anthropic", model, Usage(tokens, cache_write_tokens=tokens))
        answered = prices.cost("anthropic", model, Usage(tokens, 1_000))
        plain = prices.cost("anthropic", model, Usage(tokens))
        assert quote is not None and None not in (written, answered, plain)
        assert quote.input_usd == pytest.approx(written)
        assert quote.output_usd * 1_000 == pytest.approx((answered or 0) - (plain or 0))
    for free in (OfflineProvider(), ScriptedProvider([])):
        assert await prices.quote(free, "", 1_000) == PriceQuote(0.0, 0.0)


async def test_a_flows_table_is_what_its_runs_cost() -> None:
    """``prices=`` holds for a ready adapter too, whatever the adapter itself says."""
    model = ScriptedProvider([{"text": "yes", "usage": {"input_tokens": 1_000, "output_tokens": 100}}] * 2)
    async with AgentFlow(provider=model, prices={"scripted:*": Price(1_000, 10_000)}) as flow:
        assert (await flow.run(ASK)).cost == pytest.approx(2.0)


def test_prices_in_settings(tmp_path: Path) -> None:
    """``[prices."dialect:glob"]`` is a table of numbers; what is wrong is said with its file and mend."""
    file = tmp_path / "agentflow.toml"
    file.write_text('[prices."openai-chat:*"]\ninput = 1\noutput = 2.5\n')
    assert load_settings(tmp_path, {}).prices == {"openai-chat:*": {"input": 1, "output": 2.5}}
    for wrong, said in (
        ('prices = {"a:b" = 3}', "is not a table"),
        ('prices = {"a:b" = {input = -1, output = 1}}', "-1"),
    ):
        file.write_text(wrong)
        with pytest.raises(ConfigurationError, match=said) as caught:
            load_settings(tmp_path, {})
        assert caught.value.code == "config/price" and str(file) in caught.value.message


@pytest.mark.parametrize("value", [-1, True, "3", float("nan")])
def test_a_price_is_a_number(value: object) -> None:
    """A negative price or none at all is refused where it is made."""
    with pytest.raises(ConfigurationError, match="a price is a number"):
        Price(value, 1)  # type: ignore[arg-type]
