"""The ModelRouter of a handler without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers.prices import Prices

if TYPE_CHECKING:
    from agentflow.providers.table import Router

DEFAULT_MODEL = "anthropic:claude-sonnet-5-5"
"""The model of a handler without a named model."""


class DefaultModel:
    """Resolves names like a flow built where the first prompt runs: with the settings of the environment and of
    ``agentflow.toml``, and :data:`DEFAULT_MODEL` where these name no model.

    Settings are read and adapters opened by the first prompt. ``model`` comes before the settings' model; ``prices`` are
    those of the adapters, which the settings' prices are added to.
    """

    def __init__(self, model: str | None, prices: Prices) -> None:
        self._model = model
        self._prices = prices
        self._opened: Router | None = None

    def resolve(self, model: str | None) -> tuple[ProviderAdapter, str]:
        """Adapter and bare name. Raises ConfigurationError, without a key with the code ``config/no-key``."""
        return self._router().resolve(model)

    def full_name(self, model: str | None) -> str:
        """The whole name, with its dialect."""
        return self._router().full_name(model)

    async def aclose(self) -> None:
        """Close the opened adapters; a later prompt opens them again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()

    def _router(self) -> Router:
        if self._opened is None:
            from agentflow.providers.prices import read_prices
            from agentflow.providers.rates import ProcessRates, read_rates
            from agentflow.providers.table import Router
            from agentflow.settings import load_settings

            settings = load_settings()
            self._prices.offer(read_prices(settings.prices), vouched=settings.prices_name_models)
            paces = read_rates(settings.rates)
            self._opened = Router(
                self._model or settings.model or DEFAULT_MODEL,
                **settings.for_router(),
                prices=self._prices,
                rates=ProcessRates(paces) if paces else None,
            )
        return self._opened
