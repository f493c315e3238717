"""The endings of recorded effects, published once their outcomes are stored: observers see no success that a kill could take back."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from agentflow.core.call.call import RunPort
from agentflow.core.events.events import Event, FinishedBase, ModelFinished, Outcome, TaskFinished, ToolFinished

_PAID = (TaskFinished, ModelFinished, ToolFinished)


class Releasing(Protocol):
    """The part of a run's records that its effects share."""

    releasing: bool


class HeldEvents:
    """The events of one recorded effect in ``run``: from its first success on, Finished events wait until it is stored.

    The ``records`` say when an effect within this one publishes its own, which are stored.
    """

    __slots__ = ("_events", "_records", "_run", "_stored")

    def __init__(self, records: Releasing, run: RunPort) -> None:
        self._records = records
        self._run = run
        self._events: list[FinishedBase] = []
        self._stored = False

    def publish(self, event: Event) -> None:
        """Publish an event, or hold it back."""
        if self._stored:
            self._pass_on(event)
        elif isinstance(event, FinishedBase) and (
            self._events or (not self._records.releasing and isinstance(event, _PAID) and event.outcome == "ok")
        ):
            self._events.append(event)
        else:
            self._run.publish(event)

    def release(self, outcome: Outcome | None = None, *, ends: bool = True) -> None:
        """Publish the events that were held back; ``outcome`` replaces their success if nothing was stored. ``ends`` says that the
        effect has ended: later events are published at once."""
        self._stored = self._stored or ends
        events, self._events = self._events, []
        for event in events:
            if outcome is not None and event.outcome == "ok":
                event = replace(event, outcome=outcome)
            self._pass_on(replace(event, seq=self._run.next_seq()))

    def _pass_on(self, event: Event) -> None:
        outer, self._records.releasing = self._records.releasing, True
        try:
            self._run.publish(event)
        finally:
            self._records.releasing = outer
