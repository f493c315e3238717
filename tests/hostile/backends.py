"""The sandbox back-ends that this machine has, and calls with granted authority to put commands to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentflow.core.call import ApprovalRequest, CallContext
from agentflow.core.local_run import LocalRun
from agentflow.executors.sandbox.selection import BACKENDS

CONFINING = ("bubblewrap", "landlock")


def needed(name: str) -> None:
    """Skip, with the reason, where the kernel or a program for back-end ``name`` is missing."""
    missing = BACKENDS[name]().missing()
    if missing is not None:
        pytest.skip(f"{name}: {missing}")


class AskedRun(LocalRun):
    """A run whose approver is ``answer``; ``asked`` keeps the requests."""

    def __init__(self, answer: Callable[[ApprovalRequest], bool]) -> None:
        super().__init__()
        self.asked: list[ApprovalRequest] = []
        self._answer = answer

    async def approve(self, request: ApprovalRequest, call: CallContext) -> bool:
        self.asked.append(request)
        return self._answer(request)


def granted(answer: Callable[[ApprovalRequest], bool] | None = None) -> CallContext:
    """A call that has only what it was granted, with an approver or without one."""
    run = LocalRun() if answer is None else AskedRun(answer)
    return CallContext(run, grants=frozenset({"system:execute_shell_command"}))
