"""The tools ``remember`` and ``recall``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import DataError
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.remembered import MAX_KEY, MAX_NOTE
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import plain, to_json
from agentflow.core.ports.memory_ports import NotePort
from agentflow.core.ports.ports import Tool

_MAX_RECALLED = 100
_REMEMBER = ToolSpec(
    "remember",
    "Keep a fact for later conversations. With a key, it replaces the fact remembered under that key.",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": MAX_NOTE, "description": "the fact"},
            "key": {"type": "string", "minLength": 1, "maxLength": MAX_KEY, "description": "its name"},
        },
        "required": ["text"],
        "additionalProperties": False,
    },
)
_RECALL = ToolSpec(
    "recall",
    "Find remembered facts about a question, best first; without a query, the latest ones.",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "the question, in plain words"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": _MAX_RECALLED,
                "description": "maximum number of facts",
            },
        },
        "additionalProperties": False,
    },
)

NOTE_TOOLS: Mapping[str, tuple[ToolSpec, Mapping[str, Any]]] = MappingProxyType(
    {
        "remember": (_REMEMBER, {"type": "string"}),
        "recall": (_RECALL, {"type": "array", "items": {"type": "string"}, "maxItems": _MAX_RECALLED}),
    }
)
"""The two tools by name, each with the schema of its value."""


def note_tools(notes: NotePort) -> list[Tool]:
    """The two tools over ``notes``. They are built in: a model is offered them only where a task names them."""

    async def remember(arguments: dict[str, Any], call: CallContext) -> TaskResult:
        try:
            note = await notes.remember(arguments["text"], arguments.get("key"), call)
        except DataError as error:
            return TaskResult.from_error(error, reason="tool_execution_error")
        return TaskResult.complete(f"remembered as {note.id}", note.id)

    async def recall(arguments: dict[str, Any], call: CallContext) -> TaskResult:
        try:
            recalled = await notes.recall(arguments.get("query") or "", arguments.get("limit") or 10, call)
        except DataError as error:
            return TaskResult.from_error(error, reason="tool_execution_error")
        shown = [
            {"text": note.text, "key": note.key, "remembered": _day(note.updated)}
            if note.key is not None
            else {"text": note.text, "remembered": _day(note.updated)}
            for note in recalled
        ]
        texts, matches = [note.text for note in recalled], [plain(note) for note in recalled]
        return TaskResult.complete(to_json(shown), texts, matches=matches)

    (remembering, kept), (recalling, texts_of) = NOTE_TOOLS["remember"], NOTE_TOOLS["recall"]
    return [
        Tool(spec=remembering, call=remember, idempotent=True, sequential=True, builtin=True, returns=kept),
        Tool(spec=recalling, call=recall, read_only=True, idempotent=True, builtin=True, returns=texts_of),
    ]


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
