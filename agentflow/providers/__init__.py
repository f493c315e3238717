"""Providers: model dialects behind one port. See :mod:`agentflow.providers.table` for how names find adapters."""

from agentflow.providers.clocks import Clocks
from agentflow.providers.fallback import FallbackProvider
from agentflow.providers.prices import Price, Prices
from agentflow.providers.retry import RetryPolicy
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
    "dialects",
    "open_provider",
]
