"""Helpers for testing programs that call models: replies by task, recorded traffic, a guard against network use.

:mod:`agentflow.testing.plugin` has the pytest fixtures, which pytest loads automatically. Names are imported when first
used, so that test runs without them do not pay for the imports.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentflow.exploration.findings import Exploration, Finding
    from agentflow.exploration.stand_ins import Answer
    from agentflow.providers.scripted import ScriptedProvider
    from agentflow.testing.cassette import Cassette
    from agentflow.testing.exploring import explore, rehearse
    from agentflow.testing.network import NetworkForbidden, forbid_network
    from agentflow.testing.script import Script, ScriptedCall
    from agentflow.testing.written import load_tool

__all__ = [
    "Answer",
    "Cassette",
    "Exploration",
    "Finding",
    "NetworkForbidden",
    "Script",
    "ScriptedCall",
    "ScriptedProvider",
    "explore",
    "forbid_network",
    "load_tool",
    "rehearse",
]

_HOMES = {
    "Answer": "exploration.stand_ins",
    "Cassette": "testing.cassette",
    "Exploration": "exploration.findings",
    "Finding": "exploration.findings",
    "NetworkForbidden": "testing.network",
    "Script": "testing.script",
    "ScriptedCall": "testing.script",
    "ScriptedProvider": "providers.scripted",
    "explore": "testing.exploring",
    "forbid_network": "testing.network",
    "load_tool": "testing.written",
    "rehearse": "testing.exploring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"agentflow.{_HOMES[name]}"), name)
