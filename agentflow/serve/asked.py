"""The questions that a run asks its client, and their answers."""

from __future__ import annotations

from typing import Any

from agentflow.core.data.errors import DataError
from agentflow.core.events.events import Event, WaitFinished, WaitStarted
from agentflow.core.events.questions import Question
from agentflow.serve.runs import ServedRun
from agentflow.serve.service import ServedFlow


class Asked:
    """The ``open`` questions and approvals of a run by key; ``declined`` is the question whose refusal ended the run."""

    def __init__(self, service: ServedFlow, run: ServedRun) -> None:
        self.open: dict[str, Question] = dict(run.waits)
        self.declined: str | None = None
        self._service = service
        self._run = run
        self._answered: set[str] = set()

    def take(self, event: Event) -> str | None:
        """Process an event of the run. Returns the key of the question that it asks, if that is still open."""
        if isinstance(event, WaitFinished):
            if event.outcome == "suspended":  # the run was unloaded from memory, and the question stays open
                return None
            self.open = {key: each for key, each in self.open.items() if each.path != event.path}
        elif isinstance(event, WaitStarted) and event.key and event.key not in {*self._answered, *self.open}:
            question = self._run.waits.get(event.key)
            if question is not None:
                self.open[event.key] = question
                return event.key
        return None

    async def answer(self, key: str, answer: Any) -> bool:
        """Pass an answer on; False if it is invalid, so that the question stays open."""
        try:
            await self._service.flow.send(self._run.run_id, key, answer)
        except DataError as error:
            if error.code != "question/unknown":  # answered or withdrawn meanwhile
                return False
        self._answered.add(key)
        self.open.pop(key, None)
        return True

    async def decline(self, key: str) -> None:
        """Decline for want of an answer: an approval is denied, and a question ends the run."""
        question = self.open.pop(key, None)
        if question is None:
            return
        if question.reason == "approval":
            await self.answer(key, False)
        else:
            self.declined = question.question
            await self._run.cancel()
