"""The table of dialects, and the router from model names to adapters. Loads nothing before it is used."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from agentflow.core.data.errors import AgentflowError, ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ModelDelta, ModelProfile, ModelRequest, Waiting
from agentflow.core.data.provider_errors import RateLimited
from agentflow.core.ports.ports import ProviderAdapter, RateLimiter
from agentflow.lib.text.suggest import suggest
from agentflow.providers.clocks import Clocks, clocks_of
from agentflow.providers.dialects.address import check_base_url
from agentflow.providers.dialects.retry import RetryPolicy, retry_of
from agentflow.providers.dialects.traits import Traits, stated_traits
from agentflow.providers.dialects.wire import estimate_tokens
from agentflow.providers.http_adapter import AdapterOptions
from agentflow.providers.prices import Prices

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


@frozen(kw_only=True)
class Provider:
    """Options of the adapter that a flow builds for its ``model``: ``AgentFlow("openai-chat:m", provider=Provider(retry={"attempts": 2}))``.

    Each is a mapping of some fields, which override those of the settings, or a whole object of its class.

    Attributes:
        traits: the API of the model server, if unknown or different: ``{"limit_field": "max_completion_tokens"}``
            (:class:`Traits`).
        clocks: time limits of a call to that server, in seconds: ``{"first_byte_s": 900}``
            (:class:`~agentflow.providers.Clocks`).
        retry: how often, and after how long a wait, to repeat a failed call: ``{"attempts": 2}``
            (:class:`~agentflow.providers.RetryPolicy`).
    """

    traits: Mapping[str, Any] | Traits | None = None
    clocks: Mapping[str, Any] | Clocks | None = None
    retry: Mapping[str, Any] | RetryPolicy | None = None


class PricedProvider:
    """Passes every call on to ``adapter`` and sets the cost of answers that ``prices`` lists. Implements ``ProviderAdapter``."""

    def __init__(self, adapter: ProviderAdapter, prices: Prices) -> None:
        self._adapter = adapter
        self._prices = prices

    def profile(self, model: str) -> ModelProfile:
        """The profile of the adapter."""
        return self._adapter.profile(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Make one model call; the response includes its cost."""
        async with aclosing(self._adapter.stream(request)) as deltas:
            async for delta in deltas:
                response = delta.response
                if response is not None:
                    profile = self._adapter.profile(request.model)
                    dialect, model = profile.route or profile.provider, response.model or request.model
                    cost = self._prices.cost(dialect, model, response.usage, asked=request.model)
                    if cost is not None:
                        delta = ModelDelta(response=replace(response, cost_usd=cost))
                yield delta

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens as counted by the adapter."""
        return await self._adapter.count_tokens(request)

    async def aclose(self) -> None:
        """Close the adapter."""
        await self._adapter.aclose()


class PacedProvider:
    """Passes every call on to ``adapter`` once ``rates`` admits it. Implements ``ProviderAdapter``."""

    def __init__(self, adapter: ProviderAdapter, rates: RateLimiter) -> None:
        self._adapter = adapter
        self._rates = rates

    def profile(self, model: str) -> ModelProfile:
        """The profile of the adapter."""
        return self._adapter.profile(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Make one model call, after waiting for the rate."""
        rates = self._rates
        profile = self._adapter.profile(request.model)
        key = f"{profile.route or profile.provider}:{request.model}"
        tokens = request.input_tokens or estimate_tokens(request)
        if not rates.ready(key, tokens):
            yield ModelDelta(wait=Waiting("rate"))
            await rates.take(key, tokens, request.priority)
            yield ModelDelta(wait=Waiting("rate", True))
        try:
            async with aclosing(self._adapter.stream(request)) as deltas:
                async for delta in deltas:
                    if delta.response is not None:
                        rates.correct(key, delta.response.usage.total_tokens - tokens)
                    yield delta
        except RateLimited as error:
            rates.hold(key, error.retry_after or 0.0)
            raise

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens as counted by the adapter."""
        return await self._adapter.count_tokens(request)

    async def aclose(self) -> None:
        """Close the adapter."""
        await self._adapter.aclose()


KEY_VARIABLE = "AGENTFLOW_API_KEY"
"""The variable with the key of the server that a flow's ``base_url`` names."""
ENTRY_POINTS = "agentflow.providers"
"""Entry point group of factories that take the keywords of :func:`open_provider` and return a ProviderAdapter."""


@frozen
class Dialect:
    """A row of the table: ``module`` and ``factory`` of its adapter, its key check, prefixes of its vendor's models.

    ``key_check`` (``module:function``) raises if the key is missing. A dialect without one runs on this machine, and needs no
    model name. ``families`` serve hints only; ``takes_options`` says that the factory has the parameters of an HttpAdapter.
    """

    module: str
    factory: str
    key_check: str | None = None
    families: tuple[str, ...] = ()
    takes_options: bool = True


_BUILT_IN: Mapping[str, Dialect] = MappingProxyType(
    {
        "anthropic": Dialect("anthropic", "AnthropicProvider", "anthropic:check_key", ("claude",)),
        "bedrock": Dialect("clouds", "BedrockProvider", "clouds:check_bedrock", ("anthropic.", "us.anthropic.")),
        "foundry": Dialect("clouds", "FoundryProvider", "clouds:check_foundry"),
        "local": Dialect("local_model", "LocalProvider"),
        "offline": Dialect("offline", "OfflineProvider", takes_options=False),
        "openai": Dialect(
            "openai", "OpenAIResponsesProvider", "dialects.openai_wire:check_key", ("gpt-", "o1", "o3", "o4")
        ),
        "openai-chat": Dialect("openai", "OpenAIChatProvider", "dialects.openai_wire:check_key"),
        "scripted": Dialect("scripted", "ScriptedProvider", takes_options=False),
        "vertex": Dialect("clouds", "VertexProvider", "clouds:check_vertex"),
    }
)


class RouterSettings(TypedDict):
    """The keywords of :class:`Router` that a flow's settings have."""

    base_url: str | None
    settings: dict[str, Any] | None
    traits: Mapping[str, Any] | None
    clocks: Mapping[str, Any]
    retry: Mapping[str, Any]
    gate: int | None


def dialects() -> list[str]:
    """All dialect names that can precede a model's name, sorted, including those of installed plug-ins."""
    return sorted({*_BUILT_IN, *(point.name for point in _plug_ins())})


def open_provider(dialect: str, **options: Unpack[AdapterOptions]) -> ProviderAdapter:
    """An adapter for ``dialect``; nothing is imported, connected or built before its first call.

    Parameters: see :class:`agentflow.providers.http_adapter.HttpAdapter`; ``offline`` and ``scripted`` ignore
    them. Raises ConfigurationError for an unknown dialect and for a missing key (the message names its variable).
    """
    row = _BUILT_IN.get(dialect)
    if row is not None:
        if not row.takes_options:
            return _load(row.module, row.factory)()
        if row.key_check is not None and options.get("transport") is None:
            _load(*row.key_check.split(":"))(options.get("base_url"), options.get("api_key"))
        return _load(row.module, row.factory)(**options)
    for point in _plug_ins():
        if point.name == dialect:
            return point.load()(**options)
    raise _unknown(dialect)


async def _warmed(warm: Callable[[], Awaitable[None]]) -> None:
    with suppress(AgentflowError):  # the first call raises it
        await warm()


def _plug_ins() -> EntryPoints:
    from importlib.metadata import entry_points  # 4 % of importing the flow

    return entry_points(group=ENTRY_POINTS)


def _load(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"agentflow.providers.{module}"), name)


def _unknown(dialect: str) -> ConfigurationError:
    names = dialects()
    near = suggest(dialect, names)
    return ConfigurationError(
        f"no provider is called {dialect!r}",
        code="config/unknown-provider",
        hint=(f"did you mean '{near}'? " if near else "") + f"known: {', '.join(names)}",
        details={"dialect": dialect, "known": names},
    )


class Router:
    """Resolves model names, as users write them, to adapters. Implements ``ModelRouter``.

    Parameters: ``model`` is the flow's model, ``dialect:name`` (``anthropic:``, ``openai:`` = Responses,
    ``openai-chat:``), or a dialect alone if it has no models (``offline``); ``base_url``, ``api_key``,
    ``settings`` and ``traits`` belong to that model's dialect; ``provider`` is an adapter that serves all models; ``base_urls`` and ``api_keys`` are those of other
    dialects, by name; ``prices`` and ``rates`` also apply to ``provider``; the rest is passed to every adapter. One adapter
    is built per dialect, when it is first used.

    Raises ConfigurationError for a model without a dialect or a name (``config/no-model``), an unknown dialect
    (``config/unknown-provider``), a ``base_url`` other than an address (``config/base-url``), unknown traits
    (``config/option``), and a ``provider`` other than an adapter (``config/provider``).
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: ProviderAdapter | None = None,
        base_urls: Mapping[str, str] | None = None,
        api_keys: Mapping[str, str] | None = None,
        clocks: Clocks | Mapping[str, Any] | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        gate: int | None = None,
        prices: Prices | None = None,
        rates: RateLimiter | None = None,
        settings: dict[str, Any] | None = None,
        traits: Mapping[str, Any] | Traits | None = None,
        aiohttp: bool | None = None,
    ) -> None:
        if provider is not None and not callable(getattr(provider, "stream", None)):
            raise ConfigurationError(
                f"provider={provider!r} is not an adapter",
                code="config/provider",
                hint=f"write model={provider!r}"
                if isinstance(provider, str)
                else "an adapter has the methods of ProviderAdapter; options of the adapter for model= are written "
                "provider=Provider(traits={...}, clocks={...}, retry={...})",
            )
        self.prices = prices or Prices()
        self._rates = rates
        self._provider = None if provider is None else self._served(provider)
        self._options: AdapterOptions = AdapterOptions(
            clocks=clocks, retry=retry, gate=gate, aiohttp=aiohttp, prices=self.prices, rates=rates
        )
        self._adapters: dict[tuple[str, str | None], ProviderAdapter] = {}
        self._replaced: list[ProviderAdapter] = []
        self._dialect: str | None = None
        self._name = model or ""
        if base_url is not None:
            check_base_url(base_url)
            api_key = api_key or os.environ.get(KEY_VARIABLE)
        if model and provider is None:
            self._dialect, self._name = self._split(model)
        self._base_urls = dict(base_urls or {})
        self._api_keys = dict(api_keys or {})
        self._settings = settings
        self._traits = traits
        if traits is not None:
            stated_traits(traits)  # refuses unknown traits and values
        clocks_of(clocks)
        retry_of(retry)
        if self._dialect is not None:
            if base_url is not None:
                self._base_urls.setdefault(self._dialect, base_url)
            if api_key is not None:
                self._api_keys.setdefault(self._dialect, api_key)

    @property
    def model(self) -> str | None:
        """The flow's model as ``dialect:name``, or None."""
        if self._dialect is None:
            return self._name or None
        return f"{self._dialect}:{self._name}" if self._name else self._dialect

    @property
    def has_own_adapter(self) -> bool:
        """Whether a ready adapter serves all models, so that none is built."""
        return self._provider is not None

    def resolve(self, model: str | None) -> tuple[ProviderAdapter, str]:
        """Adapter and bare name; see :class:`agentflow.core.ports.ports.ModelRouter`."""
        if self._provider is not None:
            return self._provider, model or self._name
        dialect, name = self._split(model) if model else (self._dialect, self._name)
        if dialect is None:
            raise _no_model()
        return self._adapter(dialect), name

    def full_name(self, model: str | None) -> str:
        """The whole name; see :class:`agentflow.core.ports.ports.ModelRouter`."""
        if model is None:
            return self.model or ""
        if self._provider is not None:
            return model
        try:
            dialect, name = self._split(model)
        except ConfigurationError:
            return model
        return f"{dialect}:{name}" if name else dialect

    def check(self, *models: str) -> None:
        """Raise ConfigurationError for names that :meth:`resolve` cannot interpret. Needs no key."""
        for model in models:
            if self._provider is None:
                self._split(model)

    def warming(self) -> Coroutine[Any, Any, None] | None:
        """Prepares the adapter of the flow's model for its first call; None if nothing needs preparing."""
        with suppress(ConfigurationError):
            if (warm := getattr(self.resolve(None)[0], "warm", None)) is not None:
                return _warmed(warm)
        return None

    async def aclose(self) -> None:
        """Close every adapter built, and ``provider``."""
        adapters = [*self._adapters.values(), *self._replaced]
        if self._provider is not None:
            adapters.append(self._provider)
        await asyncio.gather(*(adapter.aclose() for adapter in adapters))

    @contextmanager
    def replacing(
        self, *, provider: ProviderAdapter | None = None, transport: Any = None, api_key: str | None = None
    ) -> Generator[None]:
        """Within the block, ``provider`` serves all models, or adapters over ``transport`` with ``api_key``; for tests.

        Adapters built in the block are closed with the router.
        """
        before = self._provider, self._adapters, self._options, self._api_keys
        self._adapters = {}
        if provider is not None:
            self._provider = self._served(provider)
        elif transport is not None:
            options: AdapterOptions = {**self._options}
            options["transport"] = transport
            self._options = options
            if api_key is not None:
                self._api_keys = dict.fromkeys(dialects(), api_key)
        try:
            yield
        finally:
            self._replaced += self._adapters.values()
            self._provider, self._adapters, self._options, self._api_keys = before

    def _served(self, provider: ProviderAdapter) -> ProviderAdapter:
        """A ready adapter wrapped with the prices and rates of this router."""
        if self.prices.stated:
            provider = PricedProvider(provider, self.prices)
        return provider if self._rates is None else PacedProvider(provider, self._rates)

    def _split(self, model: str) -> tuple[str, str]:
        """Split into dialect and name. Names may contain colons (``llama3:8b``): only a known dialect is split off."""
        head, colon, name = model.partition(":")
        names = dialects()
        if head in names and (colon or head in _BUILT_IN or self._dialect is None):
            if not name and head in _BUILT_IN and not _is_local(head):
                raise ConfigurationError(
                    f"{head} needs the name of a model",
                    code="config/no-model",
                    hint=f"write it as {head}:name",
                )
            return head, name
        if colon and suggest(head, names):
            raise _unknown(head)
        if self._dialect is None:
            raise _no_dialect(model)
        return self._dialect, model

    def _adapter(self, dialect: str) -> ProviderAdapter:
        base_url = self._base_urls.get(dialect)
        key = (dialect, base_url)
        adapter = self._adapters.get(key)
        if adapter is None:
            adapter = self._adapters[key] = self._make(dialect, base_url)
        return adapter

    def _make(self, dialect: str, base_url: str | None) -> ProviderAdapter:
        options: AdapterOptions = {
            **self._options,
            "base_url": base_url,
            "api_key": self._api_keys.get(dialect),
            "settings": self._settings if dialect == self._dialect else None,
            "traits": self._traits if dialect == self._dialect else None,
        }
        return open_provider(dialect, **options)


def _is_local(dialect: str) -> bool:
    """Whether ``dialect`` is built in and on this machine, so that it needs no name of a model."""
    row = _BUILT_IN.get(dialect)
    return row is not None and row.key_check is None


def check_model(model: str) -> None:
    """Raise ConfigurationError for a flow's model without a dialect, or with an unknown one."""
    Router(model)


def _no_dialect(model: str) -> ConfigurationError:
    own = [name for name, row in _BUILT_IN.items() if model.lower().startswith(row.families or ("\0",))]
    return ConfigurationError(
        f"the model {model!r} has no dialect, which names the protocol of its server",
        code="config/no-model",
        hint=f"write {own[0]}:{model}; on a server of your own openai-chat:{model}, with its base_url"
        if own
        else f"write openai-chat:{model} with the base_url of your server, openai:{model} or anthropic:{model}",
    )


def _no_model() -> ConfigurationError:
    return ConfigurationError(
        "no model: this call needs one, and none was configured",
        code="config/no-model",
        hint="give the flow a model (model=, --model, or model in agentflow.toml): anthropic:NAME, openai:NAME, "
        "openai-chat:NAME with a base_url, or offline to try without a key",
    )
