"""Questions of runs as forms of MCP clients, whose fields are text, numbers, yes or no; and the answers of such forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from mcp_types import ElicitResult

from agentflow.core.questions import Question
from agentflow.core.values import to_json

APPROVE = "approve"
"""The field of a form that asks for an approval."""
ANSWER = "answer"
"""The field of a form that asks for one value."""
_FIELDS: dict[str, frozenset[str]] = {
    "string": frozenset({"enum", "minLength", "maxLength", "format"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
}
_ANY_FIELD = frozenset({"type", "title", "description", "default"})


def form_of(question: Question) -> dict[str, Any]:
    """The schema of the form that asks ``question``. An answer that is no field of a form is asked for as JSON text."""
    if question.reason == "approval":
        return _object({APPROVE: {"type": "boolean", "title": "Approve?"}})
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
    """The answer that a client's reply to the form gives, to be checked against the question's schema.

    An approval is given by an accepted form that says so, and by nothing else. Raises LookupError where a question was
    declined, ValueError for text that is no JSON.
    """
    content = reply.content if isinstance(reply, ElicitResult) and reply.action == "accept" else None
    if question.reason == "approval":
        return content is not None and content.get(APPROVE) is True
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
