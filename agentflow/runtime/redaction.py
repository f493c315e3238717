"""Secrets out of events, before any observer sees them.

Texts and data of small events are redacted whole. Deltas come in pieces: from the first piece that may belong to a
secret (four characters of a known one, or what begins a key) a stream is redacted thoroughly, pieces held back until they
are clear; ordinary text flows through untouched. What a whole model request carries is what was sent; it is redacted where it leaves the process (files,
terminal), not copied on every turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentflow.core.errors import AgentflowError, ProviderError
from agentflow.core.events import (
    Event,
    FinishedBase,
    Log,
    ModelFinished,
    TaskFinished,
    TaskStarted,
    TextDelta,
    ThinkingDelta,
    ToolArgumentsDelta,
    ToolFinished,
    ToolStarted,
    Warning,
)
from agentflow.core.results import TaskResult
from agentflow.lib.redact import MIN_SECRET, RedactedStream, Redactor

_GRAM = 4
_MEMORY = 12
_Pieces = TextDelta | ThinkingDelta | ToolArgumentsDelta


class EventRedactor:
    """Redacts the events of one run. Parameters: ``redactor`` knows the secrets."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._grams = frozenset(form[at : at + _GRAM] for form in redactor.forms for at in range(len(form) - _GRAM + 1))
        self._streams: dict[tuple[str, str, str], _Stream] = {}

    def delta(self, event: _Pieces) -> _Pieces:
        """A delta with the text that may be shown now."""
        key = (event.path, event.type, event.call_id if isinstance(event, ToolArgumentsDelta) else "")
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream(event)
        text = stream.feed(event.text, self._grams, self._redactor)
        stream.last = event
        return event if text == event.text else replace(event, text=text)

    def settle(self, finished: ModelFinished) -> list[_Pieces]:
        """What was held back of the streams of a model call that has ended, as deltas without a number of their own."""
        made: list[_Pieces] = []
        for key in [key for key in self._streams if key[0] == finished.path]:
            stream = self._streams.pop(key)
            rest = stream.rest()
            if rest:
                made.append(replace(stream.last, text=rest, time=finished.time))
        return made

    def whole(self, event: Event) -> Event:
        """Any other event with its texts and data redacted; the same object when there was nothing."""
        redact = self._redactor
        if isinstance(event, FinishedBase) and event.error is not None:
            redact_error(event.error, redact)
        match event:
            case Log() | Warning():
                message = redact.redact(event.message)
                return event if message == event.message else replace(event, message=message)
            case ToolStarted():
                arguments = redact.value(event.arguments)
                return event if arguments == event.arguments else replace(event, arguments=arguments)
            case TaskStarted() if event.request is not None:
                inputs = redact.value(event.request.inputs)
                if inputs == event.request.inputs:
                    return event
                return replace(event, request=replace(event.request, inputs=inputs))
            case ToolFinished() | TaskFinished() if event.result is not None:
                result = redacted_result(event.result, redact)
                return event if result is event.result else replace(event, result=result)
            case _:
                return event


class _Stream:
    """One stream of pieces: passed on as they are until one looks like the beginning of a secret, redacted from then on.

    Redacting every piece thoroughly costs as much as the rest of a delta. What is passed on before the first suspicion
    is shorter than any secret.
    """

    __slots__ = ("last", "shown", "thorough")

    def __init__(self, last: _Pieces) -> None:
        self.last = last
        self.shown = ""
        self.thorough: RedactedStream | None = None

    def feed(self, text: str, grams: frozenset[str], redactor: Redactor) -> str:
        if self.thorough is not None:
            return self.thorough.feed(text)
        shown = self.shown
        seen = shown + text
        if (
            seen[-_GRAM:] not in grams
            and (len(text) < MIN_SECRET or redactor.redact(text) == text)
            and not redactor.suspects(seen)
        ):
            self.shown = seen[1 - _MEMORY :]
            return text
        self.thorough = redactor.stream()
        out = self.thorough.feed(seen)
        return out[len(shown) :] if out.startswith(shown) else out

    def rest(self) -> str:
        """What is held back."""
        return self.thorough.finish() if self.thorough is not None else ""


def redacted_result(result: TaskResult, redactor: Redactor) -> TaskResult:
    """``result`` without secrets in its texts and data; the same object when there were none."""
    content = redactor.redact(result.content)
    notes = redactor.value(result.notes)
    parsed = redactor.value(result.parsed_content)
    if content == result.content and notes == result.notes and parsed == result.parsed_content:
        return result
    return result.model_copy(update={"content": content, "notes": notes, "parsed_content": parsed})


def redact_error(error: BaseException, redactor: Redactor) -> None:
    """Take secrets out of an error on its way to the host: message, hint, details, partial text."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, AgentflowError):
            at.message = redactor.redact(at.message)
            at.hint = redactor.redact(at.hint) if at.hint else at.hint
            at.details = redactor.value(at.details)
            if isinstance(at, ProviderError):
                at.partial = redactor.redact(at.partial)
            at.args = tuple(_clean(argument, redactor) for argument in at.args)
        at = at.__cause__


def _clean(argument: Any, redactor: Redactor) -> Any:
    return redactor.redact(argument) if isinstance(argument, str) else argument
