"""Model calls as they are shown to people: the HTTP request that a dialect makes of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from agentflow.core.errors import AgentflowError
from agentflow.core.message_json import read_request
from agentflow.core.ports import ProviderAdapter
from agentflow.providers.table import Router

Wire: TypeAlias = Callable[[Mapping[str, Any], str], Mapping[str, Any] | None]
"""The HTTP request of a model request, by the name of who was asked, as ``{url, headers, body}``; None where it is not known."""


def wire_of(router: Router) -> Wire:
    """How a model call looks on the wire: by the encoder of the dialect that the provider of its first attempt speaks."""

    def wire(request: Mapping[str, Any], provider: str) -> Mapping[str, Any] | None:
        try:
            adapter = _adapter(router, provider, str(request.get("model") or "model"))
            described = getattr(adapter, "described", None)
            return None if described is None else described(read_request(request))
        except (AgentflowError, TypeError, ValueError):
            return None  # a provider of the host's own, or a part that this version does not know

    return wire


def _adapter(router: Router, provider: str, model: str) -> ProviderAdapter:
    """The flow's own adapter if it asks ``provider``, which may speak several dialects, else that of the provider's name."""
    if router.model is not None:
        own = router.resolve(None)[0]
        if own.profile(model).provider == provider:
            return own
    return router.resolve(f"{provider}:{model}")[0]
