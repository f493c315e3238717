"""The pytest plugin: the fixture ``no_network``. Load it with ``pytest_plugins = ["agentflow.testing.plugin"]``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentflow.testing.network import forbid_network


@pytest.fixture
def no_network() -> Iterator[None]:
    """Within this test nothing may leave the machine: NetworkForbidden is raised where something tries."""
    with forbid_network():
        yield
