"""Helpers for tests of programs that call models: a scripted provider, recorded traffic, a fixture against network use.

``pytest_plugins = ["agentflow.testing.plugin"]`` in a ``conftest.py`` gives the fixture ``no_network``.
"""

from agentflow.providers.scripted import ScriptedProvider
from agentflow.testing.cassette import Cassette
from agentflow.testing.network import NetworkForbidden, forbid_network

__all__ = ["Cassette", "NetworkForbidden", "ScriptedProvider", "forbid_network"]
