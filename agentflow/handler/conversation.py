"""What is sent ahead of a prompt: the session's history and its data context."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentflow.core.context import DataContext
from agentflow.core.messages import Message, ModelResponse, OtherPart, Part, TextPart, ToolCallPart
from agentflow.core.session import Session
from agentflow.core.templates import HistoryConfig

NO_ANSWER = "(no answer in words)"
"""What history keeps in place of an answer without words: providers refuse an empty turn."""

_CLOSING = re.compile(r"<(?=/?\s*(?:data_context|item|summary)\b)", re.IGNORECASE)


def opening(session: Session, history: HistoryConfig, prompt: Message) -> tuple[list[Message], int]:
    """``(messages, at)``: history as ``history`` says, then the prompt at index ``at``.

    The data context goes in front of the first user message of all, as a part of its own that the provider may cache:
    it stays the same from prompt to prompt, and its text never gets a system prompt's authority.
    """
    messages: list[Message] = []
    if history.use_session_history:
        for turn in session.turns(history.history_turns_to_include):
            messages.extend(turn)
    at = len(messages)
    messages.append(prompt)
    if session.data_context is not None:
        text = render(session.data_context)
        if text:
            first = messages[0]
            messages[0] = Message(first.role, (TextPart(text, cache=True), *first.parts))
    return messages, at


def render(data: DataContext) -> str:
    """A data context as the model reads it; empty when there is nothing in it.

    Each item is an element; in its content every ``<`` that would open or close one of these elements becomes
    ``&lt;``, so that no content can end its own element. All other characters stay as they are.
    """
    if not data.items and not data.overall_summary:
        return ""
    lines = ["<data_context>"]
    if data.overall_summary:
        lines.append(f"<summary>{contained(data.overall_summary)}</summary>")
    for item in data.items:
        place = f' lines="{item.start_line}-{item.end_line}"' if item.start_line is not None else ""
        lines.append(
            f'<item path="{_attribute(item.path)}"{place}>\n{contained(item.content or item.relevance)}\n</item>'
        )
    lines.append("</data_context>\n\n")
    return "\n".join(lines)


def contained(text: str) -> str:
    """``text`` unable to open or close an element of the data context."""
    return _CLOSING.sub("&lt;", text)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def answer_message(response: ModelResponse) -> Message:
    """The answer as history keeps it: verbatim, with a stand-in where a strict server would refuse it for emptiness."""
    for part in response.parts:
        if isinstance(part, ToolCallPart | OtherPart) or (isinstance(part, TextPart) and part.text.strip()):
            return Message("assistant", _without_blank(response.parts))
    kept = _without_blank(response.parts)
    return Message("assistant", (*kept, TextPart(NO_ANSWER)))


def _without_blank(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(part for part in parts if not (isinstance(part, TextPart) and not part.text.strip()))
