"""The smallest run there is: what a component constructed alone gives its calls when no runtime opens runs for it."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from agentflow.core.call import ApprovalRequest, CallContext, current_call
from agentflow.core.events import Event
from agentflow.core.limits import Limits
from agentflow.core.messages import Usage
from agentflow.core.requests import SubtaskRequest
from agentflow.core.results import TaskResult
from agentflow.core.session import Session
from agentflow.core.values import plain

SubtaskRunner = Callable[[SubtaskRequest, CallContext], Awaitable[TaskResult]]


class LocalRun:
    """A run without observers, approver or budget of money: it counts usage and holds the limits, nothing more.

    Parameters: ``limits`` what tools and turn loops look up; ``subtasks`` runs a CONTINUATION's request, without it
    such a request is a FAILED result. ``usage`` and ``model_calls`` are totals so far.
    """

    def __init__(self, *, limits: Limits | None = None, subtasks: SubtaskRunner | None = None) -> None:
        self.run_id = f"local-{secrets.token_hex(6)}"
        self.limits = limits or Limits()
        self.usage = Usage()
        self.model_calls = 0
        self._subtasks = subtasks
        self.next_seq = itertools.count(1).__next__

    @property
    def listening(self) -> bool:
        """Nobody watches."""
        return False

    @property
    def congested(self) -> bool:
        """Nobody is slow."""
        return False

    def publish(self, event: Event) -> None:
        """Drop the event."""

    async def room(self) -> None:
        """Return at once."""

    def charge_model_call(self) -> None:
        """Count a model call."""
        self.model_calls += 1

    def charge_usage(self, usage: Usage, cost_usd: float | None) -> None:
        """Add a call's usage."""
        self.usage += usage

    async def run_subtask(self, request: SubtaskRequest, call: CallContext) -> TaskResult:
        """Run the subtask with the runner given, or say that there is none."""
        if self._subtasks is None:
            return TaskResult.failure(
                "dependency_error",
                "a subtask was asked for, but this handler was built without a task system that can run one",
                details={"request": plain(request)},
            )
        return await self._subtasks(request, call)

    async def approve(self, request: ApprovalRequest, call: CallContext) -> bool:
        """No approver: refused."""
        return False

    async def call_value(self, function: Any, arguments: tuple[Any, ...], call: CallContext) -> Any:
        """Call a Python callable, awaiting its result where it is awaitable."""
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result


class LocalOpener:
    """A :class:`~agentflow.core.ports.RunOpener` that joins the executing call, else opens a :class:`LocalRun`.

    Parameters: as for :class:`LocalRun`.
    """

    def __init__(self, *, limits: Limits | None = None, subtasks: SubtaskRunner | None = None) -> None:
        self._limits = limits
        self._subtasks = subtasks

    @contextlib.asynccontextmanager
    async def open_call(self, name: str, session: Session | None = None) -> AsyncGenerator[CallContext]:
        """The executing call, or one of a run of its own in ``session``. Raises SessionBusy when that is in use."""
        call = current_call.get()
        if call is not None:
            yield call
            return
        session = session if session is not None else Session()
        session.acquire()
        try:
            yield CallContext(LocalRun(limits=self._limits, subtasks=self._subtasks), session=session)
        finally:
            session.release()
