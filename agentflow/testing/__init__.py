"""Helpers for tests of programs that call models: replies by task, recorded traffic, a guard against network use.

:mod:`agentflow.testing.plugin` has the pytest fixtures, which pytest loads by itself. Names are loaded when first used, so
that a test run without them costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentflow.providers.scripted import ScriptedProvider
    from agentflow.testing.cassette import Cassette
    from agentflow.testing.network import NetworkForbidden, forbid_network
    from agentflow.testing.script import Script, ScriptedCall

__all__ = ["Cassette", "NetworkForbidden", "Script", "ScriptedCall", "ScriptedProvider", "forbid_network"]

_HOMES = {
    "Cassette": "testing.cassette",
    "NetworkForbidden": "testing.network",
    "Script": "testing.script",
    "ScriptedCall": "testing.script",
    "ScriptedProvider": "providers.scripted",
    "forbid_network": "testing.network",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"agentflow.{_HOMES[name]}"), name)
