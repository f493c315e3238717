"""Providers: adapters that speak the wire formats of model servers, behind the port ``ProviderAdapter``.

Knows ``core`` and, deferred, the vendors' SDKs; no task, tool or run. Start with :mod:`agentflow.providers.base`, one
call from request to response; :mod:`agentflow.providers.table` maps model names to adapters.
"""

from agentflow.providers.clocks import Clocks
from agentflow.providers.fallback import FallbackProvider
from agentflow.providers.prices import Price, Prices
from agentflow.providers.retry import RetryPolicy
from agentflow.providers.scripted import ScriptedProvider
from agentflow.providers.table import Router, dialects, open_provider
from agentflow.providers.traits import Traits

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
