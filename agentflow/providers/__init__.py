"""Providers: adapters that speak the wire formats of model servers, behind the port ``ProviderAdapter``.

Knows ``core`` and, deferred, the vendors' SDKs; no task, tool or run. Read ``table`` (model names to
adapters), ``http_adapter`` (one call from request to response) and ``exchange`` (its way over the wire, under clocks and caps); ``anthropic``
and ``openai`` are adapters, ``fallback`` wraps them. Wire formats are in the room ``dialects``.
"""

from agentflow.providers.clocks import Clocks
from agentflow.providers.dialects.retry import RetryPolicy
from agentflow.providers.dialects.traits import Traits
from agentflow.providers.fallback import FallbackProvider
from agentflow.providers.prices import Price, Prices
from agentflow.providers.scripted import ScriptedProvider
from agentflow.providers.table import Router, dialects, open_provider

__all__ = [
    "Clocks",
    "FallbackProvider",
    "Price",
    "Prices",
    "RetryPolicy",
    "Router",
    "ScriptedProvider",
    "Traits",
    "dialects",
    "open_provider",
]
