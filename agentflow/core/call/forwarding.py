"""A proxy of a run, for subclasses that differ from it in one respect only."""

from __future__ import annotations

from agentflow.core.call.call import RunPort
from agentflow.core.call.run_port import UnderWay
from agentflow.core.data.limits import Limits
from agentflow.core.events.events import Event


class ForwardingRun:
    """A :class:`~agentflow.core.call.call.RunPort` that passes everything on to ``run``. Made to be subclassed."""

    def __init__(self, run: RunPort) -> None:
        self._run = run
        self.next_seq = run.next_seq
        self.slice = run.slice
        self.journal = run.journal
        self.programs = run.programs
        self.watched = run.watched
        self.streaming = run.streaming
        self.purse = run.purse
        self.charge_usage = run.charge_usage
        self.charge_text = run.charge_text
        self.approve = run.approve
        self.ask = run.ask
        self.together = run.together
        self.services = run.services
        self.task = run.task
        self.run_subtask = run.run_subtask
        self.call_value = run.call_value
        self.take_over = run.take_over
        self.admission = run.admission
        self.limited = run.limited
        self.cover = run.cover
        self.run_program = run.run_program

    @property
    def run_id(self) -> str:
        """The run's identity."""
        return self._run.run_id

    @property
    def limits(self) -> Limits:
        """The run's limits."""
        return self._run.limits

    @property
    def budget(self) -> object:
        """The run's budget."""
        return self._run.budget

    @property
    def tools(self) -> object:
        """The tools that the run began with."""
        return self._run.tools

    @property
    def calls_left(self) -> int | None:
        """The run's model calls."""
        return self._run.calls_left

    @property
    def congested(self) -> bool:
        """Whether the run's own reader is behind."""
        return self._run.congested

    def publish(self, event: Event) -> None:
        """Hand an event to the run's observers."""
        self._run.publish(event)

    async def examine(self, *values: object, lasting: bool = False) -> None:
        """Search large values, right before an event shows them."""
        await self._run.examine(*values, lasting=lasting)

    async def room(self) -> None:
        """Wait for the run's own reader."""
        await self._run.room()

    def under_way(self, call: UnderWay, begins: bool) -> None:
        """Note on the run that model calls of a prompt are under way, or are no more."""
        self._run.under_way(call, begins)

    def charge_model_call(self) -> None:
        """Count a model call on the run. Raises LimitExceeded."""
        self._run.charge_model_call()
