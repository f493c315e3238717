"""Questions of runs as forms for MCP clients, with fields for text, numbers and yes or no; and the answers in such forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from mcp_types import ElicitResult

from agentflow.core.data.values import to_json
from agentflow.core.events.questions import Question

APPROVE = "approve"
"""The form field for an approval."""
REASON = "reason"
"""The form field for the reason of a refusal, which may stay empty."""
ANSWER = "answer"
"""The form field for a single value."""
_FIELDS: dict[str, frozenset[str]] = {
    "string": frozenset({"enum", "minLength", "maxLength", "format"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
}
_ANY_FIELD = frozenset({"type", "title", "description", "default"})


def form_of(question: Question) -> dict[str, Any]:
    """The schema of the form for ``question``. A value that no form field can hold is asked for as JSON text."""
    if question.reason == "approval":
        form = _object({APPROVE: {"type": "boolean", "title": "Approve?"}})
        form["properties"][REASON] = {"type": "string", "title": "Why not?"}
        return form
    schema = question.schema
    if schema is None:
        return _object({ANSWER: {"type": "string"}})
    if _is_form(schema):
        return {
            "type": "object",
            "properties": dict(schema["properties"]),
            "required": list(schema.get("required", ())),
        }
    if _is_field(schema):
        return _object({ANSWER: dict(schema)})
    return _object({ANSWER: {"type": "string", "description": f"JSON that fits {to_json(dict(schema))}"}})


def answer_of(question: Question, reply: object) -> Any:
    """The answer in a client's ``reply`` to the form, not yet checked against the question's schema.

    Of an approval it is what an accepted form says, to be decided about; a form that was not accepted is a no. Raises LookupError if the question was declined, ValueError for text that is
    not JSON.
    """
    content = reply.content if isinstance(reply, ElicitResult) and reply.action == "accept" else None
    if question.reason == "approval":
        said, reason = (None, None) if content is None else (content.get(APPROVE), content.get(REASON))
        return reason if said is False and reason else said
    if content is None:
        raise LookupError("declined")
    schema = question.schema
    if schema is not None and _is_form(schema):
        return content
    answer = content.get(ANSWER)
    if schema is None or _is_field(schema):
        return answer
    return json.loads(answer if isinstance(answer, str) else "")


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _is_form(schema: Mapping[str, Any]) -> bool:
    fields: object = schema.get("properties")
    return (
        schema.get("type") == "object"
        and schema.keys() <= {"type", "properties", "required", "title", "description", "additionalProperties"}
        and isinstance(fields, Mapping)
        and fields != {}
        and all([_is_field(each) for each in cast("Mapping[str, Any]", fields).values()])
    )


def _is_field(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return False
    fields = cast("Mapping[str, Any]", schema)
    kind = fields.get("type")
    return isinstance(kind, str) and kind in _FIELDS and fields.keys() <= _ANY_FIELD | _FIELDS[kind]


__all__ = ["answer_of", "form_of"]
