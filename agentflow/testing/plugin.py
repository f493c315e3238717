"""The pytest plugin: the fixture ``no_network``. Load it with ``pytest_plugins = ["agentflow.testing.plugin"]``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentflow.testing.network import forbid_network


@pytest.fixture
def no_network() -> Iterator[None]:
    """Forbid network use within a test: an attempt raises NetworkForbidden."""
    with forbid_network():
        yield
