"""A flow says at its start when the interpreter is one that it does not hold for."""

from __future__ import annotations

import pytest

from agentflow import AgentFlow, ConfigurationError
from agentflow.arguments import check_interpreter


def test_a_build_without_the_global_lock_is_refused() -> None:
    """Labels rest on reference counts, which such a build keeps otherwise; every other interpreter makes a flow."""
    with pytest.raises(ConfigurationError) as refused:
        check_interpreter(gil=False)
    assert refused.value.code == "config/free-threaded"
    check_interpreter(gil=True)
    AgentFlow(model="offline")
