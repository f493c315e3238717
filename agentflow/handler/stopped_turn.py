"""The exchange of a turn that was stopped, completed so that every vendor accepts it in the history of the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentflow.core.data.messages import (
    INTERRUPTED,
    Message,
    OtherPart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NO_RESULT = "interrupted: the turn was stopped before this call had a result; it may have had effects"
"""The result of a call that had not ended, or not begun, when the turn was stopped."""


def ended_early(exchange: Sequence[Message], shown: str, finished: Mapping[str, ToolResultPart]) -> tuple[Message, ...]:
    """``exchange`` with a last answer: the text that was ``shown`` of it, marked as interrupted.

    Calls of tools get their results: those that had ``finished``, by the ids of the calls, or that they were interrupted. Thinking
    that is not complete has no signature, and is left out.
    """
    messages, last = list(exchange), exchange[-1]
    before: tuple[Part, ...] = ()
    if last.role == "assistant":
        calls = [part for part in last.parts if isinstance(part, ToolCallPart)]
        if calls:
            results = [finished.get(call.id) or _without_result(call) for call in calls]
            messages.append(Message("user", tuple(results)))
        else:
            before = _texts_alone(messages.pop().parts)
    text = (TextPart(shown),) if shown.strip() else ()
    messages.append(Message("assistant", (*before, *text, TextPart(INTERRUPTED))))
    return tuple(messages)


def _without_result(call: ToolCallPart) -> ToolResultPart:
    return ToolResultPart(call.id, call.name, NO_RESULT, is_error=True)


def _texts_alone(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts of an answer that a vendor takes back although more was to follow: work of its own tools may be incomplete."""
    if not any([isinstance(part, OtherPart) for part in parts]):
        return parts
    return tuple([TextPart(part.text) for part in parts if isinstance(part, TextPart)])
