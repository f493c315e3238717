"""Picks the answer out of a run's events: the text of the model call in tail position. Other model calls are progress."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from agentflow.core.data.errors import ResourceExhausted
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import as_text, plain
from agentflow.core.events.events import (
    Event,
    ModelFinished,
    ModelStarted,
    RunStarted,
    TaskStarted,
    TextDelta,
    ThinkingDelta,
)
from agentflow.serve.exports import Offer

Said: TypeAlias = Literal["text", "thinking"]


class Piece(NamedTuple):
    """A piece of the answer, or of the thinking before it; ``model`` is the number of the event that started the model call."""

    kind: Said
    text: str
    model: int


class AnswerReader:
    """Picks the answer out of the events of a run.

    ``has_text``: whether any of it has arrived; ``text`` is the last model answer, once it is complete.
    """

    def __init__(self, offer: Offer | None) -> None:
        self._offer = offer
        self._run: int | None = None
        self._tasks: set[int] = set()
        self._models: set[int] = set()
        self._last: int | None = None
        self._is_cut = False
        self.has_text = False
        self.text = ""

    def is_cut_off(self, failure: BaseException | None) -> bool:
        """Whether a run failed because its answer reached the output limit, or filled the context window of its model.

        Chat clients treat this as a way to end, not as an error: they receive the partial answer.
        """
        return self._is_cut and isinstance(failure, ResourceExhausted)

    def take(self, event: Event) -> Piece | None:
        """The piece of the answer in ``event``; None for every other event."""
        if isinstance(event, TextDelta | ThinkingDelta):
            if event.parent is None or event.parent not in self._models or not event.text:
                return None
            if isinstance(event, ThinkingDelta):
                return Piece("thinking", event.text, event.parent)
            between = "\n\n" if self.has_text and event.parent != self._last else ""
            self.has_text, self._last = True, event.parent
            return Piece("text", between + event.text, event.parent)
        if isinstance(event, ModelStarted):
            if event.parent in self._tasks:
                self._models.add(event.seq)
                self._is_cut, self.text = False, ""
        elif isinstance(event, ModelFinished):
            if event.started in self._models and event.response is not None:
                self._is_cut = event.response.stop_reason in ("max_tokens", "context_window")
                self.text = event.response.text
        elif isinstance(event, TaskStarted):
            if event.parent == self._run and self._offer is not None and self._offer.answers_at(event.span):
                self._tasks.add(event.seq)
        elif isinstance(event, RunStarted) and event.parent is None:  # event numbers restart in each slice of a run
            self._run, self._last = event.seq, None
            self._tasks, self._models = set(), set()
        return None


def text_of(value: Any) -> str:
    """A run's value as text: the content of a result, a string unchanged, other data as JSON."""
    if isinstance(value, TaskResult):
        return value.content
    return as_text(plain(value))
