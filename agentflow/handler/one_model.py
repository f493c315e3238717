"""The ModelRouter of a handler that has one model, or none."""

from __future__ import annotations

from agentflow.core.errors import ConfigurationError
from agentflow.core.ports import ProviderAdapter


class OneModel:
    """A ModelRouter for a handler built alone: resolves every name to one adapter.

    Parameters: ``adapter`` (None: the first call raises that there is no model), ``model`` the name for prompts without
    one.
    """

    def __init__(self, adapter: ProviderAdapter | None, model: str | None = None) -> None:
        self.adapter = adapter
        self._model = model

    def resolve(self, model: str | None) -> tuple[ProviderAdapter, str]:
        """The adapter and the name. Raises ConfigurationError if there is no adapter."""
        if self.adapter is None:
            raise ConfigurationError(
                "this handler has no model",
                code="config/no-model",
                hint="give BaseHandler(..., model_provider=...) a provider, or use AgentFlow(model='anthropic:...')",
            )
        name = model or self._model or ""
        return self.adapter, name.partition(":")[2] or name

    def full_name(self, model: str | None) -> str:
        """The name as it is written."""
        return model or self._model or ""
