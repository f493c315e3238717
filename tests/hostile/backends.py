"""The sandbox back-ends that this machine has, and calls with granted authority to put commands to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentflow.core.call.approval import ApprovalRequest
from agentflow.core.call.call import CallContext
from agentflow.executors.sandbox.selection import backends
from tests.support.fakes import FakeRun

CONFINING = ("bubblewrap", "landlock")


def needed(name: str) -> None:
    """Skip, with the reason, where the kernel or a program for back-end ``name`` is missing."""
    missing = backends()[name]().missing()
    if missing is not None:
        pytest.skip(f"{name}: {missing}")


def granted(answer: Callable[[ApprovalRequest], bool] | None = None) -> CallContext:
    """A call that has only what it was granted, with an approver or without one."""
    return FakeRun(approve=answer or False).call(grants=frozenset({"system:execute_shell_command"}))
