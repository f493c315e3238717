"""A ready adapter whose calls are sent at a rate: call by call, since nobody outside of it sees its attempts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from agentflow.core.messages import ModelDelta, ModelProfile, ModelRequest, Waiting
from agentflow.core.ports import ProviderAdapter, RateLimiter
from agentflow.core.provider_errors import RateLimited
from agentflow.providers.wire import estimate_tokens


class PacedProvider:
    """Passes every call on to ``adapter`` when it is its turn by ``rates``. A ``ProviderAdapter``."""

    def __init__(self, adapter: ProviderAdapter, rates: RateLimiter) -> None:
        self._adapter = adapter
        self._rates = rates

    def profile(self, model: str) -> ModelProfile:
        """The adapter's."""
        return self._adapter.profile(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Make one model call, after waiting for its turn."""
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
        """The adapter's."""
        return await self._adapter.count_tokens(request)

    async def aclose(self) -> None:
        """Close the adapter."""
        await self._adapter.aclose()
