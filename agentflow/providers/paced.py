"""Limits the rate of an adapter that the host built, call by call, because its attempts are not visible outside."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from agentflow.core.data.messages import ModelDelta, ModelProfile, ModelRequest, Waiting
from agentflow.core.data.provider_errors import RateLimited
from agentflow.core.ports.ports import ProviderAdapter, RateLimiter
from agentflow.providers.dialects.wire import estimate_tokens
from agentflow.providers.prices import Prices


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
