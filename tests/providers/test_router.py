"""From a model's name to its adapter, and clear words when there is none."""

from __future__ import annotations

import subprocess
import sys

import genai_prices
import pytest

from agentflow.app import AgentFlow
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import Usage
from agentflow.providers import Price, Prices, Router, ScriptedProvider, dialects, open_provider
from agentflow.providers.offline import OfflineProvider
from tests.support.children import HANG_S

VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """An environment without credentials."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_each_prefix_finds_its_dialect() -> None:
    """``anthropic:``, ``openai:`` and ``openai-chat:`` name dialects; the rest is the model's own name."""
    router = Router("anthropic:claude-x", api_key="k", api_keys={"openai": "k", "openai-chat": "k"})
    found = {name: router.resolve(name) for name in (None, "openai:gpt-x", "openai-chat:llama3:8b", "claude-y")}
    assert {name: (adapter.profile(bare).dialect, bare) for name, (adapter, bare) in found.items()} == {
        None: ("anthropic.messages", "claude-x"),
        "openai:gpt-x": ("openai.responses", "gpt-x"),
        "openai-chat:llama3:8b": ("openai.chat", "llama3:8b"),
        "claude-y": ("anthropic.messages", "claude-y"),
    }


def test_a_bare_name_may_contain_a_colon() -> None:
    """Local models are called ``llama3:8b``; what stands before the colon is a dialect only when there is one."""
    router = Router("openai-chat:mistral", base_url="http://127.0.0.1:1/v1")
    assert router.resolve("llama3:8b")[1] == "llama3:8b"


def test_one_adapter_a_dialect() -> None:
    """However many models and calls, a dialect has one adapter and so one connection pool."""
    router = Router("openai:a", api_key="k")
    assert router.resolve("openai:a")[0] is router.resolve("openai:b")[0] is router.resolve(None)[0]


def test_an_unknown_dialect_is_named_with_the_nearest() -> None:
    """A misspelt dialect says what it might have been."""
    with pytest.raises(ConfigurationError, match="antropic") as caught:
        Router("antropic:claude")
    assert caught.value.code == "config/unknown-provider"
    assert "anthropic" in (caught.value.hint or "")
    with pytest.raises(ConfigurationError):
        open_provider("nobody")


@pytest.mark.parametrize(
    ("model", "variable"),
    [("anthropic:c", "ANTHROPIC_API_KEY"), ("openai:g", "OPENAI_API_KEY"), ("openai-chat:g", "OPENAI_API_KEY")],
)
def test_a_missing_key_names_its_variable(model: str, variable: str) -> None:
    """Before any network or SDK, the error says which variable is not set."""
    with pytest.raises(ConfigurationError, match=variable) as caught:
        Router(model).resolve(None)
    assert caught.value.code == "config/no-key"
    assert caught.value.reason == "configuration_error"


def test_a_local_server_needs_no_key() -> None:
    """A base URL that is not the vendor's needs none."""
    assert Router("openai-chat:llama", base_url="http://127.0.0.1:1/v1").resolve(None)[1] == "llama"


@pytest.mark.parametrize(
    ("model", "mend"),
    [
        ("gpt-5", "openai:gpt-5"),
        ("claude-sonnet-5-5", "anthropic:claude-sonnet-5-5"),
        ("llama3:8b", "openai-chat:llama3:8b"),
        ("anthropic", "anthropic:name"),
        ("openai:", "openai:name"),
    ],
)
def test_a_flows_model_without_a_dialect_is_refused_when_it_is_built(model: str, mend: str) -> None:
    """Half a model's name is refused before any call, with the whole name to write."""
    for build in (lambda: Router(model), lambda: AgentFlow(model), lambda: Router().check(model)):
        with pytest.raises(ConfigurationError) as caught:
            build()
        assert caught.value.code == "config/no-model"
        assert mend in (caught.value.hint or "")


def test_fallbacks_are_understood_when_the_flow_is_built() -> None:
    """A misspelt dialect of a fallback is not left to the day the first model fails; a bare name is the flow's dialect."""
    with pytest.raises(ConfigurationError, match="antropic"):
        AgentFlow("offline", fallbacks=["antropic:claude"])
    Router("openai:gpt-5", api_key="k").check("gpt-5-mini", "offline")


@pytest.mark.parametrize(
    "url", ["localhost:8080/v1", "notaurl", "http://", "ftp://a/b", "http://a:99999", "http://[::1"]
)
def test_a_base_url_that_is_no_address_is_refused(url: str) -> None:
    """What is not http address of a server is refused when the router is built, not as a lost connection."""
    with pytest.raises(ConfigurationError) as caught:
        Router("openai-chat:m", base_url=url)
    assert caught.value.code == "config/base-url"


def test_a_provider_is_an_adapter() -> None:
    """The name of a model in the place of an adapter is said at once, with what to write instead."""
    with pytest.raises(ConfigurationError, match="is not an adapter") as caught:
        Router(provider="offline")  # pyright: ignore[reportArgumentType]
    assert caught.value.code == "config/provider" and caught.value.hint == "write model='offline'"


@pytest.mark.parametrize(("model", "asked"), [(None, None), (None, "claude-x")])
def test_no_model_is_a_configuration_error(model: str | None, asked: str | None) -> None:
    """Without a model, or with a name that belongs to nobody, the call says how to write one."""
    with pytest.raises(ConfigurationError) as caught:
        Router(model).resolve(asked)
    assert caught.value.code == "config/no-model"
    assert caught.value.hint


def test_a_ready_provider_answers_everything() -> None:
    """A given adapter gets every call, under the name asked for."""
    scripted = ScriptedProvider()
    router = Router("m", provider=scripted)
    assert router.resolve(None) == (scripted, "m")
    assert router.resolve("other") == (scripted, "other")


def test_local_providers_need_neither_name_nor_network() -> None:
    """``offline`` and ``scripted`` are rows of the table like any other; they have no models to name."""
    assert isinstance(Router("offline").resolve(None)[0], OfflineProvider)
    assert isinstance(Router("scripted").resolve(None)[0], ScriptedProvider)
    router = Router("anthropic:x", api_key="k")
    assert isinstance(router.resolve("offline")[0], OfflineProvider), "also beside a flow's own model"
    assert Router("offline").model == "offline"


def test_the_table_is_complete() -> None:
    """All dialects are listed."""
    offline = ("local", "offline")
    assert dialects() == ["anthropic", "bedrock", "foundry", *offline, "openai", "openai-chat", "scripted", "vertex"]


def test_naming_an_adapter_loads_no_sdk() -> None:
    """Making a router and an adapter imports neither SDK nor HTTP client: that waits for the first call."""
    code = (
        "import sys; from agentflow.providers import Router;"
        "r = Router('anthropic:x', api_key='k', api_keys={'openai': 'k'}); r.resolve(None); r.resolve('openai:y');"
        "heavy = {'anthropic', 'openai', 'httpx2', 'aiohttp', 'genai_prices'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S)


def test_a_users_price_wins() -> None:
    """Cache reads and writes have prices of their own; unknown models have none."""
    prices = Prices({"m": Price(2, 10, cache_read=0.2, cache_write=2.5), "openai:n": Price(1, 1)}, lookup=False)
    usage = Usage(1_000_000, 100_000, cache_read_tokens=500_000, cache_write_tokens=100_000, requests=1)
    assert prices.cost("any", "m", usage) == pytest.approx(0.4 * 2 + 0.5 * 0.2 + 0.1 * 2.5 + 0.1 * 10)
    assert prices.cost("openai", "n", usage) == pytest.approx(1.1)
    assert prices.cost("anthropic", "n", usage) is None


def test_prices_come_from_the_price_library() -> None:
    """genai-prices is asked for models the user's table has not, with cache tokens counted apart; never by network."""
    prices = Prices()
    usage = Usage(1_000_000, 0, requests=1)
    assert prices.cost("openai", "gpt-4o", usage) is None, "before it is loaded, nothing is looked up"
    prices.load()
    plain = prices.cost("openai", "gpt-4o", usage)
    cached = prices.cost("openai", "gpt-4o", Usage(1_000_000, 0, cache_read_tokens=1_000_000))
    assert plain is not None and cached is not None and 0 < cached < plain
    assert prices.cost("openai", "no-such-model", usage) is None
    assert (prices.context_window("openai", "gpt-4o") or 0) > 100_000
    assert prices.context_window("openai", "no-such-model") is None


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "claude-3-5-haiku-latest"])
@pytest.mark.parametrize("tokens", [1_000, 200_000, 200_001, 900_000])
def test_a_call_costs_what_the_price_library_says(model: str, tokens: int) -> None:
    """Whatever its size: some models have other prices for long calls, which apply to all of their tokens."""
    provider = "openai" if model.startswith("gpt") else "anthropic"
    usage = Usage(tokens, 500, cache_read_tokens=tokens // 2, cache_write_tokens=tokens // 4)
    prices = Prices()
    prices.load()
    expected = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=tokens, output_tokens=500, cache_read_tokens=tokens // 2, cache_write_tokens=tokens // 4
        ),
        model,
        provider_id=provider,
    )
    assert prices.cost(provider, model, usage) == pytest.approx(float(expected.total_price))
    assert prices.context_window(provider, model) == expected.model.context_window
