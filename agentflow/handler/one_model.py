"""The ModelRouter of a handler that has one model."""

from __future__ import annotations

from agentflow.core.ports.ports import ProviderAdapter


class OneModel:
    """A ModelRouter for a handler built alone: resolves every name to one adapter.

    Parameters: ``adapter``, ``model`` the name for prompts without one.
    """

    def __init__(self, adapter: ProviderAdapter, model: str | None = None) -> None:
        self.adapter = adapter
        self._model = model

    def resolve(self, model: str | None) -> tuple[ProviderAdapter, str]:
        """The adapter and the name."""
        name = model or self._model or ""
        return self.adapter, name.partition(":")[2] or name

    def full_name(self, model: str | None) -> str:
        """The name as it is written."""
        return model or self._model or ""
