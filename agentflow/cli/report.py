"""Reports of runs: ``run --report FILE`` and ``runs report``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentflow.core.errors import AgentflowError
from agentflow.core.message_json import read_request

if TYPE_CHECKING:
    from agentflow.core.ports import ProviderAdapter
    from agentflow.observe.report.build import Wire
    from agentflow.providers.table import Router


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
