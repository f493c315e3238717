"""Shows model calls to people: the HTTP request that a dialect encodes for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.message_json import read_request
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers.table import Router

ShowCall: TypeAlias = Callable[[Mapping[str, Any], str], Mapping[str, Any] | None]
"""Maps a model request and a provider name to ``{url, headers, body}``; None if the encoding is unknown."""


def wire_of(router: Router) -> ShowCall:
    """A function that shows model calls as encoded by the dialect of the provider that was asked first."""

    def wire(request: Mapping[str, Any], provider: str) -> Mapping[str, Any] | None:
        try:
            adapter = _adapter(router, provider, str(request.get("model") or "model"))
            described = getattr(adapter, "described", None)
            return None if described is None else described(read_request(request))
        except (AgentflowError, TypeError, ValueError):
            return None  # the host's own provider, or a part unknown to this version

    return wire


def _adapter(router: Router, provider: str, model: str) -> ProviderAdapter:
    """The flow's own adapter if it is ``provider``, which may speak several dialects; else one by name."""
    if router.model is not None:
        own = router.resolve(None)[0]
        if own.profile(model).provider == provider:
            return own
    return router.resolve(f"{provider}:{model}")[0]
