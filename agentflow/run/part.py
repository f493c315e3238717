"""A part of a run: a program that a tool runs within the tool's own run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from agentflow.core.call.approval import ApprovalRequest, Decision
from agentflow.core.call.call import CallContext, RunPort, RunServices
from agentflow.core.call.run_port import UnderWay
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Usage
from agentflow.core.events.events import Event
from agentflow.lib.redact import Redactor
from agentflow.observe.stream import Fanout, Subscriber
from agentflow.run.questions import Approver
from agentflow.run.reservation import RunPurse
from agentflow.run.run import Run, WallClock
from agentflow.run.strand.budget import Budget


class RunPart(Run):
    """A part of the run ``outer`` with its own services and, if passed, its own limits, approver and reader.

    Events, numbers, usage and steps of the part are also the outer run's. Its limits only narrow the outer ones, so
    that nothing started inside a run can leave that run's budget. ``usage`` and ``cost_usd`` are the part's.
    """

    def __init__(
        self,
        outer: RunPort,
        services: RunServices,
        *,
        limits: Limits | None = None,
        own: Subscriber | None = None,
        approver: Approver | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        super().__init__(
            limits=outer.limits if limits is None else limits.within(outer.limits),
            services=services,
            fanout=Fanout((), own),
            approver=approver,
            run_id=outer.run_id,
            redactor=redactor,
            tools=outer.tools,
        )
        self._outer = outer
        self._narrowed = limits is not None
        above = outer.budget
        self.budget = Budget(self.limits, parent=above if isinstance(above, Budget) else None)
        if isinstance(outer.purse, RunPurse):
            self._own_purse = RunPurse(self.limits, outer.purse) if self._narrowed else None
            self.purse = self._own_purse or outer.purse
        self.next_seq = outer.next_seq
        self.slice = outer.slice
        self.journal = outer.journal
        self.programs = outer.programs
        self._read = own is not None
        self.watched = self._read or outer.watched
        self.streaming = self._read or outer.streaming

    def clock(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """A context manager that ends its block with LimitExceeded when the part's own wall time is up."""
        return WallClock(self.budget) if self._narrowed else contextlib.nullcontext()

    def congested(self) -> bool:
        """Whether the part's reader, or the outer run's own stream, is behind."""
        return super().congested() or self._outer.congested()

    def publish(self, event: Event) -> None:
        """Hand an event to the run's observers and to the part's reader."""
        if self._read:
            self._show(event)
        self._outer.publish(event)

    async def examine(self, *values: object, lasting: bool = False) -> None:
        """Search large values for secrets and encode them for the run's recorders, right before an event shows them."""
        if self._read:
            await super().examine(*values, lasting=lasting)
        await self._outer.examine(*values, lasting=lasting)

    async def room(self) -> None:
        """Wait until both readers take deltas again."""
        await super().room()
        if self._outer.congested():
            await self._outer.room()

    def calls_left(self) -> int | None:
        """Model calls that can still be made by the part, and by the run."""
        here, above = super().calls_left(), self._outer.calls_left()
        return above if here is None else here if above is None else min(here, above)

    def charge_model_call(self) -> None:
        """Count a model call for the part and the run. Raises LimitExceeded."""
        super().charge_model_call()
        self._outer.charge_model_call()

    def under_way(self, call: UnderWay, begins: bool) -> None:
        """Count a prompt's model calls in the account of the part and of the run."""
        super().under_way(call, begins)
        self._outer.under_way(call, begins)

    def charge_usage(self, usage: Usage, cost_usd: float | None) -> None:
        """Add a call's usage and cost to the part and the run. Raises LimitExceeded."""
        try:
            self._outer.charge_usage(usage, cost_usd)
        finally:
            super().charge_usage(usage, cost_usd)

    async def approve(self, request: ApprovalRequest, call: CallContext) -> Decision:
        """Ask the part's approver or, without one, the run's."""
        if self._asking.approver is None:
            return await self._outer.approve(request, call)
        return await super().approve(request, call)

    def cover(self, path: str, tools: Mapping[str, str]) -> None:
        """Stop asking for approval of ``tools`` that the program at ``path`` calls itself."""
        if self._asking.approver is None:
            self._outer.cover(path, tools)
        else:
            super().cover(path, tools)

    async def ask(self, question: str, schema: Mapping[str, Any] | None, call: CallContext) -> Any:
        """Ask the run's answerer."""
        return await self._outer.ask(question, schema, call)
