"""What the protocols of front ends share: a run that is shown as it goes, over the requests in which it asks and is answered."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from agentflow.core.errors import clip
from agentflow.core.events import Event, ModelFinished, SubtaskStarted, ToolFinished, ToolStarted, as_data
from agentflow.core.questions import Question
from agentflow.serve.answer import AnswerReader, Piece
from agentflow.serve.asked import Asked
from agentflow.serve.exports import Offer
from agentflow.serve.keys import Key
from agentflow.serve.runs import ServedRun
from agentflow.serve.service import Service
from agentflow.serve.streaming import EventStream
from agentflow.serve.waiting_runs import WaitingRuns, nobody_waits

MAX_TEXT = 65_536
"""Characters that are shown of what is no answer."""


class View(Protocol):
    """How a protocol tells of a run: each method gives whole events of the stream."""

    def begin(self) -> bytes:
        """The first events of a request's stream."""
        ...

    def take(self, event: Event, piece: Piece | None) -> bytes:
        """Those that tell of an event, which is a ``piece`` of the answer perhaps."""
        ...

    def ask(self, questions: Mapping[str, Question]) -> bytes:
        """Those that ask open questions, and end the stream."""
        ...

    async def end(self) -> bytes:
        """Those that tell how the run ended."""
        ...


V = TypeVar("V", bound=View)


class Shown(Generic[V]):
    """A run and its ``view``; ``waiting`` keeps it while its client is asked, as does the run itself if it is durable."""

    def __init__(self, service: Service, run: ServedRun, offer: Offer, view: V, waiting: WaitingRuns[Shown[V]]) -> None:
        self.run = run
        self.view = view
        self.asked = Asked(service, run)
        self._service = service
        self._waiting = waiting
        self._events = run.reader()
        self._answer = AnswerReader(offer)

    def stream(self, headers: Mapping[str, str]) -> EventStream:
        """What a request is answered with: events until the run has ended, or asks.

        When the client goes away before, the run is cancelled; one that asks waits for the next request.
        """
        waits = False

        async def frames() -> AsyncGenerator[bytes, None]:
            nonlocal waits
            yield self.view.begin()
            while not self.asked.open and (event := await self._events.next()) is not None:
                said = self.view.take(event, self._answer.take(event))
                if said:
                    yield said
                self.asked.take(event)
            if self.asked.open:
                waits = True  # the client may answer as soon as it is asked
                self._waiting.put(self.run, self)
                yield self.view.ask(self.asked.open)
            else:
                await self.run.wait()
                yield await self.view.end()

        async def over() -> None:
            if not waits:
                await self._service.left(self.run)

        return EventStream(frames(), {**headers, "x-request-id": self.run.run_id}, after=over)


def come_back(
    service: Service,
    run_id: str,
    key: Key,
    offer: Offer,
    view: Callable[[ServedRun], V],
    waiting: WaitingRuns[Shown[V]],
) -> Shown[V]:
    """The run whose client comes back to it with answers; a durable one also where the server was started anew meanwhile.

    Raises RequestError (404, ``serve/unknown-run``) where none waits under this id for this key.
    """
    shown = waiting.find(run_id, key)
    if shown is None:
        run = service.runs.parked(run_id, key, offer.name)
        if run is None:
            raise nobody_waits(run_id)
        shown = Shown(service, run, offer, view(run), waiting)
    return shown


def approves(answer: object) -> bool:
    """Whether an answer gives an approval: ``true``, or ``{"approved": true}``, and nothing else."""
    if isinstance(answer, dict):
        answer = cast("dict[str, Any]", answer).get("approved")
    return answer is True


def arguments_of(event: ToolStarted) -> str:
    """What a tool is called with, as JSON text, as much of it as is shown."""
    try:
        text = json.dumps(as_data(event.arguments or {}), allow_nan=False)
    except ValueError:  # numbers that JSON does not have
        text = json.dumps({"arguments": str(event.arguments)[:MAX_TEXT]})
    return text if len(text) <= MAX_TEXT else json.dumps({"beginning": text[:MAX_TEXT]})


def subtask_name(event: SubtaskStarted) -> str:
    """The task that a subtask asks for by name, or what it is."""
    return (event.request.name if event.request is not None else None) or "subtask"


def text_of_model(event: ModelFinished) -> str:
    """What a model said, as much of it as is shown beside an answer."""
    return "" if event.response is None else clip(event.response.text, MAX_TEXT)


def text_of_result(event: ToolFinished) -> str:
    """What a tool gave or why it did not, as much of it as is shown."""
    if event.result is not None:
        return clip(event.result.content, MAX_TEXT)
    return event.outcome if event.error is None else clip(str(event.error), MAX_TEXT)


__all__ = ["Shown", "View", "approves", "arguments_of", "come_back", "subtask_name", "text_of_model", "text_of_result"]
