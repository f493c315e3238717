"""Fallbacks: several models, tried in order, as one provider."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from agentflow.core.data.errors import ConfigurationError, ProviderError
from agentflow.core.data.messages import ModelDelta, ModelProfile, ModelRequest
from agentflow.core.ports.ports import ModelRouter, ProviderAdapter


class FallbackProvider:
    """Calls the first route and, if that fails before it delivers anything, the next. Implements ``ProviderAdapter``.

    Parameters: ``routes`` pairs of adapter and model name (empty: the request's own model). Native settings of a
    request go only to routes of the first one's dialect. Attempts are numbered across routes; their ``provider`` and
    ``model`` show where the call went. An invalid request (BadRequest) does not move on to the next route; a refused
    key or quota does. Raises the last route's error, with the earlier ones as notes. Raises ConfigurationError for an
    empty list.
    """

    def __init__(self, routes: Sequence[tuple[ProviderAdapter, str]]) -> None:
        if not routes:
            raise ConfigurationError("a fallback list needs at least one model", code="config/no-model")
        self._routes = tuple(routes)

    @property
    def routes(self) -> tuple[tuple[ProviderAdapter, str], ...]:
        """The adapters and model names, in the order they are tried."""
        return self._routes

    def profile(self, model: str) -> ModelProfile:
        """The first route's profile, with the smallest context window of all routes."""
        profiles = [adapter.profile(name or model) for adapter, name in self._routes]
        walls = [profile.wall_s for profile in profiles]
        windows = [profile.context_window for profile in profiles if profile.context_window is not None]
        return replace(
            profiles[0],
            context_window=min(windows) if windows else None,
            native_json_schema=all(profile.native_json_schema for profile in profiles),
            searches_tools=all(profile.searches_tools for profile in profiles),
            object_output=any(profile.object_output for profile in profiles),
            wall_s=None if None in walls else sum(wall or 0.0 for wall in walls),
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        number = 0
        earlier: list[str] = []
        for index, (adapter, name) in enumerate(self._routes):
            routed = self._routed(request, adapter, name)
            delivered = False
            try:
                async with aclosing(adapter.stream(routed)) as deltas:
                    async for delta in deltas:
                        if delta.attempt is not None:
                            if delta.attempt.outcome is None:
                                number += 1
                            delta = ModelDelta(attempt=replace(delta.attempt, number=number, model=routed.model))
                        elif delta.notice is None and delta.wait is None:
                            delivered = True
                        yield delta
                return
            except (ProviderError, ConfigurationError) as error:
                if delivered or index + 1 == len(self._routes) or not _worth_switching(error):
                    for note in earlier:
                        error.add_note(note)
                    raise
                earlier.append(f"before that, {routed.model or 'the model'} failed: {error.message}")

    def _routed(self, request: ModelRequest, adapter: ProviderAdapter, name: str) -> ModelRequest:
        model = name or request.model
        settings = request.settings
        if settings and adapter.profile(model).dialect != self._routes[0][0].profile(request.model).dialect:
            settings = {}
        return replace(request, model=model, settings=settings)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens as the first route counts them."""
        adapter, name = self._routes[0]
        return await adapter.count_tokens(self._routed(request, adapter, name))

    async def aclose(self) -> None:
        """Close every route."""
        for adapter in dict.fromkeys(adapter for adapter, _ in self._routes):
            await adapter.aclose()


def _worth_switching(error: ProviderError | ConfigurationError) -> bool:
    """Whether this error moves on to the next route. A missing key or unknown model does: the next may have it."""
    return not (isinstance(error, ProviderError) and error.code == "provider/bad-request" and error.status != 404)


class FallbackRouter:
    """A ModelRouter that adds fallbacks to the flow's own model.

    Parameters: ``router`` resolves names; ``fallbacks`` are tried in order after the flow's model. A model requested by
    name has no fallbacks.
    """

    def __init__(self, router: ModelRouter, fallbacks: Sequence[str] = ()) -> None:
        self._router = router
        self._fallbacks = tuple(fallbacks)

    def resolve(self, model: str | None) -> tuple[ProviderAdapter, str]:
        """The adapter for ``model``; for None, the flow's model followed by its fallbacks."""
        first = self._router.resolve(model)
        if model is not None or not self._fallbacks:
            return first
        return FallbackProvider([first, *(self._router.resolve(name) for name in self._fallbacks)]), first[1]

    def full_name(self, model: str | None) -> str:
        """The full name of ``model``, without fallbacks."""
        return self._router.full_name(model)
