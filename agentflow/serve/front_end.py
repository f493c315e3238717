"""Shared by the protocols of front ends: a run shown while it executes, over the requests between which it asks."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from agentflow.core.data.errors import AgentflowError, DataError, clip
from agentflow.core.events.events import (
    Event,
    ModelFinished,
    SubtaskStarted,
    ToolFinished,
    ToolStarted,
    WaitFinished,
    WaitStarted,
    as_data,
)
from agentflow.core.events.questions import Question
from agentflow.serve.answer import AnswerReader, Piece
from agentflow.serve.error_responses import bare_error
from agentflow.serve.exports import Offer
from agentflow.serve.keys import Key
from agentflow.serve.served_flow import ServedFlow
from agentflow.serve.served_runs import ServedRun
from agentflow.serve.streaming import EventStream
from agentflow.serve.waiting_runs import WaitingRuns, nobody_waits


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


MAX_TEXT = 65_536
"""Maximum number of characters shown of any text except the answer."""


class ProtocolView(Protocol):
    """Encodes a run in a protocol: each method returns whole events of the stream."""

    def begin(self) -> bytes:
        """The first events of a request's stream."""
        ...

    def take(self, event: Event, piece: Piece | None) -> bytes:
        """The encoding of ``event``; ``piece`` is the piece of the answer in it, if any."""
        ...

    def ask(self, questions: Mapping[str, Question]) -> bytes:
        """The events that ask open questions and end the stream."""
        ...

    async def end(self, *, cut_off: bool) -> bytes:
        """The events that report how the run ended; ``cut_off``: it failed because its answer reached the output limit."""
        ...


V = TypeVar("V", bound=ProtocolView)


class Shown(Generic[V]):
    """A run and its ``view``; ``waiting`` keeps it while its client is asked. A durable run is kept by the journal, too."""

    def __init__(
        self, service: ServedFlow, run: ServedRun, offer: Offer, view: V, waiting: WaitingRuns[Shown[V]]
    ) -> None:
        self.run = run
        self.view = view
        self.asked = Asked(service, run)
        self._service = service
        self._waiting = waiting
        self._events = run.reader()
        self._answer = AnswerReader(offer)

    def stream(self, headers: Mapping[str, str]) -> EventStream:
        """The response to a request: events until the run has ended or asks.

        If the client disconnects before, the run is cancelled; a run that asks waits for the next request.
        """
        waits = False

        async def frames() -> AsyncGenerator[bytes, None]:
            nonlocal waits
            yield self.view.begin()
            while not self.asked.open and (event := await self._events.next()) is not None:
                encoded = self.view.take(event, self._answer.take(event))
                if encoded:
                    yield encoded
                self.asked.take(event)
            if self.asked.open:
                waits = True  # set before the question is sent, since the client may answer at once
                self._waiting.put(self.run, self)
                yield self.view.ask(self.asked.open)
            else:
                await self.run.wait()
                yield await self.view.end(cut_off=self._answer.is_cut_off(self.run.failure))

        async def over() -> None:
            if not waits:
                await self._service.left(self.run)

        return EventStream(frames(), {**headers, "x-request-id": self.run.run_id}, after=over)


def come_back(
    service: ServedFlow,
    run_id: str,
    key: Key,
    offer: Offer,
    view: Callable[[ServedRun], V],
    waiting: WaitingRuns[Shown[V]],
) -> Shown[V]:
    """The run that a client returns to with answers; a durable one also after a restart of the server.

    Raises RequestError (404, ``serve/unknown-run``) if no run with this id waits for this key.
    """
    shown = waiting.find(run_id, key)
    if shown is None:
        run = service.runs.parked(run_id, key, offer.name)
        if run is None:
            raise nobody_waits(run_id)
        shown = Shown(service, run, offer, view(run), waiting)
    return shown


def arguments_of(event: ToolStarted) -> str:
    """The arguments of a tool call as JSON text, cut to the shown length."""
    try:
        text = json.dumps(as_data(event.arguments or {}), allow_nan=False)
    except ValueError:  # NaN and infinities, which JSON lacks
        text = json.dumps({"arguments": str(event.arguments)[:MAX_TEXT]})
    return text if len(text) <= MAX_TEXT else json.dumps({"beginning": text[:MAX_TEXT]})


def subtask_name(event: SubtaskStarted) -> str:
    """The name of the task that a subtask requests, or else its kind."""
    return (event.request.name if event.request is not None else None) or "subtask"


def text_of_model(event: ModelFinished) -> str:
    """The text of a model's answer, cut to the shown length."""
    return "" if event.response is None else clip(event.response.text, MAX_TEXT)


def text_of_result(event: ToolFinished) -> str:
    """The result or the error of a tool call, as clients may see it, cut to the shown length."""
    result = event.result
    error = event.error if result is None else result.notes.error
    if isinstance(error, BaseException) and not isinstance(error, AgentflowError):
        return type(error).__name__
    if error is not None:
        said = error.to_dict() if isinstance(error, AgentflowError) else dict(error)
        told = bare_error(said)
        if told is not said or result is None:
            return clip(str(told["message"]), MAX_TEXT)
    return event.outcome if result is None else clip(result.content, MAX_TEXT)
